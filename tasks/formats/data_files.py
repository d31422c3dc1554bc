"""Checks of files that are read into memory, before they are opened."""

import contextlib
import importlib.util
import pathlib
import stat
from collections.abc import Iterator
from typing import Optional

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
