"""Hooks for experiment trackers: MLflow and Weights & Biases.

Both are optional: each is an extra of the package, imported only when asked for
by name.
"""

import importlib.util
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.lab.recording import hooks

_IDENTITY = 'tff_adaptive.run'


class MLflow(hooks.Tracker):
  """A hook that logs settings as MLflow parameters and rows as metrics.

  A resumed run continues its MLflow run, found by a tag with the run's
  identity. Repeated rounds are logged again, with the same values.

  Attributes:
    name: The name in messages.
  """

  def __init__(self, uri: str, experiment: str = 'tff_adaptive'):
    """Creates the hook without connecting.

    Args:
      uri: The address of a tracking server, or a database for MLflow, such as
        sqlite:///mlflow.db.
      experiment: The name of the MLflow experiment.
    """
    self.name = f'mlflow:{uri}'
    self._uri = uri
    self._experiment = experiment
    self._client: Any = None
    self._run_id = ''

  def start(self, event: hooks.Start) -> None:
    # An unreachable server should delay a run by seconds, not minutes.
    os.environ.setdefault('MLFLOW_HTTP_REQUEST_MAX_RETRIES', '2')
    import mlflow  # pylint: disable=g-import-not-at-top

    self._client = mlflow.MlflowClient(tracking_uri=self._uri)
    found = self._client.get_experiment_by_name(self._experiment)
    experiment_id = (
      self._client.create_experiment(self._experiment)
      if found is None
      else found.experiment_id
    )
    runs = self._client.search_runs(
      [experiment_id],
      filter_string=f"tags.`{_IDENTITY}` = '{event.identity}'",
      max_results=1,
    )
    if runs:
      self._run_id = runs[0].info.run_id
      self._client.set_terminated(self._run_id, 'RUNNING')
      # The server may not have been there at the last ones.
      logged = {
        measure.step
        for name in runs[0].data.metrics
        for measure in self._client.get_metric_history(self._run_id, name)
      }
      rows = [row for row in event.rows if int(row['round']) not in logged]
      self.log_rows(rows)
      return
    run = self._client.create_run(
      experiment_id,
      run_name=event.folder.name,
      tags={_IDENTITY: event.identity},
    )
    self._run_id = run.info.run_id
    settings = [
      mlflow.entities.Param(name, str(value))
      for name, value in event.settings.items()
      if value is not None
    ]
    self._client.log_batch(self._run_id, params=settings)
    self.log_rows(event.rows)

  def log(self, number: int, values: Mapping[str, float]) -> None:
    from mlflow import entities  # pylint: disable=g-import-not-at-top

    now = int(time.time() * 1000)
    metrics = [entities.Metric(n, v, now, number) for n, v in values.items()]
    self._client.log_batch(self._run_id, metrics=metrics)

  def end(self, event: hooks.End) -> None:
    status = {hooks.FINISHED: 'FINISHED', hooks.STOPPED: 'KILLED'}
    self._client.set_terminated(
      self._run_id, status.get(event.status, 'FAILED')
    )


class Wandb(hooks.Tracker):
  """A hook that logs settings as W&B config and rows as history.

  A resumed run continues its W&B run, whose id is derived from the run's
  identity. WANDB_MODE=offline keeps everything in the run's folder.

  Attributes:
    name: The name in messages.
  """

  def __init__(self, project: str):
    """Creates the hook without connecting.

    Args:
      project: The name of the W&B project.
    """
    self.name = f'wandb:{project}'
    self._project = project
    self._run: Any = None

  def start(self, event: hooks.Start) -> None:
    import wandb  # pylint: disable=g-import-not-at-top

    self._run = wandb.init(
      project=self._project,
      id=event.identity[:32] or None,
      name=event.folder.name,
      dir=str(event.folder),
      config=dict(event.settings),
      resume='allow',
      # Keeps W&B's messages out of the run's output.
      settings=wandb.Settings(console='off', silent=True),
    )
    # Of a resumed run, those that it lacks: W&B leaves out earlier steps.
    self.log_rows(event.rows)

  def log(self, number: int, values: Mapping[str, float]) -> None:
    self._run.log(dict(values), step=number)

  def end(self, event: hooks.End) -> None:
    for name, value in (('status', event.status), ('reason', event.reason)):
      if value is not None:
        self._run.summary[name] = value
    self._run.finish(exit_code=int(event.status == hooks.FAILED))


# Hook, imported module, its package and placeholder of the argument, by kind.
_TRACKERS = {
  'mlflow': (MLflow, 'mlflow', 'mlflow-skinny', 'URI'),
  'wandb': (Wandb, 'wandb', 'wandb', 'PROJECT'),
}


def build(names: Sequence[str]) -> list[hooks.Hook]:
  """Builds hooks from values of --trackers: 'mlflow:URI' or 'wandb:PROJECT'.

  Raises:
    ParameterError: If the kind is unknown, or its package is not installed.
  """
  built = []
  for name in names:
    kind, _, place = name.partition(':')
    if kind not in _TRACKERS or not place:
      known = ' or '.join(f'{k}:{v[3]}' for k, v in _TRACKERS.items())
      raise parameters.ParameterError(
        'trackers', '{} must be {known}, got {name!r}.', known=known, name=name
      )
    recorder, module, package, _ = _TRACKERS[kind]
    if importlib.util.find_spec(module) is None:
      raise parameters.ParameterError(
        'trackers',
        '{}={name} needs the module {module}, which is not installed: '
        'pip install {package}.',
        name=name,
        module=module,
        package=package,
      )
    built.append(recorder(place))
  return built
