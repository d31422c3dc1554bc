"""Conversion of a table's columns: numbers, words, labels, pixels."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Optional

import numpy as np
import pandas

from tasks.formats import data_files
from tasks.formats import image_folders

# The mark of decimals, and that of thousands if there is one.
Marks = tuple[str, Optional[str]]
# Maximum number of different words in a column, and length of a word.
_MOST_WORDS = 1000
_LONGEST = 1000
# Digits, signs and marks of any script, perhaps before a unit, which `numbers`
# may not accept: '12%', '$1', '(1.50)', '5 kg'. '10-19' and 'A1' are words.
_LIKE_A_NUMBER = r"\W*\d[\d.,'\u2019_\s]*(?:[eE][-+]?\d+)?(?:\W*|\s[^\W\d]+)"
_PLAIN = re.compile(r'[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)')


@dataclasses.dataclass(frozen=True)
class Column:
  """A feature column.

  Attributes:
    name: Name of the column.
    kind: 'number', 'words', 'text' or 'image'; numbers may be several a row.
    words: Its different words, sorted.
    missing: Number of empty cells.
    width: Number of features; several for arrays, lists and images.
  """

  name: str
  kind: str = 'number'
  words: tuple[str, ...] = ()
  missing: int = 0
  width: int = 1


def listed(names: Any, most: int = 10) -> str:
  """Quotes the first names, and counts the others."""
  names = [str(name)[:40] for name in names]
  more = f' and {len(names) - most} more' if len(names) > most else ''
  return ', '.join(map(repr, names[:most])) + more


class Cells:
  """A feature column of one or several files.

  Attributes:
    name: The column's name.
    cells: Its cells, NaN where one is empty.
  """

  def __init__(
    self, name: str, cells: pandas.Series, where: Callable[[Any], str]
  ):
    """Takes a column.

    Args:
      name: Its name.
      cells: Its cells.
      where: Returns the file and row of a cell, given its number, or of the
        first of the marked cells.
    """
    self.name, self.cells, self._where = name, cells, where
    known = (c for c in cells.dropna() if not isinstance(c, str) or c.strip())
    self.first: Any = next(known, None)
    if self.first is None:
      raise data_files.DataError(
        f'{where(cells.isna())}: the column {name!r} is empty; exclude it with '
        '--table_features.'
      )

  def wrong(self, told: str, marked: Any = None) -> NoReturn:
    """Raises `DataError` for the first of the marked cells."""
    marked = np.ones(len(self.cells), bool) if marked is None else marked
    raise data_files.DataError(
      f'{self._where(marked)}, column {self.name!r}: {told}'
    )

  @property
  def is_image(self) -> bool:
    """Whether cells are images: files' bytes, perhaps beside a path."""
    if isinstance(self.first, dict):
      return 'bytes' in self.first
    return isinstance(self.first, bytes)

  def numbers(self, marks: Marks) -> Optional[np.ndarray]:
    """Returns float64 [rows, ...], NaN for empty cells; None for words."""
    cells = self.cells
    if holds_text(self.cells):
      found = read_numbers(cells.astype(object), marks)
      return None if found is None else self.checked(found)
    lists = isinstance(self.first, (list, np.ndarray))
    try:
      if lists:
        values = np.array(cells.tolist(), np.float64)
      else:
        values = cells.to_numpy(np.float64, na_value=np.nan)
      if cells.dtype.kind in 'mM':
        raise TypeError(f'{cells.dtype} is a time')
    except (TypeError, ValueError) as e:
      odd = None
      if lists:
        sizes = cells.map(lambda cell: 0 if cell is None else np.size(cell))
        odd = (sizes != np.size(self.first)).to_numpy()
      self.wrong(
        'numbers, words, images or lists of numbers of one length were '
        f'expected, got {self.first!r:.40} ({str(e)[:80]}); exclude it with '
        '--table_features.',
        odd if np.any(odd) else None,
      )
    return self.checked(values)

  def checked(self, values: np.ndarray) -> np.ndarray:
    """Raises `DataError` for numbers beyond float32, and for gaps in lists."""
    with np.errstate(over='ignore'):
      wrong = np.isinf(values.astype(np.float32))
    if values.ndim > 1:
      wrong |= np.isnan(values)
    if wrong.any():
      rows = wrong.reshape(len(wrong), -1).any(axis=1)
      self.wrong(f'a finite number was expected, got {values[wrong][0]}.', rows)
    return values

  def words(self, forced: bool, marks: Marks) -> tuple[pandas.Series, Column]:
    """Returns words, '' for empty cells, and the column.

    Args:
      forced: Whether they are words although they look like something else.
      marks: Marks of numbers, for the error.

    Raises:
      DataError: If they look like numbers or times, are too many or too long.
    """
    if isinstance(self.first, (list, dict, np.ndarray)):
      self.wrong(f'one word a row was expected, got {self.first!r:.40}.')
    words = clean(self.cells)
    found = words[words != '']
    distinct = pandas.Series(sorted(set(found)), dtype=object)
    if not forced:
      like = like_numbers(distinct)
      if like.mean() > 0.5:
        odd = unreadable(self.cells.dropna(), marks)
        self.wrong(
          f'{like.sum():,} of its {len(like):,} different words look like '
          f'numbers, but {odd[:40]!r} cannot be read as one; correct it, give '
          'the marks by --table_decimal and --table_thousands, or, if they are '
          'words, name the column in --table_words.',
          words == odd,
        )
      if distinct.str.contains('[0-9]').all() and _are_times(distinct):
        self.wrong(
          f'{distinct.iloc[0][:40]!r} is a date or a time, which is '
          'meaningless to a model as a word: convert it to a number (such as '
          'days since a date), exclude the column with --table_features, or '
          'name it in --table_words.'
        )
    unique = len(distinct) > 50 and len(distinct) * 2 > len(found)
    if len(distinct) > _MOST_WORDS or (unique and not forced):
      self.wrong(
        f'it has {len(distinct):,} different words in {len(found):,} rows, and '
        'every one is an input of the model; exclude it with --table_features, '
        'learn from it alone with --table_text, or, if there are at most '
        f'{_MOST_WORDS:,}, name it in --table_words.'
      )
    if max(map(len, distinct)) > _LONGEST:
      self.wrong(f'a word has {_LONGEST:,} characters at most.')
    missing = len(words) - len(found)
    return words, Column(self.name, 'words', tuple(distinct), missing)

  def texts(self) -> tuple[np.ndarray, Column]:
    """Returns texts [rows], '' for empty cells, and the column."""
    if not holds_text(self.cells):
      self.wrong(f'text was expected, got {type(self.first).__name__}.')
    # A file of a folder may have numbers.
    known = self.cells.astype(object).map(_composed, na_action='ignore')
    texts = known.fillna('').to_numpy()
    missing = sum(not text.strip() for text in texts)
    return texts, Column(self.name, 'text', missing=missing)

  def images(self, size: Optional[int]) -> tuple[np.ndarray, Column]:
    """Returns images, float32 [rows, height, width, channels], and the column.

    Args:
      size: If given, images are resized to squares of this size in pixels.
    """
    images, places = [], []
    for row, cell in enumerate(self.cells):
      place, content = self._where(row), cell
      if isinstance(cell, dict):
        content, path = cell['bytes'], cell.get('path')
        place = f'{place}, {path}' if path else place
      if not isinstance(content, bytes):
        # Paths are not followed: they may lead anywhere.
        raise data_files.DataError(
          f'{place}, column {self.name!r}: the bytes of an image were '
          f'expected, got {content!r:.40}.'
        )
      images.append(image_folders.decode(content, place, size=size))
      places.append(place)
    stacked = image_folders.stack(images, places)
    return stacked, Column(self.name, 'image', width=stacked[0].size)


