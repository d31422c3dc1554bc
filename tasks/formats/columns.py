"""Tables of examples: CSV files with a header, and NumPy archives.

A row is an example. One column is the label, one may be the client, and the
others are features; in an archive, columns are arrays. A feature column of a
CSV file holds numbers or words, and may have empty cells.
"""

import collections
import csv
import dataclasses
import math
import pathlib
import re
import sys
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NoReturn
from typing import Optional

import numpy as np

from tasks.formats import data_errors
from tasks.formats import data_files
from tasks.formats import weight_files

# Delimiters; spreadsheets in some locales write semicolons.
_DELIMITERS = ',;\t'
# Maximum numbers of rows and cells in memory as text.
_CHUNK = 10_000
_CHUNK_CELLS = 1_000_000
# Maximum length of a label, a client's name or a word.
_LONGEST = 1000
# Maximum number of different words in a column; each is a model input.
_MOST_WORDS = 1000
# Numbers in files; Python also parses 1_000 and digits of other scripts.
_NUMBER = re.compile(r'[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?')
_MONTHS = 'jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec'
# Dates and times: 2024-01-31, 31.1.24 8:05, 3 Jan 2024.
_DATE = re.compile(
  r'([0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T].*)?'
  r'|[0-9]{1,2}:[0-9]{2}(:[0-9]{2}.*)?'
  rf'|([0-9]{{1,2}}\.?[ -])?({_MONTHS})[a-z]*\.?[ -]'
  r'([0-9]{1,2},? )?[0-9]{4})',
  re.IGNORECASE,
)
# Number of a cell's characters in error messages.
_SHOWN = 40


@dataclasses.dataclass(frozen=True)
class Names:
  """The columns to read.

  Attributes:
    label: Name of the label column.
    client: Name of the client column; if None, `DEFAULT_CLIENT` if it exists.
    features: Names of feature columns; if None, all others.
    words: Names of feature columns of words, even if they look like numbers.
    text: Name of a text column, which is then the only feature.
  """

  label: str
  client: Optional[str] = None
  features: Optional[Sequence[str]] = None
  words: Sequence[str] = ()
  text: Optional[str] = None


DEFAULT_CLIENT = 'client'


@dataclasses.dataclass(frozen=True)
class Column:
  """A feature column.

  Attributes:
    name: Name of the column.
    words: Its different words, sorted; empty for a column of numbers.
    missing: Number of empty cells.
    width: Number of features; may be more than one for arrays of an archive.
    image: Whether it holds images.
    text: Whether it holds text.
  """

  name: str
  words: tuple[str, ...] = ()
  missing: int = 0
  width: int = 1
  image: bool = False
  text: bool = False


@dataclasses.dataclass(frozen=True)
class Examples:
  """The rows of a table.

  Attributes:
    features: float32 [examples, ...]: numbers, indices into a column's words,
      NaN for empty cells. For text, strings [examples].
    labels: Labels [examples] as in the file.
    clients: Client names [examples]; None without a client column.
    columns: The feature columns.
  """

  features: np.ndarray
  labels: np.ndarray
  clients: Optional[np.ndarray]
  columns: tuple[Column, ...]

  @property
  def names(self) -> tuple[str, ...]:
    """Names of the feature columns."""
    return tuple(column.name for column in self.columns)


def read(path: pathlib.Path, names: Names) -> Examples:
  """Reads a CSV file, a folder of CSV files, or an archive (.npz).

  In a folder without a client column each file is a client.

  Raises:
    DataError: If the file is missing or invalid; names the file and, if
      possible, line and column.
  """
  if names.text is not None:
    names = dataclasses.replace(names, features=(names.text,))
  try:
    status = path.is_dir()
  except (OSError, ValueError):  # An impossible path.
    status = False
  if status:
    return _read_folder(path, names)
  if path.suffix == '.npz':
    if names.text is not None:
      _wrong(path, '--table_text names a column of a CSV or Arrow file.')
    return _read_archive(path, names)
  features, labels, clients = _read_csv(path, names)
  found, described = features.finish(path)
  return Examples(found, labels, clients, described)


