"""Tables of examples: CSV files with a header, and NumPy archives.

A row is an example. One column is the label, one may be the client, the others
are features; in an archive, arrays stand for columns.
"""

import csv
import dataclasses
import pathlib
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NoReturn
from typing import Optional

import numpy as np

from tasks.formats import data_errors
from tasks.formats import data_files
from tasks.formats import weight_files

# What a header may be divided by; spreadsheets write semicolons in some places.
_DELIMITERS = ',;\t'
# Rows that are text in memory at a time.
_CHUNK = 10_000
# Enough of what is in a cell to find it again.
_SHOWN = 40


@dataclasses.dataclass(frozen=True)
class Names:
  """The columns to read.

  Attributes:
    label: The label's.
    client: The client's; if None, `DEFAULT_CLIENT` where there is one.
    features: Those of the features; if None, all others.
  """

  label: str
  client: Optional[str] = None
  features: Optional[Sequence[str]] = None


DEFAULT_CLIENT = 'client'


@dataclasses.dataclass(frozen=True)
class Examples:
  """The rows of a table.

  Attributes:
    features: float32 [examples, ...].
    labels: The label of each, as the file has it.
    clients: The client of each, words; None where the table does not say.
    names: The columns of the features.
  """

  features: np.ndarray
  labels: np.ndarray
  clients: Optional[np.ndarray]
  names: tuple[str, ...]


def read(path: pathlib.Path, names: Names) -> Examples:
  """Reads a CSV file, a folder of CSV files, or an archive (.npz).

  Of a folder without a column for the client, each file is a client.

  Raises:
    DataError: If the file is missing, or is not what is expected; naming the
      file, and line and column where there are some.
  """
  try:
    status = path.is_dir()
  except (OSError, ValueError):  # Of a path that cannot be one.
    status = False
  if status:
    return _read_folder(path, names)
  if path.suffix == '.npz':
    return _read_archive(path, names)
  return _read_csv(path, names)


def _wrong(where: Any, told: str) -> NoReturn:
  raise data_errors.DataError(f'{where}: {told}')


def _read_folder(folder: pathlib.Path, names: Names) -> Examples:
  """Reads all CSV files of a folder, in the order of their names."""
  paths = sorted(folder.glob('*.csv'))
  if not paths:
    _wrong(folder, 'a folder of CSV files was expected, and there is none.')
  parts: list[Examples] = []
  for path in paths:
    # In the order of the first file's columns, whatever theirs is.
    order = parts[0].names if parts else names.features
    part = _read_csv(path, dataclasses.replace(names, features=order))
    if parts and names.features is None:
      _check_same_columns(path, paths[0], names, part.names)
    parts.append(part)
  said = [part.clients is not None for part in parts]
  if any(said) and not all(said):
    _wrong(
      paths[said.index(False)],
      f'it has no column {names.client or DEFAULT_CLIENT!r} for the client, '
      f'which {paths[said.index(True)].name} has.',
    )
  clients = [
    np.full(len(part.labels), path.stem)
    if part.clients is None
    else part.clients
    for path, part in zip(paths, parts, strict=True)
  ]
  return Examples(
    np.concatenate([part.features for part in parts]),
    np.concatenate([part.labels for part in parts]),
    np.concatenate(clients),
    parts[0].names,
  )


def _check_same_columns(
  path: pathlib.Path,
  first: pathlib.Path,
  names: Names,
  features: Sequence[str],
) -> None:
  """Holds a file to having no column that the first file lacks."""
  with open(path, newline='', encoding='utf-8-sig') as file:
    _, header = _header(path, file)
  others = {*features, names.label, names.client or DEFAULT_CLIENT}
  more = [name for name in header if name not in others]
  if more:
    _wrong(path, f'it has a column {more[0]!r}, which {first.name} has not.')


def _read_csv(path: pathlib.Path, names: Names) -> Examples:
  """Reads a CSV file; the first line names the columns."""
  csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
  features, labels, clients = [], [], []
  try:
    data_files.check(path)
    with open(path, newline='', encoding='utf-8-sig') as file:
      delimiter, header = _header(path, file)
      places = _Places.of(path, header, names)
      for chunk in _chunks(path, csv.reader(file, delimiter=delimiter), header):
        features.append(_numbers(path, chunk, places.features, header))
        labels += _words(path, chunk, places.label, header)
        if places.client is not None:
          clients += _words(path, chunk, places.client, header)
  except FileNotFoundError as e:
    raise data_errors.DataError(
      f'There is no file {path}; a CSV file whose first line names the '
      'columns, a folder of such files or an .npz archive was expected.'
    ) from e
  except (OSError, ValueError) as e:
    if isinstance(e, data_errors.DataError):
      raise
    raise data_errors.DataError(f'{path} is no readable UTF-8 text.') from e
  if not labels:
    _wrong(path, 'it has no rows below its header.')
  return Examples(
    np.concatenate(features),
    np.array(labels),
    np.array(clients) if places.client is not None else None,
    tuple(header[place] for place in places.features),
  )


def _header(path: pathlib.Path, file: Any) -> tuple[str, list[str]]:
  """Reads the first line: what divides it, and the columns' names."""
  line = file.readline()
  delimiter = max(_DELIMITERS, key=line.count)
  try:
    header = next(csv.reader([line], delimiter=delimiter, strict=True), [])
  except csv.Error as e:
    _wrong(path, f'line 1 is no header of a CSV file: {e}.')
  header = [name.strip() for name in header]
  twice = [name for name in header if header.count(name) > 1]
  if twice:
    _wrong(path, f'line 1 has the column {twice[0]!r} twice.')
  return delimiter, header


