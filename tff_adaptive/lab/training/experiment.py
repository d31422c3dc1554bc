"""Experiments: from settings to a finished run."""

import contextlib
import importlib.metadata
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional, TYPE_CHECKING

import tasks
from tasks import figures as task_figures
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive import runtime
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks as hooks_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import progress as progress_lib
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.recording import trackers
from tff_adaptive.lab.training import accounting
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import seeds as randomness
from tff_adaptive.lab.training.loop import early_stopping
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import cohorts
from tff_adaptive.privacy import mechanism as privacy
from tff_adaptive.processes import exchange

if TYPE_CHECKING:
  import tensorflow_federated as tff

  from tff_adaptive.lab.training import parts as parts_lib
  from tff_adaptive.lab.training.data import datasets as data_lib
  from tff_adaptive.lab.training.loop import loop as loop_lib

# TensorFlow is imported by the functions that need it, after it is known
# whether a run is finished already or may not be resumed.
# pylint: disable=g-import-not-at-top


def announce(say: Optional[Callable[[str], None]] = None) -> None:
  """Announces the import of TensorFlow, which takes seconds, if it is pending.

  Args:
    say: Called with the message; by default it is printed to standard error.
  """
  if 'tensorflow' in sys.modules:
    return
  if say is None:
    print('Loading TensorFlow ...', file=sys.stderr, flush=True)
  else:
    say('Loading TensorFlow ...')
    sys.stdout.flush()  # Files and pipes are buffered.


def set_runtime(
  settings: settings_lib.Settings,
) -> 'tff.framework.SyncContext | tff.framework.AsyncContext':
  """Sets and returns TFF's default execution context for a run's settings.

  Call it before any other use of TFF, whose own default context reports errors
  if it is still in place when the interpreter exits.
  """
  try:
    _set_threads(settings.threads_per_operation)
    return reuse.set_context(settings.runtime, settings.runtime_options)
  except (runtime.RuntimeFailure, ValueError) as e:
    runtime.set_in_process_context()
    if isinstance(e, ValueError):
      raise errors.SettingsError(f'--runtime={settings.runtime}: {e}') from e
    raise


def _set_threads(count: int) -> None:
  """Sets the threads per operation; warns if it is too late for the default 1.

  Raises:
    SettingsError: If it is too late and `count` is not 1.
  """
  import tensorflow as tf

  threading = tf.config.threading
  try:
    threading.set_intra_op_parallelism_threads(count)
  except RuntimeError as e:
    present = threading.get_intra_op_parallelism_threads()
    told = (
      f'TensorFlow has computed in this process with {present or "as many"} '
      f'threads per operation{"" if present else " as there are cores"} and '
      'cannot change that.'
    )
    if count != 1:
      raise errors.SettingsError(
        f'--threads_per_operation={count}: {told} Start a new process.'
      ) from e
    warnings.warn(
      f'{told} Results depend on it in their last bits; to avoid that, call '
      'tf.config.threading.set_intra_op_parallelism_threads(1) before '
      'TensorFlow is used.',
      stacklevel=2,
    )


