"""Files that are read into memory: their checks, and pretrained weights."""

import contextlib
import importlib.util
import json
import os
import pathlib
import stat
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union

import numpy as np
import safetensors.numpy

# Endings of files that pyarrow reads.
ARROW = ('.parquet', '.arrow', '.feather')
# Maximum size in bytes, over ten times the largest real file.
MAX_BYTES = 4 << 30


def cache_folder(cache_dir: Optional[str]) -> pathlib.Path:
  """Returns `cache_dir`, or by default TFF's own folder."""
  return pathlib.Path(cache_dir or '~/.tff').expanduser()


def check(path: pathlib.Path, get: str = '') -> int:
  """Checks a file without opening it; returns its size in bytes.

  Opening a pipe would block, and a device has no end.

  Args:
    path: The file, or a link to it.
    get: Advice for the error message how to get the file.

  Raises:
    OSError: If it does not exist or is not accessible.
    DataError: If it is too large, or neither a file nor a folder (opening
      reports folders).
  """
  status = path.stat()
  if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
    raise DataError(f'{path} is a pipe or a device, not a file. {get}'.rstrip())
  check_size(path, status.st_size, get)
  return status.st_size


@contextlib.contextmanager
def reading(path: pathlib.Path, what: str, get: str = '') -> Iterator[None]:
  """Checks a file, and converts errors of the reader in the block.

  Args:
    path: The file.
    what: Description of a whole file, such as 'CSV file'.
    get: Advice for the error message how to get the file.

  Raises:
    DataError: If the file is missing or `check` refuses it, or for any error in
      the block: libraries raise errors of many classes on damaged files.
  """
  try:
    check(path, get)
    yield
  except DataError:
    raise
  except FileNotFoundError as e:
    raise DataError(f'There is no file {path}. {get}'.rstrip()) from e
  except Exception as e:
    told = (str(e).splitlines() or [type(e).__name__])[0].rstrip('.')
    if isinstance(e, UnicodeDecodeError):
      told = f'save it as UTF-8 ({told})'
    raise DataError(f'{path} is no whole {what}: {told}. {get}'.rstrip()) from e


def of_sklearn(name: str, task: str) -> pathlib.Path:
  """Returns the path of a data file that is part of scikit-learn.

  Does not import scikit-learn, which takes a second.

  Args:
    name: Name of the file.
    task: Name of the task that reads it, for the error.

  Raises:
    DataError: If scikit-learn is not installed.
  """
  package = importlib.util.find_spec('sklearn')
  if package is None or package.origin is None:
    raise DataError(
      f'The task {task} needs scikit-learn, which is not installed: pip '
      'install scikit-learn.'
    )
  return pathlib.Path(package.origin).parent / 'datasets' / 'data' / name


def check_size(path: pathlib.Path, size: int, get: str = '') -> None:
  """Raises `DataError` if a size in bytes exceeds that of any real file."""
  if size > MAX_BYTES:
    raise DataError(
      f'{path} holds {size >> 20:,} MiB, and at most {MAX_BYTES >> 20:,} are'
      f' read into memory. {get}'.rstrip()
    )


def missing_arrow() -> str:
  """Explains how to install pyarrow; empty if it is installed."""
  if importlib.util.find_spec('pyarrow') is not None:
    return ''
  return (
    'pyarrow reads this, which is not installed: pip install --no-deps -r '
    'requirements-data.txt, or pip install pyarrow'
  )


class DataError(ValueError):
  """Raised if a data file is missing or not what the task expects.

  The message names the file, what was expected there and how to get it.
  """


class PartitionError(ValueError):
  """Raised if the examples cannot be partitioned as requested."""


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
    raise DataError(
      f'The folder {folder} must hold one file {pattern} with {what}; found: '
      f'{have}.'
    )
  return found[0]


def read_npz(path: Union[str, 'os.PathLike[str]']) -> Mapping[str, np.ndarray]:
  """Returns the arrays of a NumPy archive by name.

  Raises:
    DataError: If the file is not a valid archive.
  """
  with reading(pathlib.Path(path), 'NumPy archive'):
    with zipfile.ZipFile(path) as archive:
      # A small archive can decompress to a huge one.
      inflated = sum(member.file_size for member in archive.infolist())
    check_size(pathlib.Path(path), inflated)
    with np.load(path, allow_pickle=False) as arrays:
      return {name: arrays[name] for name in arrays.files}


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Returns the object in a JSON file.

  Raises:
    DataError: If the file is missing or has something else.
  """
  with reading(path, 'JSON file'):
    found = json.loads(path.read_text(encoding='utf-8'))
  if not isinstance(found, dict):
    raise DataError(f'{path}: an object of JSON was expected.')
  return found


def read_safetensors(path: pathlib.Path) -> Mapping[str, np.ndarray]:
  """Returns the tensors of a safetensors file by name.

  Raises:
    DataError: If the file is damaged or of another format.
  """
  with reading(path, 'safetensors file'):
    return dict(safetensors.numpy.load_file(path))


def check_labels(
  path: pathlib.Path, labels: np.ndarray, num_classes: int, get: str
) -> None:
  """Raises `DataError` for the first unsigned label that is out of range."""
  wrong = np.flatnonzero(labels >= num_classes)
  if len(wrong):
    raise DataError(
      f'{path}, record {wrong[0]}: a label below {num_classes} was expected, '
      f'got {labels[wrong[0]]}. {get}'
    )


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
    raise DataError(f'{path} has no weights named {name}.')
  if arrays[name].shape != tuple(shape):
    raise DataError(
      f'{path}: {name} must have the shape {tuple(shape)}, got '
      f'{arrays[name].shape}.'
    )
  return arrays[name].astype(np.float32)