@dataclasses.dataclass(frozen=True)
class _Places:
  """The places, in a row, of the columns that are read."""

  label: int
  client: Optional[int]
  features: Sequence[int]

  @classmethod
  def of(
    cls, path: pathlib.Path, header: Sequence[str], names: Names
  ) -> '_Places':
    for name, what in (
      (names.label, 'label'),
      (names.client, 'client'),
      *((feature, 'feature') for feature in names.features or ()),
    ):
      if name is not None and name not in header:
        _wrong(
          path,
          f'it has no column {name!r} for the {what}; its columns are '
          f'{_listed(header)}.',
        )
    client = names.client
    if client is None and DEFAULT_CLIENT in header:
      client = DEFAULT_CLIENT
    features = names.features
    if features is None:
      features = [name for name in header if name not in (names.label, client)]
    if not features:
      _wrong(path, 'it has no column for features.')
    return cls(
      header.index(names.label),
      None if client is None else header.index(client),
      [header.index(name) for name in features],
    )


def _listed(names: Sequence[str], most: int = 10) -> str:
  more = f' and {len(names) - most} more' if len(names) > most else ''
  return ', '.join(repr(name[:_SHOWN]) for name in names[:most]) + more


# A row's line in the file, and its cells.
_Row = tuple[int, list[str]]


def _chunks(
  path: pathlib.Path, reader: Any, header: Sequence[str]
) -> Iterator[list[_Row]]:
  """Yields rows, some at a time; blank lines are left out."""
  chunk: list[_Row] = []
  try:
    for row in reader:
      if not row:
        continue
      line = reader.line_num + 1  # The header was read before.
      if len(row) != len(header):
        _wrong(
          f'{path}, line {line}',
          f'{len(header)} cells were expected, as in the header, got '
          f'{len(row)}.',
        )
      chunk.append((line, row))
      if len(chunk) == _CHUNK:
        yield chunk
        chunk = []
  except csv.Error as e:
    _wrong(path, f'no whole CSV file at line {reader.line_num + 1}: {e}.')
  if chunk:
    yield chunk


def _numbers(
  path: pathlib.Path,
  chunk: Sequence[_Row],
  places: Sequence[int],
  header: Sequence[str],
) -> np.ndarray:
  """Reads features as float32 [rows, features]."""
  cells = [[row[place] for place in places] for _, row in chunk]
  with np.errstate(over='ignore'):
    try:
      found = np.array(cells, np.float64).astype(np.float32)
    except (ValueError, OverflowError):
      found = np.array([[np.nan]])
  if np.isfinite(found).all():
    return found
  for line, row in chunk:
    for place in places:
      if not _is_number(row[place]):
        _wrong(
          f'{path}, line {line}, column {header[place]!r}',
          f'a finite number was expected, got {row[place][:_SHOWN]!r}.',
        )
  raise AssertionError(path)  # One of them was found to be none.


def _is_number(text: str) -> bool:
  with np.errstate(over='ignore'):
    try:
      return bool(np.isfinite(np.array([text], np.float64).astype(np.float32)))
    except (ValueError, OverflowError):
      return False


def _words(
  path: pathlib.Path, chunk: Sequence[_Row], place: int, header: Sequence[str]
) -> list[str]:
  """Reads a column of labels or clients."""
  words = []
  for line, row in chunk:
    word = row[place].strip()
    if not word:
      _wrong(f'{path}, line {line}, column {header[place]!r}', 'it is empty.')
    words.append(word)
  return words


def _read_archive(path: pathlib.Path, names: Names) -> Examples:
  """Reads arrays of one length; features of several are put side by side."""
  if not path.exists():
    raise data_errors.DataError(
      f'There is no file {path}; an archive of arrays, as numpy.savez writes '
      'it, was expected.'
    )
  arrays = weight_files.read_npz(path)
  places = _Places.of(path, list(arrays), names)
  order = list(arrays)
  labels = arrays[names.label]
  if labels.ndim != 1 or not len(labels):
    _wrong(
      f'{path}, array {names.label!r}',
      f'one label an example was expected, got the shape {labels.shape}.',
    )
  client = [] if places.client is None else [places.client]
  for place in [*places.features, *client]:
    array = arrays[order[place]]
    if array.ndim < 1 or len(array) != len(labels):
      _wrong(
        f'{path}, array {order[place]!r}',
        f'{len(labels)} rows were expected, as there are labels, got the '
        f'shape {array.shape}.',
      )
  features = [
    _finite(path, order[place], arrays[order[place]])
    for place in places.features
  ]
  if len(features) > 1:
    features = [
      np.concatenate([f.reshape(len(f), -1) for f in features], axis=1)
    ]
  found = features[0] if features[0].ndim > 1 else features[0][:, np.newaxis]
  clients = None
  if places.client is not None:
    clients = arrays[order[places.client]]
    if clients.ndim != 1:
      _wrong(
        f'{path}, array {order[places.client]!r}',
        f'one client an example was expected, got the shape {clients.shape}.',
      )
    clients = clients.astype(str)
  return Examples(
    found, labels, clients, tuple(order[place] for place in places.features)
  )


def _finite(path: pathlib.Path, name: str, array: np.ndarray) -> np.ndarray:
  """Returns an array of an archive as float32."""
  if array.dtype.kind not in 'biuf':
    _wrong(
      f'{path}, array {name!r}', f'numbers were expected, got {array.dtype}.'
    )
  with np.errstate(over='ignore'):
    found = array.astype(np.float32)
  wrong = np.argwhere(~np.isfinite(found))
  if len(wrong):
    _wrong(
      f'{path}, array {name!r}, row {wrong[0][0]}',
      f'a finite number was expected, got {array[tuple(wrong[0])]}.',
    )
  return found
