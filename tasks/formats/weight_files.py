"""Readers of pretrained weights: NumPy archives and safetensors."""

import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Union

import numpy as np
import safetensors.numpy

from tasks.formats import data_files


def find(folder: str, pattern: str, what: str) -> pathlib.Path:
  """Returns the path of the only file in a folder that matches a pattern.

  Args:
    folder: The folder.
    pattern: Glob pattern of the file's name.
    what: Description of the content, for the message.

  Raises:
    DataError: If there is no such folder, or not exactly one match.
  """
  found = sorted(pathlib.Path(folder).glob(pattern))
  if len(found) != 1:
    have = ', '.join(p.name for p in found) or 'none'
    raise data_files.DataError(
      f'The folder {folder} must hold one file {pattern} with {what}; found: '
      f'{have}.'
    )
  return found[0]


def read_npz(path: Union[str, 'os.PathLike[str]']) -> Mapping[str, np.ndarray]:
  """Returns the arrays of a NumPy archive by name.

  Raises:
    DataError: If the file is not a valid archive.
  """
  with data_files.reading(pathlib.Path(path), 'NumPy archive'):
    with zipfile.ZipFile(path) as archive:
      # A small archive can decompress to a huge one.
      inflated = sum(member.file_size for member in archive.infolist())
    data_files.check_size(pathlib.Path(path), inflated)
    with np.load(path, allow_pickle=False) as arrays:
      return {name: arrays[name] for name in arrays.files}


def read_safetensors(path: pathlib.Path) -> Mapping[str, np.ndarray]:
  """Returns the tensors of a safetensors file by name.

  Raises:
    DataError: If the file is damaged or of another format.
  """
  with data_files.reading(path, 'safetensors file'):
    return dict(safetensors.numpy.load_file(path))


def take(
  arrays: Mapping[str, np.ndarray],
  name: str,
  shape: tuple[int, ...],
  path: pathlib.Path,
) -> np.ndarray:
  """Returns the array of a name as float32, checking its shape.

  Raises:
    DataError: If the array is missing or has another shape.
  """
  if name not in arrays:
    raise data_files.DataError(f'{path} has no weights named {name}.')
  if arrays[name].shape != tuple(shape):
    raise data_files.DataError(
      f'{path}: {name} must have the shape {tuple(shape)}, got '
      f'{arrays[name].shape}.'
    )
  return arrays[name].astype(np.float32)
