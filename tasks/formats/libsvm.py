"""Reader of LIBSVM's text format: lines of a label and non-zero features."""

import io
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
    DataError: If the file is missing, has an invalid line, which is named, or
      does not have exactly two labels.
  """
  try:
    data_files.check(path, get)
    text = path.read_text(encoding='ascii')
  except FileNotFoundError as e:
    raise data_errors.DataError(f'There is no file {path}. {get}') from e
  except (OSError, UnicodeDecodeError) as e:
    raise data_errors.DataError(
      f'{path} is not a valid text file. {get}'
    ) from e
  labels: list[float] = []
  lines: list[int] = []
  rows: list[int] = []
  columns: list[int] = []
  values: list[float] = []
  for number, line in enumerate(io.StringIO(text), 1):
    parts = line.split()
    if not parts:
      continue
    try:
      if '_' in line:
        raise ValueError('Python alone reads 1_000 as a number.')
      labels.append(float(parts[0]))
      pairs = [part.split(':') for part in parts[1:]]
      index = [int(i) for i, _ in pairs]
      values.extend(float(v) for _, v in pairs)
    except ValueError as e:
      raise data_errors.DataError(
        f'{path}, line {number}: a label and pairs index:value were '
        f'expected, got {line.strip()[:60]!r}. {get}'
      ) from e
    if any(b <= a for a, b in zip([0, *index], index, strict=False)) or (
      index and index[-1] > num_features
    ):
      raise data_errors.DataError(
        f'{path}, line {number}: ascending indices from 1 to {num_features} '
        f'were expected, got {" ".join(map(str, index))[:60]}. {get}'
      )
    lines.append(number)
    rows.extend([len(labels) - 1] * len(index))
    columns.extend(index)
  kinds = _two_kinds(path, labels, lines, get)
  features = np.zeros([len(labels), num_features], np.float32)
  features[rows, np.array(columns, np.int64) - 1] = values
  if not np.isfinite(features).all():
    example = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
    raise data_errors.DataError(
      f'{path}, line {lines[example]}: a value is not finite. {get}'
    )
  return features, (np.array(labels) == kinds[1]).astype(np.float32)


def _two_kinds(
  path: pathlib.Path, labels: list[float], lines: list[int], get: str
) -> list[float]:
  """Returns the two labels of a file, ascending."""
  kinds: list[float] = []
  for label, line in zip(labels, lines, strict=True):
    if label in kinds:
      continue
    if len(kinds) == 2 or not np.isfinite(label):
      expected = 'a finite label'
      if len(kinds) == 2:
        expected = f'the label {kinds[0]:g} or {kinds[1]:g}'
      raise data_errors.DataError(
        f'{path}, line {line}: {expected} was expected, got {label:g}. {get}'
      )
    kinds.append(label)
  if len(kinds) != 2:
    raise data_errors.DataError(
      f'{path} must have two different labels, but has {len(kinds)}'
      f'{": " if kinds else ""}{"".join(f"{k:g}" for k in kinds)}. {get}'
    )
  return sorted(kinds)
