"""Weights from Keras' files, assigned by the names of layers.

Keras assigns them by their order, which differs if other layers are frozen, or
by the classes of layers. Its files have the names of layers all the same, but
for those of Keras 2 that end in `.keras` or `.weights.h5`.
"""

import collections
import contextlib
import itertools
import pathlib
import re
import tempfile
import warnings
import zipfile
from collections.abc import Collection, Mapping
from typing import Any

import h5py
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import tff_internals

# The member of a .keras archive with the weights.
_WEIGHTS = 'model.weights.h5'
# Groups of a compiled model's file that are no weights.
_NO_WEIGHTS = ('optimizer/', 'metrics/')
# Prefixes of default names of wrapped layers.
_WRAPPED = re.compile('^(forward|backward)_')
# Number of names that a message lists.
_LISTED = 4

Arrays = Mapping[str, h5py.Dataset]


def model_of(model: tff.learning.models.VariableModel, asked: str) -> Any:
  """Returns the Keras model whose weights are those of a model.

  Args:
    model: The model.
    asked: What needs it, for the error.

  Raises:
    SettingsError: If there is none.
  """
  keras_model = tff_internals.keras_model_of(model)
  if keras_model is None:
    raise errors.SettingsError(f'{asked} needs a task with a Keras model.')
  of_keras_3 = models.keras_3_of(model)
  if of_keras_3 is not None and of_keras_3.is_shared:
    raise errors.SettingsError(
      f'{asked} needs a Keras 3 model that keras.models.clone_model can copy: '
      'give models.model_fn a function that builds it, instead.'
    )
  return keras_model


def load(keras_model: Any, file: pathlib.Path) -> None:
  """Loads weights into a model of Keras 2 or 3, by the names of its layers.

  Default names such as 'dense_7' are compared by their order. Reads arrays of
  the expected names and shapes that are in the file itself, and no links.

  Args:
    keras_model: The model.
    file: A file of weights or of a model, `.h5` or `.keras`.

  Raises:
    DamagedError: If it is no such file, or its names or shapes do not agree
      with the model's.
    OSError, ValueError, RuntimeError, KeyError, BadZipFile: As raised by Keras,
      h5py and zipfile for damaged files.
  """
  with contextlib.ExitStack() as stack:
    content = _open(file, stack)
    is_legacy = 'layer_names' in content.attrs
    if is_legacy and models.kind_of(keras_model) == 'keras_3':
      raise errors.DamagedError('it is a file of Keras 2, and the model of 3')
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    # A file of the model itself is filled, so that Keras need read no other.
    filled = str(folder / ('own.h5' if is_legacy else 'own.weights.h5'))
    keras_model.save_weights(filled)
    with h5py.File(filled, 'r+') as own:
      kinds = map(type, tff_internals.layers_of(keras_model))
      _fill(own, content, {kind.__name__.lower() for kind in kinds})
    keras_model.load_weights(filled)


def differences(found: Collection[str], wanted: Collection[str]) -> str:
  """Says which of the wanted names are missing and which others there are."""
  missing, others = (
    ', '.join([*names[:_LISTED], *['...'][: len(names) > _LISTED]]) or 'nothing'
    for names in (
      [name for name in wanted if name not in found],
      [name for name in found if name not in wanted],
    )
  )
  return f'it lacks {missing}, and has {others} that the model has not'


def _open(file: pathlib.Path, stack: contextlib.ExitStack) -> h5py.Group:
  """Opens the group of a file that holds a model's weights."""
  content: Any = file
  # Keras also decides by the file's name.
  if file.name.endswith('.keras') and zipfile.is_zipfile(file):
    archive = stack.enter_context(zipfile.ZipFile(file))
    content = stack.enter_context(archive.open(_WEIGHTS))
  elif not h5py.is_hdf5(file):
    raise errors.DamagedError('it is not a Keras file (.h5 or .keras)')
  root = stack.enter_context(h5py.File(content, 'r'))
  whole = root.get('model_weights', getlink=True)
  return root['model_weights'] if isinstance(whole, h5py.HardLink) else root


def _fill(own: h5py.Group, content: h5py.Group, kinds: set[str]) -> None:
  """Copies the arrays of a file into one of the model's own, by name."""
  (wanted, is_named), (found, others_named) = map(_arrays, (own, content))
  if not (is_named and others_named):
    # By positions among layers of a class, which are the paths.
    wanted, found = (
      {array.name: array for array in arrays.values()}
      for arrays in (wanted, found)
    )
    _check_shapes_tell(wanted)
  if wanted.keys() != found.keys():
    wanted, found = (_numbered_anew(x, kinds) for x in (wanted, found))
  if wanted.keys() != found.keys():
    raise errors.DamagedError(differences(found, wanted))
  for name, array in wanted.items():
    source = found[name]
    if source.external or source.is_virtual:
      raise errors.DamagedError(f'its array {name} is stored in other files')
    if source.shape != array.shape:
      raise errors.DamagedError(
        f'{name} has the shape {list(source.shape)} in it, and '
        f'{list(array.shape)} in the model'
      )
    array[...] = source[...]


def _arrays(root: h5py.Group) -> tuple[Arrays, bool]:
  """Returns a file's arrays by name, and whether it names layers."""
  arrays: dict[str, h5py.Dataset] = {}
  names: dict[str, str] = {}

  def visit(path: str, item: Any) -> None:
    if path.startswith(_NO_WEIGHTS):
      return
    if isinstance(item, h5py.Dataset):
      arrays[path] = item
    elif 'name' in item.attrs:
      names[path.removesuffix('/vars')] = str(item.attrs['name'])

  root.visititems(visit)  # Follows no soft or external links.

  def named(path: str) -> str:
    parts = path.split('/')
    above = itertools.accumulate(parts, '{}/{}'.format)
    return '/'.join(names.get(a, part) for a, part in zip(above, parts))

  by_name = {named(path): array for path, array in arrays.items()}
  if len(by_name) < len(arrays):
    return arrays, False
  return by_name, 'layer_names' in root.attrs or bool(names)


def _check_shapes_tell(arrays: Arrays) -> None:
  """Checks that no two layers have weights of the same shapes; warns.

  Raises:
    DamagedError: If two have.
  """
  layers = collections.defaultdict(list)
  for path, array in arrays.items():
    layers[path.rpartition('/')[0]].append(array.shape)
  if len({*map(tuple, layers.values())}) < len(layers):
    raise errors.DamagedError(
      'it has no names of layers, and several have weights of the same shapes: '
      'with Keras 2, save them under a name that ends in .h5 but not in '
      '.weights.h5'
    )
  warnings.warn(
    'The file has no names of layers; they were matched by their classes and '
    'shapes.',
    stacklevel=2,
  )


def _numbered_anew(arrays: Arrays, kinds: set[str]) -> Arrays:
  """Numbers default names of layers from 0, in the order of their numbers.

  Args:
    arrays: Arrays by name.
    kinds: Names of the layers' classes, in lower case.
  """
  numbers: dict[str, dict[int, str]] = collections.defaultdict(dict)
  for part in {part for name in arrays for part in name.split('/')}:
    base, _, number = part.rpartition('_')
    if not number.isdecimal():
      base, number = part, '0'
    numbers[base][int(number)] = part
  anew = {
    part: f'{base}_{place}' if place else base
    for base, parts in numbers.items()
    if _WRAPPED.sub('', base).replace('_', '') in {*kinds, 'model'}
    for place, (_, part) in enumerate(sorted(parts.items()))
  }
  return {
    '/'.join(anew.get(part, part) for part in name.split('/')): array
    for name, array in arrays.items()
  }
