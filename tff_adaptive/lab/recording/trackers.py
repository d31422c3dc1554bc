"""Hooks for experiment trackers: MLflow and Weights & Biases.

Both are optional: each is an extra of the package, imported only when asked for
by name.
"""

import importlib.util
import os
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.lab.recording import hooks

# MLflow's limits of metrics and parameters per request.
_MOST_METRICS = 1000
_MOST_SETTINGS = 100
_IDENTITY = 'tff_adaptive.run'


def _numbers(values: hooks.Row) -> dict[str, float]:
  """Returns the values of a row, without its round, as floats."""
  return {
    name: float(value)
    for name, value in values.items()
    if name != 'round' and value is not None and value != ''
  }


class MLflow(hooks.Hook):
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
      return
    run = self._client.create_run(
      experiment_id,
      run_name=event.folder.name,
      tags={_IDENTITY: event.identity},
    )
    self._run_id = run.info.run_id
    self._log_settings(event.settings)
    for row in event.rows:
      self._log(int(row['round']), row)

  def _log_settings(self, settings: Mapping[str, Any]) -> None:
    from mlflow import entities  # pylint: disable=g-import-not-at-top

    params = [
      entities.Param(name, str(value))
      for name, value in settings.items()
      if value is not None
    ]
    for first in range(0, len(params), _MOST_SETTINGS):
      self._client.log_batch(
        self._run_id, params=params[first : first + _MOST_SETTINGS]
      )

  def round(self, event: hooks.Round) -> None:
    self._log(event.number, event.row)

  def evaluation(self, event: hooks.Evaluation) -> None:
    if event.final:  # Others are in the row of their round.
      self._log(event.round_number, event.values)

  def _log(self, number: int, values: hooks.Row) -> None:
    from mlflow import entities  # pylint: disable=g-import-not-at-top

    now = int(time.time() * 1000)
    metrics = [
      entities.Metric(name, value, now, number)
      for name, value in _numbers(values).items()
    ]
    for first in range(0, len(metrics), _MOST_METRICS):
      self._client.log_batch(
        self._run_id, metrics=metrics[first : first + _MOST_METRICS]
      )

  def end(self, event: hooks.End) -> None:
    status = {hooks.FINISHED: 'FINISHED', hooks.STOPPED: 'KILLED'}
    self._client.set_terminated(
      self._run_id, status.get(event.status, 'FAILED')
    )


class Wandb(hooks.Hook):
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

  def round(self, event: hooks.Round) -> None:
    self._run.log(_numbers(event.row), step=event.number)

  def evaluation(self, event: hooks.Evaluation) -> None:
    if event.final:  # Others are in the row of their round.
      self._run.log(_numbers(event.values), step=event.round_number)

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
  """Builds hooks from values of --record: 'mlflow:URI' or 'wandb:PROJECT'.

  Raises:
    ParameterError: If the kind is unknown, or its package is not installed.
  """
  built = []
  for name in names:
    kind, _, place = name.partition(':')
    if kind not in _TRACKERS or not place:
      known = ' or '.join(f'{k}:{v[3]}' for k, v in _TRACKERS.items())
      raise parameters.ParameterError(
        'record', '{} must be {known}, got {name!r}.', known=known, name=name
      )
    recorder, module, package, _ = _TRACKERS[kind]
    if importlib.util.find_spec(module) is None:
      raise parameters.ParameterError(
        'record',
        '{}={name} needs the module {module}, which is not installed: '
        'pip install {package}.',
        name=name,
        module=module,
        package=package,
      )
    built.append(recorder(place))
  return built