def _wrong(where: Any, told: str) -> NoReturn:
  raise data_errors.DataError(f'{where}: {told}')


def _read_folder(folder: pathlib.Path, names: Names) -> Examples:
  """Reads all CSV files of a folder, in the order of their names."""
  paths = sorted(folder.glob('*.csv'))
  if not paths:
    _wrong(folder, 'a folder of CSV files was expected, and there is none.')
  features: Optional[_Features | _Texts] = None
  labels: list[np.ndarray] = []
  clients: list[Optional[np.ndarray]] = []
  for path in paths:
    # Columns in the order of the first file.
    order = features.names if features else names.features
    part = dataclasses.replace(names, features=order)
    features, label, client = _read_csv(path, part, features)
    if labels and names.features is None:
      _check_same_columns(path, paths[0], names, features.names)
    labels.append(label)
    clients.append(client)
  assert features is not None
  said = [client is not None for client in clients]
  if any(said) and not all(said):
    _wrong(
      paths[said.index(False)],
      f'it has no column {names.client or DEFAULT_CLIENT!r} for the client, '
      f'which {paths[said.index(True)].name} has.',
    )
  whose = [
    np.full(len(label), path.stem, object) if client is None else client
    for path, label, client in zip(paths, labels, clients, strict=True)
  ]
  found, described = features.finish(folder)
  return Examples(
    found, np.concatenate(labels), np.concatenate(whose), described
  )


def _check_same_columns(
  path: pathlib.Path,
  first: pathlib.Path,
  names: Names,
  features: Sequence[str],
) -> None:
  """Raises `DataError` if a file has a column that the first file lacks."""
  with open(path, newline='', encoding='utf-8-sig') as file:
    _, header = _header(path, file)
  others = {*features, names.label, names.client or DEFAULT_CLIENT}
  more = [name for name in header if name not in others]
  if more:
    _wrong(path, f'it has a column {more[0]!r}, which {first.name} has not.')


def _read_csv(
  path: pathlib.Path,
  names: Names,
  features: Optional['_Features | _Texts'] = None,
) -> tuple['_Features | _Texts', np.ndarray, Optional[np.ndarray]]:
  """Reads a CSV file; the first line names the columns.

  Args:
    path: The file.
    names: The columns to read.
    features: Features of earlier files, to which this file's are added.

  Returns:
    The features, and each row's label and client, as objects: a string array
    would have room for the longest string in every row.
  """
  csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
  labels, clients = [], []
  try:
    data_files.check(path)
    with open(path, newline='', encoding='utf-8-sig') as file:
      delimiter, header = _header(path, file)
      places = _Places.of(path, header, names)
      if features is None:
        wanted = [header[place] for place in places.features]
        _check_words(path, names.words, wanted)
        features = (
          _Features(wanted, names.words)
          if names.text is None
          else _Texts(names.text)
        )
      for chunk in _chunks(path, csv.reader(file, delimiter=delimiter), header):
        features.add(path, chunk, places.features)
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
    raise data_errors.DataError(f'{path} is not valid UTF-8 text.') from e
  if not labels:
    _wrong(path, 'it has no rows after its header.')
  whose = np.array(clients, object) if places.client is not None else None
  return features, np.array(labels, object), whose


def _check_words(
  path: pathlib.Path, words: Sequence[str], features: Sequence[str]
) -> None:
  """Checks that columns to be read as words are features."""
  for name in words:
    if name not in features:
      _wrong(
        path,
        f'it has no column {name!r} of features that could be words; its '
        f'columns are {_listed(features)}.',
      )


def _header(path: pathlib.Path, file: Any) -> tuple[str, list[str]]:
  """Reads the first line: returns the delimiter and the columns' names."""
  line = file.readline()
  delimiter = max(_DELIMITERS, key=line.count)
  try:
    header = next(csv.reader([line], delimiter=delimiter, strict=True), [])
  except csv.Error as e:
    _wrong(path, f'line 1 is not a CSV header: {e}.')
  header = [name.strip() for name in header]
  counts = collections.Counter(header)
  twice = [name for name in header if counts[name] > 1]
  if twice:
    _wrong(path, f'line 1 has the column {twice[0]!r} twice.')
  return delimiter, header


