"""Validation of Keras' weight files before Keras reads them.

An HDF5 dataset can be stored in other files, be assembled from them, or declare
a size that the file does not contain. Keras would follow such links and
allocate such arrays, although the files that it writes never have any.
"""

import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from tff_adaptive import errors

# The member of a .keras archive with the weights.
_WEIGHTS = 'model.weights.h5'
# CuDNN's recurrent layers, which Keras converts, have two biases for one.
_MOST_PER_WEIGHT = 2
_MOST_BYTES = 4 * 2**30


def check(file: pathlib.Path, shapes: list[tuple[int, ...]]) -> None:
  """Checks that Keras can safely load a file of weights.

  Reads the names, shapes and locations of arrays, but no array.

  Args:
    file: A file of weights or of a model, `.h5` or `.keras`.
    shapes: Shapes of the model's weights.

  Raises:
    DamagedError: If it is no such file, refers to other files, or has arrays
      that are larger or more than the model's weights.
    OSError, ValueError, RuntimeError, KeyError, BadZipFile: As raised by h5py
      and zipfile for damaged files.
  """
  if file.stat().st_size > _MOST_BYTES:
    raise errors.DamagedError(f'it has more than {_MOST_BYTES:,} bytes')
  # Keras also decides by the file's name.
  if file.name.endswith('.keras') and zipfile.is_zipfile(file):
    with zipfile.ZipFile(file) as archive:
      size = archive.getinfo(_WEIGHTS).file_size
      if size > _MOST_BYTES:
        raise errors.DamagedError(f'{_WEIGHTS} in it expands to {size:,} bytes')
      with archive.open(_WEIGHTS) as member, h5py.File(member, 'r') as content:
        _check_content(content, shapes)
    return
  if not h5py.is_hdf5(file):
    raise errors.DamagedError('it is not a Keras file (.h5 or .keras)')
  with h5py.File(file, 'r') as content:
    _check_content(content, shapes)


def _check_content(content: h5py.File, shapes: list[tuple[int, ...]]) -> None:
  """Checks all links and arrays of a file."""
  sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
  most = _MOST_PER_WEIGHT * max(sizes, default=0)
  for name, found in _objects(content):
    if not isinstance(found, h5py.Dataset):
      continue
    if found.external or found.is_virtual:
      raise errors.DamagedError(f'its array {name} is stored in other files')
    # A model's file also has its optimizer's state, including counters.
    if found.size is not None and found.size > max(most, 1):
      raise errors.DamagedError(
        f'the array {name} in it has the shape {list(found.shape)}, and no '
        'weight of the model is so large'
      )
  # Keras reads all listed arrays before it checks their number.
  root = content
  if 'layer_names' not in root.attrs and 'model_weights' in root:
    root = root['model_weights']
  listed = sum(
    len(value)
    for group in root.values()
    if isinstance(group, h5py.Group)
    for name, value in group.attrs.items()
    if name.startswith('weight_names') and np.ndim(value)
  )
  if listed > _MOST_PER_WEIGHT * len(shapes):
    raise errors.DamagedError(
      f'it lists {listed:,} arrays, and the model has {len(shapes):,} weights'
    )


def _objects(content: h5py.File) -> Iterator[tuple[str, Any]]:
  """Yields (name, object) of all groups and arrays of a file, each once.

  Raises:
    DamagedError: If a link is not a hard link into this file.
  """
  waiting: list[tuple[str, Any]] = [('', content)]
  seen = set()
  while waiting:
    name, found = waiting.pop()
    address = h5py.h5o.get_info(found.id).addr
    if address in seen:
      continue
    seen.add(address)
    yield name, found
    if isinstance(found, h5py.Group):
      for key in found:
        if not isinstance(found.get(key, getlink=True), h5py.HardLink):
          raise errors.DamagedError(
            f'{name}/{key} in it is a link to another place or file'
          )
        waiting.append((f'{name}/{key}', found[key]))
