"""Initial weights of a run's model, drawn or loaded from another model."""

import pathlib
import re
from collections.abc import Callable
from collections.abc import Hashable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
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

  built = []

  def drawn() -> tff.learning.models.ModelWeights:
    tff_internals.set_random_seed(found)
    built.append(model_fn())
    return _arrays_of(built[0])

  if key is None:
    weights = drawn()
  else:
    weights = reuse.initial_weights((key, found), drawn)
  if not built:
    # Composing a process builds models in graphs, by which Keras makes models
    # that were built eagerly unusable, such as the evaluator's, until another
    # one is built eagerly.
    model_fn()
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
  if files.RunFolder(path).hparams.is_file():
    return _of_run(model, path)
  there = [path / name for name in _EXPORTED] if path.is_dir() else [path]
  file = next((file for file in there if file.is_file()), None)
  if file is None:
    raise errors.SettingsError(
      f'--initial_weights={path} is neither an export, nor a run, nor a Keras '
      'file.'
    )
  keras_model: Any = tff_internals.keras_model_of(model)
  if keras_model is None:
    raise errors.SettingsError(
      f'--initial_weights={path} needs a task with a Keras model.'
    )
  try:
    keras_files.check(file, [tuple(w.shape) for w in keras_model.weights])
    keras_model.load_weights(str(file))
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
    raise errors.SettingsError(
      f'--initial_weights={path} has no checkpoint yet.'
    )
  try:
    arrays = checkpoints.read(kept.path(kept.rounds[-1]))
  except (errors.DamagedError, OSError) as e:
    raise errors.SettingsError(
      f'--initial_weights={path} cannot be read: {errors.reason(e)}.'
    ) from e
  found: dict[str, dict[int, np.ndarray]] = {
    'trainable': {},
    'non_trainable': {},
  }
  for name, array in arrays.items():
    if match := _IN_A_STATE.fullmatch(name):
      found[match.group(1)][int(match.group(2))] = array
  here = _arrays_of(model)
  parts = [[group[i] for i in sorted(group)] for group in found.values()]
  wanted = [here.trainable, here.non_trainable]
  if [[w.shape for w in p] for p in parts] != [
    [np.shape(w) for w in p] for p in wanted
  ]:
    raise errors.SettingsError(
      f'--initial_weights={path} is a run with another model or other frozen '
      'variables; export it and give the folder of the export.'
    )
  for part, there in zip(parts, wanted, strict=True):
    for array, weight in zip(part, there, strict=True):
      if array.dtype != np.asarray(weight).dtype:
        raise errors.SettingsError(
          f'--initial_weights={path} holds weights of the dtype {array.dtype}, '
          f'and the model of the task has {np.asarray(weight).dtype}.'
        )
  return tff.learning.models.ModelWeights(*parts)
