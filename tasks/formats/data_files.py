"""Files that are read into memory: what they must be before they are opened."""

import importlib.util
import pathlib
import stat

from tasks.formats import data_errors

# The largest real one is less than a tenth of it.
MAX_BYTES = 4 << 30


def check(path: pathlib.Path, get: str = '') -> int:
  """Looks at a file without opening it; returns its size.

  A pipe would be waited for, and a device read without end.

  Args:
    path: The file, or a link to it.
    get: How to get the file.

  Raises:
    OSError: If it is not there, or cannot be looked at.
    DataError: If it is neither a file nor a folder, which opening tells, or is
      too large.
  """
  status = path.stat()
  if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
    raise data_errors.DataError(
      f'{path} is a pipe or a device, not a file. {get}'.rstrip()
    )
  check_size(path, status.st_size, get)
  return status.st_size


def of_sklearn(name: str, task: str) -> pathlib.Path:
  """Returns a data file that scikit-learn brings along.

  Found without importing scikit-learn, which takes a second.

  Args:
    name: The file.
    task: The task that reads it, for the error.

  Raises:
    DataError: If scikit-learn is not installed.
  """
  package = importlib.util.find_spec('sklearn')
  if package is None or package.origin is None:
    raise data_errors.DataError(
      f'The task {task} reads a file of scikit-learn, which is not installed: '
      'pip install scikit-learn.'
    )
  return pathlib.Path(package.origin).parent / 'datasets' / 'data' / name


def check_size(path: pathlib.Path, size: int, get: str = '') -> None:
  """Raises `DataError` if so many bytes are more than any real file has."""
  if size > MAX_BYTES:
    raise data_errors.DataError(
      f'{path} holds {size >> 20:,} MiB, and at most {MAX_BYTES >> 20:,} are'
      f' read into memory. {get}'.rstrip()
    )