def holds_text(cells: pandas.Series) -> bool:
  """Returns whether some cells are text, be it of numbers."""
  kind = pandas.api.types.infer_dtype(cells, skipna=True)
  # Files of a folder may have numbers or text.
  return kind in ('string', 'categorical') or (
    kind.startswith('mixed') and any(isinstance(cell, str) for cell in cells)
  )


def clean(cells: pandas.Series) -> pandas.Series:
  """Returns cells as words: composed letters, no blanks around, '' if empty.

  Whole numbers have no decimals.
  """

  def word(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
      cell = int(cell)
    if isinstance(cell, bytes):
      cell = cell.decode('utf-8', 'backslashreplace')
    return _composed(cell).strip()

  known = pandas.Series(cells.unique()).dropna()
  table = {cell: word(cell) for cell in known}
  return cells.astype(object).map(table).fillna('').astype(object)


def _composed(cell: Any) -> str:
  return unicodedata.normalize('NFC', str(cell))


def _are_times(words: pandas.Series) -> bool:
  try:
    pandas.to_datetime(words, format='mixed')
  except (ValueError, OverflowError):
    return False
  return True


def summary(columns: Sequence[Column]) -> str:
  """Names columns, and how many words they have."""
  numbers = [c.name for c in columns if c.kind != 'words']
  words = [
    f'{c.name[:40]!r} ({len(c.words):,} words)'
    for c in columns
    if c.kind == 'words'
  ]
  more = [f'{len(words) - 10} more columns of words'] if words[10:] else []
  named = [listed(numbers)] if numbers else []
  return ', '.join([*named, *words[:10], *more])


def like_numbers(words: pandas.Series) -> pandas.Series:
  """Returns which words look like numbers, be they readable or not."""
  return words.str.fullmatch(_LIKE_A_NUMBER)


def unreadable(cells: pandas.Series, marks: Marks) -> str:
  """Returns the first cell that is no number, as a word."""
  for cell in cells.unique():
    alone = pandas.Series([cell], dtype=object)
    if read_numbers(alone, marks) is None:
      break
  return clean(alone).iloc[0]


def groups(marks: Marks) -> str:
  """Returns the regular expression of numbers with marks between thousands.

  Groups are of three digits, or of two as in India: '28.2' is no 282.
  """
  point, mark = (re.escape(mark or '') for mark in marks)
  return rf'[-+]?\d{{1,3}}(?:{mark}\d\d\d?)*{mark}\d\d\d(?:{point}\d*)?'


def read_numbers(cells: pandas.Series, marks: Marks) -> Optional[np.ndarray]:
  """Reads numbers in text; returns float64 [rows], or None if one is none."""
  decimal, thousands = marks
  words = clean(cells)
  # Pandas has read the numbers of files whose cells are all numbers.
  texts = words[[isinstance(cell, str) for cell in cells]]
  if thousands:
    grouped = texts[texts.str.contains(thousands, regex=False)]
    if not grouped.str.fullmatch(groups(marks)).all():
      return None
    texts = texts.str.replace(thousands, '', regex=False)
  if decimal != '.':
    if texts.str.contains('.', regex=False).any():
      return None
    texts = texts.str.replace(decimal, '.', regex=False)
  words.update(texts)
  try:
    return pandas.to_numeric(words.where(words != '')).to_numpy(np.float64)
  except ValueError:
    return None


def names_of(
  cells: pandas.Series, what: str, marks: Marks
) -> tuple[pandas.Series, list[str]]:
  """Returns labels or client ids as words, and notes on near-equal ones.

  Numerically equal words become the shortest of them: '1.0' becomes '1'.

  Args:
    cells: Words or numbers.
    what: 'labels' or 'clients', for the notes.
    marks: The marks of decimals and thousands.
  """
  words = clean(cells)
  distinct = sorted(set(words), key=lambda word: (len(word), word))
  shortest: dict[Any, str] = {}
  table = {}
  for word in distinct:
    table[word] = shortest.setdefault(_value(word, marks), word)
  notes = [
    f'The {what} {listed(same)} differ in spelling only, and count as '
    'different ones.'
    for same in alike(table.values())
  ]
  # '1.0' is '1', but '1.10' may be a code, and '01' an id.
  point = re.escape(marks[0])
  merged = [
    word
    for word, one in table.items()
    if one not in (word, re.sub(rf'{point}0*$', '', word))
  ]
  if merged:
    notes.append(
      f'The {what} {listed(merged)} are numbers that others have in fewer '
      'digits, and count as these; letters before them make them words.'
    )
  return words.map(table), notes


def alike(words: Iterable[str]) -> list[list[str]]:
  """Lists the words that differ from others in spelling only."""
  found: dict[str, list[str]] = {}
  for word in sorted(set(words)):
    folded = unicodedata.normalize('NFKC', word).casefold()
    folded = re.sub('[\u200b-\u200f\ufeff]', '', folded)  # Of width zero.
    found.setdefault(' '.join(re.split(r'[\s_-]+', folded)), []).append(word)
  return [same for same in found.values() if len(same) > 1]


def _value(word: str, marks: Marks) -> Any:
  """Returns a word's number; the word in a tuple if it is none."""
  decimal, thousands = marks
  plain = word
  if thousands and re.fullmatch(groups(marks), word):
    plain = word.replace(thousands, '')
  elif decimal != '.' and '.' in word:
    return (word,)
  plain = plain.replace(decimal, '.')
  if not _PLAIN.fullmatch(plain):
    return (word,)
  whole, _, decimals = plain.lstrip('+-').partition('.')
  sign = '-' if plain.startswith('-') else ''
  decimals = decimals.rstrip('0')
  if not decimals:
    return int(f'{sign}{whole or 0}')
  return f'{sign}{int(whole or 0)}.{decimals}'


# By column: the range [low, high] of its numbers, or its words.
Schema = Mapping[str, list[Any]]


def read_schema(path: Optional[str]) -> Schema:
  """Reads a schema from a JSON file; returns an empty one without a path.

  Raises:
    DataError: If the file is missing or has another form.
  """
  if path is None:
    return {}
  schema = data_files.read_json(pathlib.Path(path))
  for name, values in schema.items():
    if not isinstance(values, list) or len(set(map(str, values))) < 2:
      raise data_files.DataError(
        f'{path}, column {name!r}: a range [low, high] or a list of at least '
        f'two words was expected, got {values!r:.60}.'
      )
  return schema


def range_of(schema: Schema, name: str) -> tuple[float, float]:
  """Returns the range of a column of numbers.

  Raises:
    DataError: If the schema lists something else for it.
  """
  values = schema[name]
  numbers = [v for v in values if type(v) in (int, float) and np.isfinite(v)]
  if len(values) != 2 or len(numbers) != 2 or numbers[0] >= numbers[1]:
    raise data_files.DataError(
      f'--table_schema: the column {name!r} has numbers, and a range '
      f'[low, high] was expected for it, got {values!r:.60}.'
    )
  return float(numbers[0]), float(numbers[1])


def read_words(path: str, most: int) -> tuple[str, ...]:
  """Reads a vocabulary, one word per line, of which the first are used.

  Raises:
    DataError: If the file is missing or has no words.
  """
  with data_files.reading(pathlib.Path(path), 'list of words'):
    text = pathlib.Path(path).read_text(encoding='utf-8')
  # As texts are split.
  letters = [
    letter if unicodedata.category(letter)[0] in 'LNM' else ' '
    for letter in _composed(text).lower()
  ]
  words = tuple(dict.fromkeys(''.join(letters).split()))[:most]
  if not words:
    raise data_files.DataError(f'{path} has no words; one per line is needed.')
  return words
