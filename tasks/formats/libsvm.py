"""Reader of LIBSVM's text format: lines of a label and non-zero features."""

import pathlib

import numpy as np

from tasks.formats import data_errors
from tasks.formats import data_files


def read(
  path: pathlib.Path, *, num_features: int, get: str
) -> tuple[np.ndarray, np.ndarray]:
  """Reads a file of two classes.

  Args:
    path: The file: lines `label index:value ...`, indices from 1, ascending.
    num_features: Number of features; the largest valid index.
    get: Advice for the error message how to get the file.

  Returns:
    Features float32 [examples, num_features], and labels float32 [examples]: 1
    for the larger of the file's two labels, 0 for the smaller.

  Raises:
    DataError: If the file is missing, has a line of another form, or does not
      have exactly two labels.
  """
  # It takes a second to import.
  from sklearn import datasets  # pylint: disable=g-import-not-at-top

  try:
    data_files.check(path, get)
    with open(path, 'rb') as file:
      sparse, labels = datasets.load_svmlight_file(
        file, n_features=num_features, dtype=np.float32, zero_based=False
      )
  except FileNotFoundError as e:
    raise data_errors.DataError(f'There is no file {path}. {get}') from e
  except OSError as e:
    raise data_errors.DataError(f'{path} cannot be read: {e}. {get}') from e
  except (ValueError, OverflowError) as e:
    raise data_errors.DataError(
      f'{path} must have lines of a label and pairs index:value, with '
      f'ascending indices from 1 to {num_features}: {str(e).rstrip(".")}. {get}'
    ) from e
  kinds = np.unique(labels)
  if len(kinds) != 2 or not np.isfinite(kinds).all():
    found = ', '.join(f'{kind:g}' for kind in kinds[:5])
    raise data_errors.DataError(
      f'{path} must have two different labels, got {len(kinds)}: {found}. {get}'
    )
  features = sparse.toarray()
  if not np.isfinite(features).all():
    raise data_errors.DataError(f'{path} has a value that is not finite. {get}')
  return features, (labels == kinds[1]).astype(np.float32)
