"""Initial weights of a run's model, drawn or loaded from another model."""

import os
import pathlib
import re
from collections.abc import Callable, Hashable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import tff_internals
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.training import keras_files
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import seeds

# File names of weights exported from Keras 2 and Keras 3.
_EXPORTED = ('weights.h5', 'model.weights.h5')
# Names of model weights in a checkpoint, of any kind of process.
_IN_A_STATE = re.compile(
  r'state/(?:rounds/)?(?:server/)?(?:global_model_weights|weights)/'
  r'(trainable|non_trainable)/([0-9]+)'
)


def draw(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  seed: int,
  key: Hashable = None,
) -> tff.learning.models.ModelWeights:
  """Draws the initial weights of a model.

  The same for all methods: runs of a task with equal seeds start alike.
  Afterwards the generators of Python, NumPy and TensorFlow are in a state that
  follows from the seed.

  Args:
    model_fn: Returns a `tff.learning.models.VariableModel`.
    seed: The run's seed.
    key: The model's `reuse.model_key`, to draw its weights once per seed; None
      to draw them in any case.

  Returns:
    The weights, as arrays.
  """
  found = seeds.seed_32(seed, 'initial weights')

  def drawn() -> tff.learning.models.ModelWeights:
    tff_internals.set_random_seed(found)
    return _arrays_of(model_fn())

  if key is None:
    weights = drawn()
  else:
    weights = reuse.initial_weights((key, found), drawn)
  # Alike whether weights were drawn now or before.
  tff_internals.set_random_seed(found, drawn=False)
  return tf.nest.map_structure(np.copy, weights)


def load(
  model_fn: Callable[[], tff.learning.models.VariableModel], path: pathlib.Path
) -> tff.learning.models.ModelWeights:
  """Loads the initial weights of a model.

  Args:
    model_fn: Returns a `tff.learning.models.VariableModel` around a Keras
      model.
    path: A folder written by `main.py export`, a run's folder, of which the
      last checkpoint is used, or a Keras file of weights or of a model.

  Returns:
    The weights, as arrays.

  Raises:
    SettingsError: If `path` is none of these, or does not fit the model.
  """
  model = model_fn()
  if os.path.isfile(files.RunFolder(path).hparams):
    return _of_run(model, path)
  there = [path, *(path / name for name in _EXPORTED)]
  file = next(filter(os.path.isfile, there), None)
  if file is None:
    raise errors.SettingsError(
      f'--initial_weights={path} is neither an export, nor a run, nor a Keras '
      'file.'
    )
  keras_model = keras_files.model_of(model, f'--initial_weights={path}')
  try:
    files.check_regular(file)
    keras_files.load(keras_model, file)
  # Keras, h5py and zipfile raise exceptions of many types for damaged files.
  except Exception as e:  # pylint: disable=broad-exception-caught
    raise errors.SettingsError(
      f'--initial_weights={path} cannot be loaded into the model of the task: '
      f'{errors.reason(e)}.'
    ) from e
  return _arrays_of(model)


def _arrays_of(
  model: tff.learning.models.VariableModel,
) -> tff.learning.models.ModelWeights:
  weights = tff.learning.models.ModelWeights.from_model(model)
  return tf.nest.map_structure(lambda v: v.numpy(), weights)


def _of_run(
  model: tff.learning.models.VariableModel, path: pathlib.Path
) -> tff.learning.models.ModelWeights:
  """Loads the model weights of a run's last checkpoint."""
  kept = checkpoints.Checkpoints(files.RunFolder(path).checkpoints)
  if not kept.rounds:
    raise errors.SettingsError(f'--initial_weights={path} has no checkpoint.')
  try:
    arrays = checkpoints.read(kept.path(kept.rounds[-1]))
  except (errors.DamagedError, OSError) as e:
    raise errors.SettingsError(
      f'--initial_weights={path} cannot be read: {errors.reason(e)}.'
    ) from e
  there = {
    (match.group(1) != 'trainable', int(match.group(2))): array
    for name, array in arrays.items()
    if (match := _IN_A_STATE.fullmatch(name))
  }
  found = [array for _, array in sorted(there.items(), key=lambda x: x[0])]
  weights = _arrays_of(model)
  here = [np.asarray(w) for w in (*weights.trainable, *weights.non_trainable)]
  names = models.weight_names(model)
  hparams = files.RunFolder(path).read_hparams() or {}
  recorded = hparams.get('weights') or []
  instead = 'export it and give the folder of the export'
  if hparams.get('settings', {}).get('average_last_two'):
    raise errors.SettingsError(
      f'--initial_weights={path} is a run of fedexp, whose model is the mean '
      f'of the last two: {instead}.'
    )
  if sorted(map(str, recorded)) != sorted(names) or len(found) != len(names):
    raise errors.SettingsError(
      f'--initial_weights={path} is a run of another model: '
      f'{keras_files.differences(recorded, names)}. If these are adapters, '
      f'{instead}.'
    )
  count = len(weights.trainable)
  twice = {*names[:count]} & {*names[count:]}
  if twice or (recorded != names and len({*names}) < len(names)):
    raise errors.SettingsError(
      f'--initial_weights={path}: several variables of the model have the same '
      f'name, and frozen ones are in another order: {instead}.'
    )
  chosen = found
  if recorded != names:
    chosen = [found[recorded.index(name)] for name in names]
  for name, array, wanted in zip(names, chosen, here, strict=True):
    if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
      raise errors.SettingsError(
        f'--initial_weights={path} has {name} of the shape '
        f'{list(array.shape)} and dtype {array.dtype}, and the model of the '
        f'task of {list(wanted.shape)} and {wanted.dtype}.'
      )
  return tff.learning.models.ModelWeights(chosen[:count], chosen[count:])
