"""From settings to a finished run."""

import dataclasses
import importlib.metadata
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tasks
from tasks import figures as task_figures
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive import runtime
from tff_adaptive.flags import methods
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.recording import files
from tff_adaptive.recording import progress as progress_lib
from tff_adaptive.training import accounting
from tff_adaptive.training import seeds as randomness

# TensorFlow is imported by the functions that need it: whether a run is
# finished already, or may not be resumed, is known before.
# pylint: disable=g-import-not-at-top


def set_runtime(settings: settings_lib.Settings) -> Any:
  """Makes the settings' execution context the one that TFF uses.

  To be called before anything else is done with TFF: what it replaces, TFF's
  own default, complains when the interpreter ends with it in place.
  """
  set_context = getattr(runtime, f'set_{settings.runtime}_context')
  try:
    return set_context(**settings.runtime_options)
  except (runtime.RuntimeFailure, ValueError) as e:
    runtime.set_in_process_context()
    if isinstance(e, ValueError):
      raise errors.SettingsError(f'--runtime={settings.runtime}: {e}') from e
    raise


def prepare(settings: settings_lib.Settings) -> Optional[files.RowFile]:
  """Looks at what is in the run's folder already.

  Returns:
    The rows of metrics.csv if the run is finished, else `None`.

  Raises:
    SettingsError: If the folder cannot be written, or holds a sweep, or a run
      with other settings.
  """
  folder = files.RunFolder(settings.folder)
  files.check_writable(folder.path)
  if folder.sweep.exists():
    raise errors.SettingsError(
      f'{folder.path} is the folder of a sweep; choose another '
      '--experiment_name for the run.'
    )
  before = folder.read_hparams()
  if before is None:
    if folder.metrics.exists():
      raise errors.SettingsError(
        f'{folder.path} holds results without {folder.hparams.name}, which '
        'says what they are of; choose another --experiment_name.'
      )
    return None
  settings_lib.check_same(before['settings'], settings.identity, folder.path)
  metrics = files.RowFile(folder.metrics)
  if not metrics.rows:
    return None
  last = metrics.rows[-1]
  finished = int(last['round']) == settings.total_rounds and any(
    value for name, value in last.items() if name.startswith('test/')
  )
  return metrics if finished else None


def create_task(settings: settings_lib.Settings) -> Any:
  """The settings' `tff.simulation.baselines.BaselineTask`.

  Raises:
    SettingsError: If its data cannot be used as asked.
  """
  options = dict(settings.task_options)
  if settings.algorithm == methods.CENTRALIZED:
    # They make up a client's share of a round, of which there is none.
    options |= dict(epochs=1, max_elements=None)
  try:
    return tasks.create(settings.task, **options)
  except (
    tasks.DataError,
    tasks.PartitionError,
    parameters.ParameterError,
  ) as e:
    raise errors.SettingsError(str(e)) from e


def open_ledger(
  settings: settings_lib.Settings, task: Any
) -> Optional[accounting.Ledger]:
  """What the run's privacy comes to; see `accounting.open_ledger`."""
  return accounting.open_ledger(
    settings, len(task.datasets.train_data.client_ids)
  )


def build_process(settings: settings_lib.Settings, task: Any) -> Any:
  """The settings' learning process, for a task that `create_task` made.

  `None` where nothing is federated.
  """
  from tff_adaptive.processes import local_model

  if settings.algorithm == methods.CENTRALIZED:
    return None
  arguments = accounting.build_arguments(settings, open_ledger(settings, task))
  # A method that counts in the population means the task's, unless told.
  if arguments.get('population', 0) is None:
    arguments['population'] = len(task.datasets.train_data.client_ids)
  try:
    return algorithms.build(
      settings.algorithm,
      task.model_fn,
      seed=randomness.seed_32(settings.seed, 'inside rounds'),
      **arguments,
    )
  except local_model.NoRepresentationError as e:
    raise errors.SettingsError(
      f'--algorithm={settings.algorithm} cannot train --task={settings.task}. '
      f'{e}'
    ) from e


def run(
  settings: settings_lib.Settings,
  *,
  say: Callable[[str], None] = print,
  on_row: Optional[Callable[[Mapping[str, Any]], None]] = None,
) -> Any:
  """Runs an experiment, or goes on with it.

  Args:
    settings: The experiment; `prepare` has looked at its folder.
    say: Is told what is going on, a sentence at a time.
    on_row: As `loop.run` takes it.

  Returns:
    A `loop.Result`.

  Raises:
    SettingsError: If the experiment cannot run as asked; nothing is written.
    RunError: If it cannot go on.
    Stopped: If a signal stopped it; the last complete round is saved.
  """
  start = time.perf_counter()
  from tff_adaptive.training import data
  from tff_adaptive.training import loop
  from tff_adaptive.training import stopping

  signals = stopping.Signals()
  with signals.handled():
    try:
      with signals.interruptible():
        ready = _set_up(settings)
    except stopping.Stopped:
      say('Stopped before training began.')
      raise
    ledger = ready.ledger
    formula = methods.describe(
      settings.algorithm, **accounting.build_arguments(settings, ledger)
    )
    say(formula)
    if ledger is not None:
      say(ledger.describe())
    whose = methods.whose_data(
      settings.algorithm,
      settings.clients_per_round,
      len(ready.clients.client_ids),
    )
    say(
      f'{settings.task}: {whose}, '
      f'{settings.total_rounds:,} rounds, on the {settings.runtime} runtime; '
      f'ready after {time.perf_counter() - start:.1f} s.'
    )
    with files.RunFolder(settings.folder) as folder:
      _write_down(folder, settings, ready, formula)
      return loop.run(
        ready.rounds,
        clients=ready.clients,
        cohort_fn=ready.cohort_fn,
        evaluator=ready.evaluator,
        validation=ready.validation,
        test=lambda: data.test_split(ready.task.datasets, cache_bytes=0),
        folder=folder,
        cadence=loop.Cadence(
          total_rounds=settings.total_rounds,
          rounds_per_eval=settings.rounds_per_eval,
          rounds_per_checkpoint=settings.rounds_per_checkpoint,
        ),
        title=settings.name,
        progress=progress_lib.Progress(settings.total_rounds),
        signals=signals,
        on_row=on_row,
        columns=None if ledger is None else ledger.columns,
        max_rejected_clients=settings.max_rejected_clients,
      )