def prepare(settings: settings_lib.Settings) -> Optional[tables.RowFile]:
  """Inspects the run's folder, without importing TensorFlow.

  Returns:
    The rows of metrics.csv if the run is finished, else `None`.

  Raises:
    SettingsError: If the folder is not writable, or has a sweep or a run with
      other settings.
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
        f'{folder.path} holds results without the settings file '
        f'{folder.hparams.name}; choose another --experiment_name.'
      )
    return None
  settings_lib.check_same(before['settings'], settings.identity, folder.path)
  metrics = tables.RowFile(folder.metrics)
  if not metrics.rows:
    return None
  last = metrics.rows[-1]
  tested = any(v for name, v in last.items() if name.startswith('test/'))
  over = int(last['round']) == settings.total_rounds or early_stopping.is_over(
    metrics.rows,
    settings.target_metric,
    settings.patience,
    metric_names.merge_directions(
      before.get('metric_directions'), settings.metric_direction
    ),
  )
  return metrics if tested and over else None


def build_trackers(settings: settings_lib.Settings) -> Sequence[hooks_lib.Hook]:
  """Builds the experiment trackers named by --trackers.

  Raises:
    SettingsError: If a name is unknown, or a tracker's package is missing.
  """
  try:
    return trackers.build(settings.trackers)
  except parameters.ParameterError as e:
    raise options_lib.refusal(e) from e


def check_data(settings: settings_lib.Settings) -> None:
  """Checks a run's data before TensorFlow is imported.

  Raises:
    SettingsError: If a file is missing or cannot be used, or the task has too
      few clients.
  """
  with _reading(settings):
    count = tasks.check_data(settings.task, **_task_options(settings))
  if count is not None and settings.configuration.method.has_clients:
    cohorts.check_count('clients_per_round', settings.clients_per_round, count)


def _task_options(settings: settings_lib.Settings) -> dict[str, Any]:
  options = dict(settings.task_options)
  if not settings.configuration.method.has_clients:
    # These apply to a client's data in a round; pooled data are read once.
    no_share = dict(epochs=1, max_elements=None)
    options |= {k: v for k, v in no_share.items() if k in options}
  return options


@contextlib.contextmanager
def _reading(settings: settings_lib.Settings) -> Iterator[None]:
  """Converts errors of tasks and their data to `SettingsError`s."""
  try:
    yield
  except parameters.ParameterError as e:
    named = e.renamed(lambda name: settings_lib.flag_of(settings.task, name))
    raise options_lib.refusal(named) from e
  except (tasks.DataError, tasks.PartitionError) as e:
    raise errors.SettingsError(str(e)) from e
  except tasks.OwnCodeError as e:
    raise errors.SettingsError(f'--task={settings.task}: {e}') from e


def create_task(
  settings: settings_lib.Settings,
) -> 'tff.simulation.baselines.BaselineTask':
  """Creates a run's task, frozen, adapted and split as its settings say.

  Raises:
    SettingsError: If an option or the task's data cannot be used.
  """
  from tff_adaptive import tff_internals

  # TFF has a batch prepared without a seed, to see its shape. Where operations
  # are to be deterministic, TensorFlow refuses that unless there is a global
  # seed.
  seed = randomness.seed_32(settings.seed, 'creating the task')
  tff_internals.set_random_seed(seed, drawn=False)
  from tff_adaptive.lab.training import parts

  options = _task_options(settings)

  def make() -> Any:
    with _reading(settings):
      made = tasks.create(settings.task, **options)
    return made, parts.prepare(made, settings)

  info = tasks.info(settings.task)
  if info.own or info.functions or info.files:
    # Functions and files may change between runs of a notebook.
    created, prepared = make()
  else:
    changed_by = [getattr(settings, name) for name in parts.PREPARED_BY]
    key = (settings.task, info.options, repr(options), *changed_by)
    created, prepared = reuse.task(key, make)
  _check_fitted(settings, created)
  return prepared


def _check_fitted(
  settings: settings_lib.Settings, task: 'tff.simulation.baselines.BaselineTask'
) -> None:
  """Checks that a private run's task computed nothing without noise.

  Raises:
    SettingsError: If its training data name what was `fitted` on them.
  """
  fitted = getattr(task.datasets.train_data, 'fitted', ())
  noise = settings.configuration.values.get('dp_noise_multiplier')
  if fitted and (noise or settings.target_epsilon is not None):
    raise errors.SettingsError(
      'Differential privacy does not cover what '
      f'--task={settings.task} computes from training examples without noise: '
      f'{"; ".join(fitted)}.'
    )


def _noise_of_its_own(settings: settings_lib.Settings) -> list[str]:
  """Describes a private run, whose noise must be none of another one's.

  The difference of two models with the same noise would have none, and neither
  would their losses of privacy add up.
  """
  if not privacy.is_asked(settings.configuration.values):
    return []
  # A run without a target may be extended, and goes on as if it was longer.
  extended = () if settings.target_epsilon is not None else ('total_rounds',)
  own = {k: v for k, v in settings.identity.items() if k not in extended}
  return [json.dumps(own, sort_keys=True, default=str)]


def build(
  settings: settings_lib.Settings,
  task: 'tff.simulation.baselines.BaselineTask',
  *,
  trains: bool = True,
) -> 'parts_lib.Built':
  """Builds the learning process of a run, with its optimizers and ledger.

  Args:
    settings: The run's settings.
    task: The task, as returned by `create_task`.
    trains: Whether rounds are to be run, on the task's clients. Without, there
      is no ledger, and a noise multiplier that follows from a target is any.

  Raises:
    SettingsError: If the method cannot train the task's model.
  """
  from tff_adaptive import adapters
  from tff_adaptive.algorithms import building
  from tff_adaptive.lab.training import parts as parts_lib

  population = len(task.datasets.train_data.client_ids)
  configuration, ledger = settings.configuration, None
  if trains:
    ledger = accounting.open_ledger(settings, population)
    configuration = accounting.with_noise(configuration, ledger)
  elif settings.target_epsilon is not None:
    # Adaptive clipping accepts less than a tenth of a cohort's size.
    noise = min(1.0, 0.05 * settings.clients_per_round)
    configuration = configuration.with_values(dp_noise_multiplier=noise)
  purpose = ('inside rounds', *_noise_of_its_own(settings))
  configuration = configuration.with_values(
    seed=randomness.seed_32(settings.seed, *purpose)
  )
  # The population, for methods that use it, defaults to the task's clients.
  if configuration.values.get('population', 0) is None:
    configuration = configuration.with_values(population=population)
  try:
    _ = configuration.aggregation  # Checks the noise that a target gives.
    components = building.build_components(configuration)
    process = None
    if configuration.method.has_clients:
      process = reuse.process(
        (
          reuse.model_key(settings, task),
          configuration.structure,
          settings.asynchronous,
          settings.runtime,
        ),
        lambda: components.compose(
          task.model_fn, takes_messages=settings.asynchronous
        ),
      )
  except parameters.ParameterError as e:
    raise options_lib.refusal(e) from e
  except (exchange.UnsuitableModelError, adapters.AdapterError) as e:
    raise errors.SettingsError(
      f'--algorithm={settings.algorithm} cannot train --task={settings.task}. '
      f'{e}'
    ) from e
  return parts_lib.Built(ledger, components, process)


def run(
  settings: settings_lib.Settings,
  *,
  say: Callable[[str], None] = print,
  hooks: Sequence[Any] = (),
  pictures: bool = True,
) -> early_stopping.Result:
  """Runs or resumes an experiment.

  Everything is written to `settings.folder`. A finished run is not repeated.

  Args:
    settings: The experiment, from `training.settings` or the command line.
    say: Called with each progress message.
    hooks: Listeners to the run, each a `lab.recording.hooks.Hook` or an object
      with some of its methods; a finished run notifies none.
    pictures: Whether to draw curves, step sizes and the clients' labels at the
      end, which takes about two seconds.

  Returns:
    The run's rows of metrics.csv, and the time it took.

  Raises:
    SettingsError: If the settings cannot be used; nothing is written.
    RunError: If the run cannot continue.
    Stopped: If a signal or a hook stopped it; the last complete round is saved.
  """
  try:
    return _run(settings, say, hooks, pictures)
  except SystemExit as e:
    raise errors.of_exit(e) from e


def _run(
  settings: settings_lib.Settings,
  say: Callable[[str], None],
  hooks: Sequence[Any],
  pictures: bool,
) -> early_stopping.Result:
  """Implements `run`, which converts `SystemExit`."""
  start = time.perf_counter()
  recorders = build_trackers(settings)
  finished = prepare(settings)
  if finished is not None:
    say(f'This run is already finished; its results are in {settings.folder}.')
    folder = files.RunFolder(settings.folder)
    if pictures and not os.path.exists(folder.curves):  # Could not be written.
      _draw_curves(folder, settings, finished.rows)
    return early_stopping.Result(finished.rows, {})
  check_data(settings)
  announce(say)
  from tff_adaptive.lab.training.evaluation import validation
  from tff_adaptive.lab.training.loop import loop
  from tff_adaptive.lab.training.loop import stopping

  signals = stopping.Signals()
  with signals.handled():
    try:
      with signals.interruptible():
        ready = set_up(settings)
    except stopping.Stopped:
      say('Interrupted before training started.')
      raise
    ledger = ready.ledger
    say(ready.formula)
    if ledger is not None:
      say(ledger.describe())
    whose = settings.configuration.method.whose_data(
      settings.clients_per_round, len(ready.clients.client_ids)
    )
    say(
      f'{tasks.short(settings.task)}: {whose}, '
      f'{settings.total_rounds:,} rounds, on the {settings.runtime} runtime; '
      f'ready after {time.perf_counter() - start:.1f} s.'
    )
    for note in getattr(ready.task.datasets.train_data, 'notes', ()):
      say(note)
    described = validation.describe(settings, ready.task.datasets)
    say(f'{described[0].upper()}{described[1:]}.')
    if left_out := ', '.join(dict.fromkeys(ready.evaluator.not_sums)):
      say(
        f'{left_out} does not add up over batches: it is evaluated in one '
        'piece, and has no training column.'
      )
    main = metric_names.main_metric(dict.fromkeys(ready.evaluator.names))
    if metric_names.higher_is_better(main, ready.directions) is None:
      say(
        f'Whether {main} is better when higher or lower is not known, so the '
        'best round is that of the lowest loss; --metric_direction says so.'
      )
    if words := availability.describe(settings):
      say(f'{words[0].upper()}{words[1:]}.')
    progress = progress_lib.Progress(settings.total_rounds)
    watch = early_stopping.PlateauWarning(progress.say, _bounds(settings))
    with files.RunFolder(settings.folder) as folder:
      _write_down(folder, settings, ready)
      results = loop.Training(
        ready,
        folder=folder,
        intervals=loop.Intervals.of(settings),
        progress=progress,
        signals=signals,
        hooks=[watch, *recorders, *hooks],
        patience=settings.patience,
        max_rejected_clients=settings.max_rejected_clients,
      ).run()
      # After the rounds, so that they do not wait for the figures.
      if pictures:
        folder.check_owned()
        with files.writing(folder.path):
          task_figures.draw_partition(
            ready.task.datasets.train_data,
            folder.path,
            title=tasks.short(settings.task),
            task=settings.task,
          )
        _draw_curves(folder, settings, results.rows)
      return results


def _draw_curves(
  folder: files.RunFolder, settings: settings_lib.Settings, rows: Sequence[Any]
) -> None:
  """Draws a run's step sizes and curves, these last."""
  from tff_adaptive.lab.recording.figures import curves

  curves.draw_step_sizes(rows, folder.step_figure, settings.name)
  curves.draw_curves(rows, folder.curves, settings.name)