@dataclasses.dataclass(frozen=True)
class _Places:
  """Indices in a row of the columns to read."""

  label: int
  client: Optional[int]
  features: Sequence[int]

  @classmethod
  def of(
    cls, path: pathlib.Path, header: Sequence[str], names: Names
  ) -> '_Places':
    places = {name: place for place, name in enumerate(header)}
    for name, what in (
      (names.label, 'label'),
      (names.client, 'client'),
      *((feature, 'feature') for feature in names.features or ()),
    ):
      if name is not None and name not in places:
        _wrong(
          path,
          f'it has no column {name!r} for the {what}; its columns are '
          f'{_listed(header)}.',
        )
    client = names.client
    if client is None and DEFAULT_CLIENT in places:
      client = DEFAULT_CLIENT
    features = names.features
    if features is None:
      features = [name for name in header if name not in (names.label, client)]
    if not features:
      _wrong(path, 'it has no column for features.')
    return cls(
      places[names.label],
      None if client is None else places[client],
      [places[name] for name in features],
    )


def _listed(names: Sequence[str], most: int = 10) -> str:
  more = f' and {len(names) - most} more' if len(names) > most else ''
  return ', '.join(repr(name[:_SHOWN]) for name in names[:most]) + more


# A row's line number in the file, and its cells.
_Row = tuple[int, list[str]]


