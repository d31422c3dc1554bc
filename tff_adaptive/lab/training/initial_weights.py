"""Initial weights of a run's model, drawn or loaded from another model."""

import pathlib
import re
from collections.abc import Callable, Collection, Hashable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import tff_internals
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import seeds

# The file of an export that holds weights by their names.
EXPORTED = 'weights.safetensors'
# Number of names that a message lists.
_LISTED = 4
# Names of model weights in a checkpoint, of any kind of process.
_IN_A_STATE = re.compile(
  r'state/(?:server/)?(?:global_model_weights|weights)/'
  r'(trainable|non_trainable)/([0-9]+)'
)

# The function that last built a model here, and the number of traced processes
# then.
_last: tuple[Any, int] = (None, -1)


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
  global _last
  now = model_fn, reuse.traces()
  if not built and _last != now:
    # Composing a process builds models in graphs, by which Keras makes models
    # that were built eagerly unusable, such as the evaluator's, until another
    # one is built eagerly.
    model_fn()
  _last = now
  # Alike whether weights were drawn now or before.
  tff_internals.set_random_seed(found, drawn=False)
  return tf.nest.map_structure(np.copy, weights)


def load(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  path: pathlib.Path,
  seed: int = 0,
) -> tff.learning.models.ModelWeights:
  """Loads the initial weights of a model, by their names.

  Args:
    model_fn: Returns a `tff.learning.models.VariableModel`.
    path: A folder written by `main.py export`, a run's folder, of which the
      last checkpoint is used, or a safetensors file. If it has no adapters,
      those of the model are drawn.
    seed: The run's seed.

  Returns:
    The weights, as arrays.

  Raises:
    SettingsError: If `path` is none of these, or does not fit the model.
  """
  model = model_fn()
  weights = draw(model_fn, seed)
  wanted = (*weights.trainable, *weights.non_trainable)
  names = models.weight_names(model)
  try:
    found = _read(path)
    if isinstance(model, adapters.AdaptedModel):
      drawn = dict(zip(names, wanted, strict=True))
      for name in drawn.keys() - {*models.weight_names(model.unfrozen)}:
        found.setdefault(name, drawn[name])
    if len({*names}) < len(names):
      raise errors.DamagedError('variables of the model share a name')
    if found.keys() != {*names}:
      raise errors.DamagedError(
        f'it lacks {_listed({*names} - found.keys())}, and has '
        f'{_listed(found.keys() - {*names})} that the model has not'
      )
    for name, array in zip(names, wanted, strict=True):
      if (found[name].shape, found[name].dtype) != (array.shape, array.dtype):
        raise errors.DamagedError(
          f'{name} has the shape {list(found[name].shape)} and dtype '
          f'{found[name].dtype} in it, and {list(array.shape)} and '
          f'{array.dtype} in the model'
        )
  except (errors.DamagedError, OSError) as e:
    raise errors.SettingsError(
      f'--initial_weights={path} cannot be loaded into the model of the task: '
      f'{errors.reason(e)}.'
    ) from e
  count = len(weights.trainable)
  chosen = [found[name] for name in names]
  return tff.learning.models.ModelWeights(chosen[:count], chosen[count:])


def _listed(names: Collection[str]) -> str:
  return ', '.join(sorted(names)[:_LISTED]) or 'nothing'


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads weights by name from an export, a run or a file."""
  folder = files.RunFolder(path)
  if not folder.hparams.is_file():
    return checkpoints.load(path / EXPORTED if path.is_dir() else path)[1]
  kept = checkpoints.Checkpoints(folder.checkpoints)
  if not kept.rounds:
    raise errors.DamagedError('the run has no checkpoint yet')
  there = {
    (match.group(1) != 'trainable', int(match.group(2))): array
    for name, array in checkpoints.read(kept.path(kept.rounds[-1])).items()
    if (match := _IN_A_STATE.fullmatch(name))
  }
  names = (folder.read_hparams() or {}).get('weights')
  if not isinstance(names, list) or len({*names}) != len(there):
    raise errors.DamagedError(
      'the run does not name its weights; export it and give that folder'
    )
  return {n: there[place] for n, place in zip(names, sorted(there))}


def _arrays_of(
  model: tff.learning.models.VariableModel,
) -> tff.learning.models.ModelWeights:
  weights = tff.learning.models.ModelWeights.from_model(model)
  return tf.nest.map_structure(lambda v: v.numpy(), weights)