@dataclasses.dataclass(frozen=True)
class _Ready:
  """What the loop needs, made from settings."""

  task: Any
  cohort_fn: Callable[[int], Sequence[str]]
  rounds: Any
  evaluator: Any
  clients: Any
  validation: Any
  ledger: Optional[accounting.Ledger]


def _write_down(
  folder: files.RunFolder,
  settings: settings_lib.Settings,
  ready: _Ready,
  formula: str,
) -> None:
  """Writes what the run is into its folder, unless that is done.

  Raises:
    SettingsError: If the folder has a run with other settings.
  """
  # Another process may have been here since `prepare` looked.
  before = folder.read_hparams()
  if before is not None:
    settings_lib.check_same(before['settings'], settings.identity, folder.path)
    return
  hparams: dict[str, Any] = {
    'settings': settings.identity,
    'algorithm': formula.splitlines(),
  }
  if ready.ledger is not None:
    hparams['privacy'] = ready.ledger.describe().splitlines()
  hparams['versions'] = {
    name: importlib.metadata.version(name)
    for name in ('tensorflow', 'tensorflow-federated', 'numpy')
  }
  folder.write_hparams(hparams)
  task_figures.save_clients(
    ready.task.datasets.train_data, folder.path, title=settings.task
  )


def _set_up(settings: settings_lib.Settings) -> _Ready:
  """Loads data and builds the process; writes nothing."""
  import tensorflow as tf

  from tff_adaptive.training import cohorts as sampling
  from tff_adaptive.training import data
  from tff_adaptive.training import evaluation

  set_runtime(settings)
  task = create_task(settings)
  cohort_fn = sampling.build_cohort_fn(
    task.datasets.train_data.client_ids,
    clients_per_round=settings.clients_per_round,
    random_seed=settings.client_datasets_random_seed,
  )
  process = build_process(settings, task)
  tf.keras.utils.set_random_seed(
    randomness.seed_32(settings.seed, 'initial weights')
  )
  evaluator = evaluation.Evaluator(task.model_fn)
  cache_bytes = settings.cache_mib * 2**20
  if process is None:
    rounds, clients = _pooled(settings, task, evaluator.weights, cache_bytes)
  else:
    rounds = _federated(settings, task, evaluator.weights, process)
    clients = data.ClientDatasets(
      task.datasets, seed=settings.seed, cache_bytes=cache_bytes
    )
  return _Ready(
    task=task,
    cohort_fn=cohort_fn,
    rounds=rounds,
    evaluator=evaluator,
    clients=clients,
    validation=data.test_split(
      task.datasets,
      num_examples=settings.num_validation_examples,
      cache_bytes=cache_bytes,
    ),
    ledger=open_ledger(settings, task),
  )


def _pooled(
  settings: settings_lib.Settings, task: Any, weights: Any, cache_bytes: int
) -> tuple[Any, Any]:
  """Rounds of training on pooled data, and the data."""
  from tff_adaptive.training import centralized

  rounds = centralized.build_rounds(task.model_fn, settings, weights)
  clients = centralized.PooledDatasets(
    task.datasets,
    seed=settings.seed,
    cache_bytes=cache_bytes,
    clients_per_round=settings.clients_per_round,
    epochs=settings.task_options['epochs'],
    max_elements=settings.task_options['max_elements'],
  )
  return rounds, clients


def _federated(
  settings: settings_lib.Settings, task: Any, weights: Any, process: Any
) -> Any:
  """Rounds of a learning process, with what its clients keep."""
  from tff_adaptive.recording import client_states
  from tff_adaptive.training import rounds

  client_ids = task.datasets.train_data.client_ids
  path = files.RunFolder(settings.folder).path / 'client_states.bin'
  return rounds.build(
    process,
    initial_weights=weights,
    client_ids=client_ids,
    path=path,
    store=lambda record: client_states.choose(
      settings.client_states,
      record,
      path,
      clients=len(client_ids),
      clients_per_round=settings.clients_per_round,
      total_rounds=settings.total_rounds,
      rounds_per_checkpoint=settings.rounds_per_checkpoint,
      memory_bytes=settings.client_state_mib * 2**20,
    ),
  )
