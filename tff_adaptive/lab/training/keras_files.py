"""Files of weights that Keras wrote, checked before Keras reads them.

HDF5 is more than arrays: a dataset can lie in other files, be put together from
them, or claim a size that nothing of the file has. Keras follows and allocates
all of that. The files that Keras writes have none of it.
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
  """Checks that a file of weights can be given to Keras.

  No array is read; only names, shapes and where arrays are stored.

  Args:
    file: A file of weights or of a model, `.h5` or `.keras`.
    shapes: The shapes of the model's weights.

  Raises:
    DamagedError: If it is none, leads to other files, or holds what no weight
      of the model could be.
    OSError, ValueError, RuntimeError, KeyError, BadZipFile: As h5py and zipfile
      raise them of damaged files.
  """
  if file.stat().st_size > _MOST_BYTES:
    raise errors.DamagedError(f'it has more than {_MOST_BYTES:,} bytes')
  # By their names, as Keras decides it.
  if file.name.endswith('.keras') and zipfile.is_zipfile(file):
    with zipfile.ZipFile(file) as archive:
      size = archive.getinfo(_WEIGHTS).file_size
      if size > _MOST_BYTES:
        raise errors.DamagedError(
          f'{_WEIGHTS} in it inflates to {size:,} bytes'
        )
      with archive.open(_WEIGHTS) as member, h5py.File(member, 'r') as content:
        _check_content(content, shapes)
    return
  if not h5py.is_hdf5(file):
    raise errors.DamagedError('it is no file of Keras, .h5 or .keras')
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
      raise errors.DamagedError(f'the array {name} in it lies in other files')
    # A model's file also has the state of its optimizer, and counts.
    if found.size is not None and found.size > max(most, 1):
      raise errors.DamagedError(
        f'the array {name} in it has the shape {list(found.shape)}, and no '
        'weight of the model is so large'
      )
  # Keras reads all that are listed before it counts them.
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
  """Yields all groups and arrays by name, each once, without leaving the file.

  Raises:
    DamagedError: If a link leads elsewhere than into this file directly.
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