def _bounds(settings: settings_lib.Settings) -> dict[str, Any]:
  """Returns the hyperparameters that bound clients' step sizes, by name."""
  values = settings.hyperparameters
  names = ('gamma_b', 'max_step_size')
  return {n: values[n] for n in names if values.get(n) is not None}


def _write_down(
  folder: files.RunFolder,
  settings: settings_lib.Settings,
  ready: 'loop_lib.Parts',
) -> None:
  """Writes or updates the run's hparams.json.

  Raises:
    SettingsError: If the folder has a run with other settings or data.
  """
  from tff_adaptive.lab.training.data import fingerprints
  from tff_adaptive.lab.training.evaluation import validation

  # Entries that a resumed run may change, and that are then updated.
  read = reuse.fingerprint(ready.task)
  current: dict[str, Any] = {
    'settings': settings.identity,
    'judged_by': ready.goal.column,
    'metric_directions': metric_names.as_words(ready.directions),
    'data': read,
    'weights': ready.evaluator.weight_names,
  }
  if ready.ledger is not None:
    current['privacy'] = ready.ledger.describe().splitlines()
  # Another process may have written since `prepare`.
  before = folder.read_hparams()
  if before is not None:
    settings_lib.check_same(before['settings'], settings.identity, folder.path)
    fingerprints.check_same(before.get('data'), read, folder.path)
    rounds = before['settings'].get('total_rounds')
    if rounds != settings.total_rounds:
      before = {'first_total_rounds': rounds, **before}
    # As it began: a version with another setting, unset, is no other run.
    total = {'total_rounds': settings.total_rounds}
    current['settings'] = {**before['settings'], **total}
    # Unreadable files have no fingerprint, and would hide a later change.
    current['data'] = read or before.get('data')
    now = {**before, **current}
    if now != folder.read_hparams():
      folder.write_hparams(now)
    return
  division = task_figures.describe_partition(ready.task.datasets.train_data)
  hparams: dict[str, Any] = {
    **current,
    **({} if division is None else {'division': division}),
    'algorithm': ready.formula.splitlines(),
    'evaluation': validation.describe(settings, ready.task.datasets),
    'versions': {
      name: importlib.metadata.version(name)
      for name in ('tensorflow', 'tensorflow-federated', 'numpy')
    },
  }
  with files.writing(folder.path):
    task_figures.save_partition(ready.task.datasets.train_data, folder.path)
  folder.write_hparams(hparams)


def set_up(settings: settings_lib.Settings) -> 'loop_lib.Parts':
  """Loads the data and builds the parts of the run; writes nothing."""
  from tff_adaptive.lab.training import parts as parts_lib

  set_runtime(settings)
  task = create_task(settings)
  cohort_fn = cohorts.cohorts_of(settings, task.datasets.train_data.client_ids)
  built = build(settings, task)
  return parts_lib.make(settings, task, built, cohort_fn, training_data)


def training_data(settings: settings_lib.Settings) -> 'data_lib.ClientDatasets':
  """Builds a run's training clients, in this process or another.

  Args:
    settings: The run's settings.

  Raises:
    SettingsError: If the data are missing or cannot be used.
  """
  from tff_adaptive.lab.training import parts as parts_lib

  return parts_lib.training_data(settings, create_task(settings))
