"""Readers of pretrained weights: NumPy archives and safetensors."""

import json
import math
import os
import pathlib
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import Union

import numpy as np

from tasks.formats import data_errors
from tasks.formats import data_files

# Exceptions of zipfile and NumPy on damaged archives.
_DAMAGE = (
  *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError),
  *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error),
  # NumPy parses the header of an array as Python.
  *(SyntaxError, tokenize.TokenError),
)
_DTYPES = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'I64': '<i8', 'I32': '<i4'}


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
    raise data_errors.DataError(
      f'The folder {folder} must hold one file {pattern} with {what}; found: '
      f'{have}.'
    )
  return found[0]


def read_npz(path: Union[str, 'os.PathLike[str]']) -> Mapping[str, np.ndarray]:
  """Returns the arrays of a NumPy archive by name.

  Raises:
    DataError: If the file is not a valid archive.
  """
  try:
    data_files.check(pathlib.Path(path))
    with zipfile.ZipFile(path) as archive:
      # A small archive can decompress to a huge one.
      inflated = sum(member.file_size for member in archive.infolist())
    data_files.check_size(pathlib.Path(path), inflated)
    with np.load(path, allow_pickle=False) as arrays:
      return {name: arrays[name] for name in arrays.files}
  except data_errors.DataError:
    raise
  except _DAMAGE as e:
    raise data_errors.DataError(
      f'{os.fspath(path)} is no whole NumPy archive: {e}.'
    ) from e


def read_safetensors(path: pathlib.Path) -> Mapping[str, np.ndarray]:
  """Returns the tensors of a safetensors file by name.

  The file has the length of a header as uint64, the header in JSON with dtype,
  shape and offsets of each tensor, then the tensors, all little endian.

  Raises:
    DataError: If the file is truncated, of another format, or has a tensor of
      an unsupported dtype.
  """
  data_files.check(path)
  content = path.read_bytes()
  length = int.from_bytes(content[:8], 'little')
  try:
    header = json.loads(content[8 : 8 + length])
    header.pop('__metadata__', None)
    places = {
      n: (t['dtype'], tuple(map(_count, t['shape'])), *_pair(t['data_offsets']))
      for n, t in header.items()
    }
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
    raise data_errors.DataError(f'{path} is not a safetensors file.') from e
  arrays = {}
  for name, (dtype, shape, begin, end) in places.items():
    if dtype not in _DTYPES:
      raise data_errors.DataError(
        f'{path}: the dtype of {name} must be one of '
        f'{", ".join(_DTYPES)}, got {dtype}.'
      )
    piece = content[8 + length + begin : 8 + length + end]
    expected = np.dtype(_DTYPES[dtype]).itemsize * math.prod(shape)
    if len(piece) != expected:
      raise data_errors.DataError(
        f'{path} is cut short: {name} has {len(piece)} of {expected} bytes.'
      )
    arrays[name] = np.frombuffer(piece, _DTYPES[dtype]).reshape(shape)
  return arrays


def _pair(offsets: list[int]) -> tuple[int, int]:
  begin, end = map(_count, offsets)
  return begin, end


def _count(number: int) -> int:
  if type(number) is not int or number < 0:
    raise ValueError(f'a whole number from 0 was expected, got {number!r}')
  return number


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
    raise data_errors.DataError(f'{path} has no weights named {name}.')
  if arrays[name].shape != tuple(shape):
    raise data_errors.DataError(
      f'{path}: {name} must have the shape {tuple(shape)}, got '
      f'{arrays[name].shape}.'
    )
  return arrays[name].astype(np.float32)
