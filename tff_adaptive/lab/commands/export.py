"""`main.py export`: a run's model as Keras files and a SavedModel."""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Optional

import numpy as np

import tasks
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.flags import resolving
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training.loop import early_stopping
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

USAGE = """export RUN DIR

Exports the model of RUN to the new folder DIR: Keras weights, a SavedModel and,
for Keras 3 models, a .keras file. None of them needs TensorFlow Federated.
        """

# Settings that a run must have recorded.
_NEEDED = frozenset(
  {'task', 'algorithm', 'total_rounds', 'clients_per_round', 'seed', 'runtime'}
)


def build_options() -> options_lib.Options:
  """Builds the flags of `main.py export`."""
  return options_lib.Options(
    parameters.Parameter(
      'cache_dir',
      str,
      None,
      "Folder with the task's data files; only needed if the model depends on "
      'the data.',
    ),
    parameters.Parameter(
      'which',
      Literal['last', 'best', 'ema'],
      'last',
      'Model to export: of the last checkpoint, of the best round on '
      'validation data, or the moving average of --ema_decay.',
    ),
    parameters.Parameter(
      'diverged',
      bool,
      False,
      'Whether to export a model with weights that are not finite.',
    ),
    parameters.Parameter(
      'task',
      str,
      None,
      'User-defined task of the run, MODULE:FUNCTION, as in training. User '
      'code named in a run is only called if it is confirmed here.',
    ),
    parameters.Parameter(
      'model',
      str,
      None,
      'The same for a run with a user-defined model.',
    ),
  )


def _check_code(run: results.Run, agreed: Mapping[str, Optional[str]]) -> None:
  """Checks that the user approves of external code named by a run.

  A run's folder may come from an untrusted source, so functions that it names
  are called only if the user names them too.

  Args:
    run: The run.
    agreed: Functions named by the user, 'MODULE:FUNCTION' by flag.

  Raises:
    SettingsError: If the run's and the user's functions differ.
  """
  task = run.settings['task']
  described = tasks.info(task)
  named = {'task': task} if described.own else {}
  for option in described.functions:
    flag = settings_lib.flag_of(task, option)
    if run.settings.get(flag) is not None:
      named[flag] = run.settings[flag]
  for flag, place in agreed.items():
    if place is not None and flag not in named:
      raise errors.SettingsError(
        f'--{flag}={place} is only for runs with a user-defined task or model, '
        f'and {run.path} has none: omit the flag.'
      )
  for flag, place in named.items():
    if agreed.get(flag) == place:
      continue
    prefix = f'{tasks.short(task)}_'
    options = ', '.join(
      f'{name}={value!r:.200}'
      for name, value in run.settings.items()
      if flag == 'task' and name.startswith(prefix)
    )
    given = f' with {options}' if options else ''
    raise errors.SettingsError(
      f'{run.path} was trained with {place!s:.200}, which is no part of this '
      "program, and what a run's folder names is not called unasked. If you "
      f'trust that function{given}, give --{flag}={place!s:.200}.'
    )


def settings_of(
  run: results.Run, *, task: Optional[str] = None, model: Optional[str] = None
) -> settings_lib.Settings:
  """Reads a run's settings from its hparams.json.

  Args:
    run: The run.
    task: The run's task, 'MODULE:FUNCTION', if it is external code.
    model: The function of the run's model, likewise.

  Raises:
    SettingsError: If they are of an incompatible version of the program, or
      name external code that `task` and `model` do not.
  """
  known = {k: v for k, v in run.settings.items() if v is not None}
  if lacking := _NEEDED - known.keys():
    raise errors.SettingsError(
      f'{run.path} was written by another version of tff-adaptive: its '
      f'settings lack {min(lacking)!r}.'
    )
  # The same model, which computes in the precision of its weights.
  known.pop('mixed_precision', None)
  if 'target_epsilon' in known:
    known.pop('dp_noise_multiplier', None)  # Calibrated to it.
  for side in optimizers.SIDES:
    if known.get(f'{side}_optimizer') not in optimizers.names(side):
      known.pop(f'{side}_optimizer', None)  # A method's own.
  given = {
    # Earlier versions had no other split, and record all examples as `None`.
    'validation_split': 'test',
    'num_validation_examples': -1,
    **known,
    # Private runs need it to test clients; it is not recorded.
    'evaluate_clients_under_dp': {'evaluate_clients', 'dp_sampling'}
    <= known.keys(),
    'runtime': 'in_process',  # Nothing is trained.
    'root_output_dir': str(run.path.resolve().parent),
    'experiment_name': run.path.resolve().name,
  }
  try:
    _check_code(run, dict(task=task, model=model))
    return resolving.settings(**given)
  except ValueError as e:
    raise errors.SettingsError(
      f'{run.path} was written by another version of tff-adaptive: {e}'
    ) from e