def _chunks(
  path: pathlib.Path, reader: Any, header: Sequence[str]
) -> Iterator[list[_Row]]:
  """Yields chunks of rows without blank lines."""
  chunk: list[_Row] = []
  most = max(1, min(_CHUNK, _CHUNK_CELLS // len(header)))
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
      if len(chunk) == most:
        yield chunk
        chunk = []
  except csv.Error as e:
    _wrong(path, f'no whole CSV file at line {reader.line_num + 1}: {e}.')
  if chunk:
    yield chunk


def number(text: str) -> Optional[float]:
  """Parses a finite float32 number; returns None for anything else."""
  if not _NUMBER.fullmatch(text):
    return None
  value = float(text)
  return value if abs(value) <= np.finfo(np.float32).max else None


def _is_almost_number(text: str) -> bool:
  """Returns whether Python parses as a number what `number` rejects."""
  try:
    float(text)
  except ValueError:
    return False
  return True


def _plain_numbers(cells: Sequence[Sequence[str]]) -> Optional[np.ndarray]:
  """Parses rows of numbers; returns None if any cell is something else."""
  text = ''.join(map(''.join, cells))
  if not text.isascii() or '_' in text:
    return None
  with np.errstate(over='ignore'):
    try:
      found = np.array(cells, np.float64).astype(np.float32)
    except (ValueError, OverflowError):
      return None
  return found if np.isfinite(found).all() else None


class _Texts:
  """A text column as the features, read in chunks.

  Attributes:
    names: The column's name, as a list.
  """

  def __init__(self, name: str):
    self.names = [name]
    self._texts: list[str] = []

  def add(
    self, path: pathlib.Path, chunk: Sequence[_Row], places: Sequence[int]
  ) -> None:
    """Adds rows of a file."""
    del path
    [place] = places
    self._texts += [row[place] for _, row in chunk]

  def finish(self, where: Any) -> tuple[np.ndarray, tuple[Column, ...]]:
    """Returns all texts, strings [rows], and their column."""
    return described_texts(where, self.names[0], self._texts)


def described_texts(
  where: Any, name: str, texts: Sequence[str]
) -> tuple[np.ndarray, tuple[Column, ...]]:
  """Returns texts as features, and their column.

  Raises:
    DataError: If all texts are empty.
  """
  missing = sum(not text.strip() for text in texts)
  if missing == len(texts):
    _wrong(where, f'the column {name!r} is empty; there is no text in it.')
  return np.array(texts, object), (Column(name, missing=missing, text=True),)


def coded_words(
  where: str, name: str, texts: Sequence[str]
) -> tuple[np.ndarray, Column]:
  """Encodes a column of words as in `Examples.features`.

  Args:
    where: File and column, for errors.
    name: The column.
    texts: Words [rows], '' for empty cells.

  Returns:
    Codes, float32 [rows], and the column.

  Raises:
    DataError: If there are too many different words, too long ones, or none.
  """
  words = sorted(set(texts) - {''})
  if not words:
    _wrong(where, 'it is empty; exclude it with --table_features.')
  if len(words) > _MOST_WORDS:
    _wrong(
      where,
      f'it has {len(words):,} different words, and every one is an input of '
      f'the model, of which there are {_MOST_WORDS:,} at most; leave the '
      'column out with --table_features, or learn from it alone with '
      '--table_text.',
    )
  if max(map(len, words)) > _LONGEST:
    _wrong(where, f'a word has {_LONGEST:,} characters at most.')
  places = {word: float(place) for place, word in enumerate(words)}
  codes = np.array([places.get(text, np.nan) for text in texts], np.float32)
  missing = int(np.isnan(codes).sum())
  return codes, Column(name, tuple(words), missing)


class _Features:
  """The feature columns, read in chunks.

  Attributes:
    names: Names of the columns.
  """

  def __init__(self, names: Sequence[str], words: Collection[str]):
    """Creates columns without rows.

    Args:
      names: The names of the columns.
      words: Names of columns of words, even if they look like numbers.
    """
    self.names = list(names)
    self._forced = [name in words for name in names]
    self._any_forced = any(self._forced)
    self._blocks: list[np.ndarray] = []
    self._codes: list[dict[str, int]] = [{} for _ in names]
    self._has_numbers = np.zeros(len(self.names), bool)
    # Location of each column's first word, and the word.
    self._first_word: dict[int, tuple[str, str]] = {}

  def add(
    self, path: pathlib.Path, chunk: Sequence[_Row], places: Sequence[int]
  ) -> None:
    """Adds rows.

    Raises:
      DataError: If a cell is neither a number nor a word, or is a word in a
        column of numbers.
    """
    cells = [[row[place] for place in places] for _, row in chunk]
    block = None
    if not self._any_forced and not self._first_word:
      block = _plain_numbers(cells)
    if block is not None:
      self._has_numbers[:] = True
    else:
      lines = [line for line, _ in chunk]
      block = np.stack(
        [
          self._column(j, path, lines, [row[j] for row in cells])
          for j in range(len(self.names))
        ],
        axis=1,
      )
    self._blocks.append(block)

  def _column(
    self,
    place: int,
    path: pathlib.Path,
    lines: Sequence[int],
    cells: Sequence[str],
  ) -> np.ndarray:
    """Parses a column's cells: numbers, codes of words, NaN for empty cells."""
    if not self._forced[place] and place not in self._first_word:
      plain = _plain_numbers([[cell] for cell in cells])
      if plain is not None:
        self._has_numbers[place] = True
        return plain[:, 0]
    values = np.full(len(cells), np.nan, np.float32)
    codes = self._codes[place]
    for i, text in enumerate(map(str.strip, cells)):
      if not text:
        continue
      if not self._forced[place]:
        value = number(text)
        if value is not None:
          values[i] = value
          self._has_numbers[place] = True
          continue
      where = f'{path}, line {lines[i]}, column {self.names[place]!r}'
      if text not in codes:
        self._check_word(place, where, text)
      values[i] = codes.setdefault(text, len(codes))
    if self._has_numbers[place] and place in self._first_word:
      where, text = self._first_word[place]
      _wrong(
        where,
        f'a finite number was expected, as in other rows, got '
        f'{text[:_SHOWN]!r}; if all of its cells are words, name the column in '
        '--table_words.',
      )
    return values

  def _check_word(self, place: int, where: str, text: str) -> None:
    """Checks a word that is new in the column."""
    if not self._forced[place]:
      self._first_word.setdefault(place, (where, text))
      if _is_almost_number(text):
        _wrong(where, f'a finite number was expected, got {text[:_SHOWN]!r}.')
      if _DATE.fullmatch(text):
        _wrong(
          where,
          f'{text[:_SHOWN]!r} is a date or a time, which is meaningless to a '
          'model as a word: convert it to a number (such as days since a '
          'date), exclude the column with --table_features, or force it to '
          'words with --table_words.',
        )
    if len(text) > _LONGEST:
      _wrong(where, f'a word has {_LONGEST:,} characters at most.')
    if len(self._codes[place]) == _MOST_WORDS:
      _wrong(
        where,
        f'it is the {_MOST_WORDS + 1:,}th different word of the column, and '
        'every one is an input of the model; leave the column out with '
        '--table_features.',
      )

  def finish(self, where: Any) -> tuple[np.ndarray, tuple[Column, ...]]:
    """Returns all rows, float32 [rows, columns], and their columns.

    Raises:
      DataError: If a column is empty.
    """
    features = np.concatenate(self._blocks)
    missing = np.isnan(features).sum(axis=0)
    described = []
    for j, name in enumerate(self.names):
      if missing[j] == len(features):
        _wrong(
          where,
          f'the column {name!r} is empty; exclude it with --table_features.',
        )
      words = sorted(self._codes[j])
      if words:
        # Alphabetically, independent of the order of rows.
        place = {self._codes[j][word]: i for i, word in enumerate(words)}
        order = np.array([place[code] for code in range(len(words))])
        there = ~np.isnan(features[:, j])
        features[there, j] = order[features[there, j].astype(np.int64)]
      described.append(Column(name, tuple(words), int(missing[j])))
    return features, tuple(described)


def _words(
  path: pathlib.Path, chunk: Sequence[_Row], place: int, header: Sequence[str]
) -> list[str]:
  """Returns a column of labels or client names."""
  words = []
  for line, row in chunk:
    word = row[place].strip()
    if not word:
      _wrong(f'{path}, line {line}, column {header[place]!r}', 'it is empty.')
    if len(word) > _LONGEST:
      _wrong(
        f'{path}, line {line}, column {header[place]!r}',
        f'it has {len(word):,} characters; a label or a client has '
        f'{_LONGEST:,} at most.',
      )
    words.append(word)
  return words


def _read_archive(path: pathlib.Path, names: Names) -> Examples:
  """Reads arrays of equal length, concatenating those of features."""
  if not path.exists():
    raise data_errors.DataError(
      f'There is no file {path}; an archive of arrays, as numpy.savez writes '
      'it, was expected.'
    )
  arrays = weight_files.read_npz(path)
  places = _Places.of(path, list(arrays), names)
  order = list(arrays)
  labels = _tags(path, names.label, arrays[names.label])
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
  if names.words:
    _wrong(path, 'the arrays of an archive are numeric and cannot be words.')
  described = tuple(
    Column(order[place], width=math.prod(f.shape[1:]))
    for place, f in zip(places.features, features, strict=True)
  )
  if len(features) > 1:
    features = [
      np.concatenate([f.reshape(len(f), -1) for f in features], axis=1)
    ]
  found = features[0] if features[0].ndim > 1 else features[0][:, np.newaxis]
  clients = None
  if places.client is not None:
    name = order[places.client]
    clients = arrays[name]
    if clients.ndim != 1:
      _wrong(
        f'{path}, array {name!r}',
        f'one client an example was expected, got the shape {clients.shape}.',
      )
    clients = _tags(path, name, clients).astype(str)
  return Examples(found, labels, clients, described)


def _tags(path: pathlib.Path, name: str, array: np.ndarray) -> np.ndarray:
  """Returns an array of an archive as labels or client names."""
  where = f'{path}, array {name!r}'
  if array.dtype.kind == 'S':
    try:
      return np.char.decode(array, 'utf-8')
    except UnicodeDecodeError as e:
      _wrong(where, f'its bytes are not valid UTF-8 ({e}).')
  if array.dtype.kind not in 'biufU':
    _wrong(where, f'words or real numbers were expected, got {array.dtype}.')
  if array.dtype.kind == 'f' and np.isnan(array).any():
    row = np.argwhere(np.isnan(array))[0][0]
    _wrong(f'{where}, row {row}', 'a word or a number was expected, got nan.')
  return array


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