def export(
  path: pathlib.Path,
  target: pathlib.Path,
  cache_dir: Optional[str] = None,
  which: str = 'last',
  *,
  diverged: bool = False,
  task: Optional[str] = None,
  model: Optional[str] = None,
) -> Mapping[str, Any]:
  """Exports a run's model for use without TFF.

  Code named by the run's files is imported or called only if `task` or `model`
  names it too.

  Args:
    path: The run's folder.
    target: The folder to create, with `saved_model/`, `export.json` and
      `weights.h5`, or `model.keras` and `model.weights.h5` of a Keras 3 model.
    cache_dir: Folder of the task's data, if its model depends on them. Other
      models are built from synthetic data of the same shapes by default.
    which: 'last', 'best' or 'ema', as --which.
    diverged: Whether to export a model with weights that are not finite.
    task: 'package.module:function', if the run's task is external code.
    model: The function of the run's model, likewise.

  Returns:
    The content of export.json: the model's origin, how to load it, and its
    `results`. These are the run's measures for 'last'; numbers of metrics.csv
    by column for 'best' (`train/` and `validation/` of the exported round) and
    'ema' (`ema/` and `test_ema/` of the last evaluation), and the averages' for
    a 'best' that they were judged by.

  Raises:
    SettingsError: If there is no model to export, or `target` is not usable;
      then nothing is written.
    RunError: If `target` cannot be written.
  """
  run = results.load(path)
  if os.path.exists(target) and target.samefile('.'):
    raise errors.SettingsError(
      f'{target} is the current folder, in whose place the export would be '
      'put; give a new folder.'
    )
  if os.path.exists(target) and (not target.is_dir() or any(target.iterdir())):
    raise errors.SettingsError(f'{target} already exists; give a new folder.')
  if formatting.printable(str(target)) != str(target):
    raise errors.SettingsError(
      f'The name of {target} is not UTF-8, without which TensorFlow writes no '
      'SavedModel; give another folder.'
    )
  files.check_writable(target, 'DIR')
  settings = settings_of(run, task=task, model=model)
  experiment.announce()
  options = dict(settings.task_options)
  elsewhere: dict[str, Any] = dict(cache_dir=cache_dir)
  info = tasks.info(settings.task)
  if cache_dir is None and not info.model_from_data:
    elsewhere['data'] = 'synthetic'
  options |= {k: v for k, v in elsewhere.items() if k in options}
  settings = dataclasses.replace(settings, task_options=options)
  round_number, trained = _restore(settings, files.RunFolder(path), which)
  run = _up_to(run, round_number)
  if not diverged:
    _check_finite(trained, run, which)
  # pylint: disable=g-import-not-at-top
  from tff_adaptive import tff_internals
  from tff_adaptive.lab.commands import saved_models

  described: dict[str, Any] = {
    'task': settings.task,
    'method': run.method,
    'round': round_number,
    'which': which,
    'run': str(path.resolve()),
    'results': _results(run, which),
  }
  aside = target.with_name(f'.{target.name}.{os.getpid()}')
  try:
    aside.mkdir(parents=True)
    _reserve(aside / 'reserved', trained)
    described |= saved_models.write(
      tff_internals.keras_model_of(trained),
      aside,
      task=settings.task,
      logits=tff_internals.ends_in_logits(trained),
    )
    text = json.dumps(described, indent=2) + '\n'
    files.write_atomically(aside / 'export.json', text.encode('utf-8'))
    if target.is_dir():
      target.rmdir()
    os.replace(aside, target)
  except (OSError, tf.errors.OpError) as e:
    reason = getattr(e, 'strerror', None) or errors.reason(e)
    raise errors.RunError(f'{target} cannot be written: {reason}.') from e
  finally:
    shutil.rmtree(aside, ignore_errors=True)
  return described


def _up_to(run: results.Run, round_number: int) -> results.Run:
  """Returns a run until the exported round.

  One that was killed may have rows of rounds after its last checkpoint.
  """
  rows = [row for row in run.rows if row['round'] <= round_number]
  return dataclasses.replace(run, rows=rows)


def _results(run: results.Run, which: str) -> dict[str, float]:
  """Returns the results of the exported model, as `export` describes them.

  Args:
    run: The run, `_up_to` the exported round.
    which: As for `export`.
  """
  if which == 'last':
    return run.measures()
  hparams = files.RunFolder(run.path).read_hparams() or {}
  averaged = which == 'ema' or f'{hparams.get("judged_by")}'.startswith('ema/')
  groups = ('ema/', 'test_ema/') if averaged else ('train/', 'validation/')
  rows = (
    {name: value for name, value in row.items() if name.startswith(groups)}
    for row in reversed(run.rows)
  )
  return next(filter(None, rows), {})


def _reserve(file: pathlib.Path, model: Any) -> None:
  """Raises `OSError` unless a folder has room for a model.

  TensorFlow crashes where a disk is full. A model is written up to three times,
  beside its graph.

  Args:
    file: A file of the folder, which is written and deleted.
    model: The model.
  """
  weights = [*model.trainable_variables, *model.non_trainable_variables]
  size = sum(3 * np.asarray(w).nbytes + 2**16 for w in weights) + 2**16
  with open(file, 'wb') as reserved:
    for begin in range(0, size, 2**20):
      reserved.write(bytes(min(2**20, size - begin)))
  file.unlink()


def _check_finite(model: Any, run: results.Run, which: str) -> None:
  """Raises `SettingsError` if training diverged: weights or the last loss."""
  weights = [*model.trainable_variables, *model.non_trainable_variables]
  arrays = [np.asarray(w) for w in weights]
  finite = all(np.isfinite(a).all() for a in arrays if a.dtype.kind == 'f')
  if finite and (
    which != 'last' or not any(map(early_stopping.diverged, run.rows[-1:]))
  ):
    return
  raise errors.SettingsError(
    f'{run.path} has diverged: its weights or its training loss are not '
    'finite. Train with a lower learning rate, or export the best round by '
    '--which=best; to export it nevertheless, give --diverged.'
  )


def _restore(
  settings: settings_lib.Settings, folder: files.RunFolder, which: str
) -> tuple[int, Any]:
  """Restores the exported round; returns its number and its model."""
  # pylint: disable=g-import-not-at-top

  from tff_adaptive import adapters
  from tff_adaptive.lab.recording import best
  from tff_adaptive.lab.recording import checkpoints
  from tff_adaptive.lab.recording import records
  from tff_adaptive.lab.training import keras_files
  from tff_adaptive.lab.training import parts
  from tff_adaptive.lab.training import reuse
  from tff_adaptive.lab.training.data import fingerprints

  experiment.set_runtime(settings)
  task = experiment.create_task(settings)
  if tasks.info(settings.task).model_from_data:
    # Scaling, classes and vocabulary depend on the data.
    hparams = folder.read_hparams() or {}
    fingerprints.check_same(
      hparams.get('data'), reuse.fingerprint(task), folder.path
    )
  # The task may have other clients, as its files may be elsewhere.
  built = experiment.build(settings, task, trains=False)
  # After the process, whose models in graphs would change this one.
  model = task.model_fn()
  keras_files.model_of(model, f'Exporting {folder.path}')
  initial = tff.learning.models.ModelWeights.from_model(model)
  rounds: Any = parts.build_rounds(settings, task.model_fn, built, initial)
  if which == 'ema' and settings.ema_decay is None:
    raise errors.SettingsError(
      f'{folder.path} has no averaged model: it ran without --ema_decay.'
    )
  kept = checkpoints.Checkpoints(folder.checkpoints, run=folder.identity)
  try:
    found = kept.load_latest(rounds.program_state, row_sums=records.ROW_SUMS)
  except errors.RunError as e:
    if not isinstance(e.__cause__, checkpoints.OtherStateError):
      raise
    raise errors.SettingsError(
      f'The state of {folder.path} does not fit the model of the task '
      f'{settings.task} as it is built here ({errors.reason(e.__cause__)}); '
      'if it depends on data, give --cache_dir, so that it is built as it was '
      'trained.'
    ) from e
  if found is None:
    raise errors.SettingsError(
      f'{folder.path} has no checkpoint, and thus no model to export.'
    )
  # Client states are no part of the model, and may have been moved.
  rounds.restore_model(found.state)
  round_number, weights = found.round_number, rounds.model_weights()
  if which == 'best':
    weights = tf.nest.map_structure(np.asarray, weights)
    round_number = _best_round(folder, round_number)
    weights = best.load(
      folder.checkpoints, folder.identity, weights, round_number
    )
  elif which == 'ema':
    weights = rounds.models('validation')['ema']
  weights.assign_weights_to(model)
  if isinstance(model, adapters.AdaptedModel):
    model = model.merge()
  return round_number, model


def _best_round(folder: files.RunFolder, last_round: int) -> int:
  """Finds the best round by the run's most recent goal.

  Args:
    folder: The run's folder.
    last_round: Round of its last checkpoint.

  Raises:
    RunError: If the model of that round was not saved.
  """
  from tff_adaptive.lab.recording import best  # pylint: disable=g-import-not-at-top

  hparams = folder.read_hparams() or {}
  judged_by = str(hparams.get('judged_by'))
  rows = tables.RowFile(folder.metrics).numbers
  directions = metric_names.merge_directions(hparams.get('metric_directions'))
  return best.round_of(
    folder.checkpoints, rows, judged_by, last_round, directions
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py export RUN DIR`; returns the exit code."""
  values, words = build_options().read(arguments)
  if len(words) != 2:
    raise errors.SettingsError(
      'export takes two arguments, the folder of a run and a new folder, got '
      f'{" ".join(words) or "nothing"}.'
    )
  run, target = map(pathlib.Path, words)
  described = export(run, target, **values)
  model = target / 'saved_model'
  print(
    f'{described["method"]} on {described["task"]} after round '
    f'{described["round"]}: {model} and '
    f'{" and ".join(str(target / name) for name in described["keras"])}.\n'
    f'Load it with tf.saved_model.load({str(model)!r}).signatures['
    "'serving_default']; no TensorFlow Federated is needed. "
    f'{target / "export.json"} says what goes in and what comes out.'
  )
  return 0
