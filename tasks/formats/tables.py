"""Reader of tables of examples: rows with features, a label and a client.

A table is a CSV file, a Parquet, Feather or Arrow file, an .npz archive of
arrays, a dataset that Hugging Face's `save_to_disk` wrote, or a folder of files
or of images. In a folder each file is a client, unless names say that they are
pieces of one table or splits (train, test, validation).
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import pathlib
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Optional

import numpy as np
import pandas

from tasks.formats import arrow
from tasks.formats import columns as columns_lib
from tasks.formats import data_files
from tasks.formats import image_folders

DEFAULT_CLIENT = 'client'
# Delimiters; spreadsheets in some locales write semicolons.
_DELIMITERS = ',;\t'
# Words of names such as test.csv, adult_train.csv, val-00000-of-00001.parquet.
_SPLITS = {
  **dict.fromkeys(('train', 'training'), 'train'),
  **dict.fromkeys(('test', 'testing'), 'test'),
  **dict.fromkeys(('val', 'valid', 'validation', 'dev'), 'validation'),
}
# Parts of one table, in datasets' naming: data-00000-of-00004.parquet.
_PIECE = re.compile(r'.*-[0-9]+-of-[0-9]+')
# Row numbers of pandas and of spreadsheets.
_NAMELESS = re.compile(r'|Unnamed: [0-9]+|__index_level_[0-9]+__')


# Of cells that are neither a label nor a client's id.
_NO_WORD = (np.ndarray, list, dict)


@dataclasses.dataclass(frozen=True)
class Names:
  """The columns to read, and how.

  Attributes:
    label: Name of the label column.
    client: Name of the client column; if None, `DEFAULT_CLIENT` if it exists.
    features: Names of feature columns; if None, all others.
    words: Names of feature columns of words, even if they look like numbers.
    text: Name of a text column, which is then the only feature.
    time: Name of a column of times, which is no feature unless named.
    decimal: Decimal mark of numbers in text; by default a point, or a comma if
      points are between thousands.
    thousands: Mark between thousands.
    image_size: If given, images are resized to squares of this size in pixels;
      otherwise all must have the same size.
    drop_unlabelled: Whether to drop rows without a label.
    literal: Names of columns of words, some of which CSV files have for empty
      cells, such as NA.
  """

  label: str
  client: Optional[str] = None
  features: Optional[Sequence[str]] = None
  words: Sequence[str] = ()
  text: Optional[str] = None
  time: Optional[str] = None
  decimal: Optional[str] = None
  thousands: Optional[str] = None
  image_size: Optional[int] = None
  drop_unlabelled: bool = False
  literal: Sequence[str] = ()

  @property
  def marks(self) -> columns_lib.Marks:
    """The marks of numbers in text."""
    default = ',' if self.thousands == '.' else '.'
    return self.decimal or default, self.thousands


@dataclasses.dataclass(frozen=True)
class Examples:
  """The rows of a table.

  Attributes:
    columns: The feature columns, in the order of the file.
    numbers: Features that are numbers, float64 [rows, numbers], NaN for empty
      cells; of a single column of lists, arrays or images [rows, ...].
    words: Columns of words, '' for empty cells; of text, only its column.
    labels: Labels [rows], words or numbers.
    clients: Client ids [rows]; None if nothing names clients.
    times: Numbers or times [rows]; None without a time column.
    split: 'train', 'test' or 'validation' [rows].
    marks: Marks of numbers in text.
    notes: Sentences about what was skipped or merged.
  """

  columns: tuple[columns_lib.Column, ...]
  numbers: np.ndarray
  words: pandas.DataFrame
  labels: pandas.Series
  clients: Optional[pandas.Series] = None
  times: Optional[pandas.Series] = None
  split: np.ndarray = dataclasses.field(default_factory=lambda: np.array([]))
  marks: columns_lib.Marks = ('.', None)
  notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Source:
  """A file or folder that is read in one piece, and what its name says."""

  path: pathlib.Path
  client: Optional[str] = None
  split: str = 'train'


def _wrong(where: Any, told: str) -> NoReturn:
  raise data_files.DataError(f'{where}: {told}')


def _split_of(path: pathlib.Path) -> Optional[str]:
  words = re.split(r'[\W_\d]+', path.stem.lower())
  return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def _sources(
  path: pathlib.Path, notes: list[str], split: str = 'train'
) -> list[_Source]:
  """Lists the files to read, and notes what is left out.

  Args:
    path: A file or a folder.
    notes: Receives the notes.
    split: The split that a folder is of.
  """
  try:
    is_folder = path.is_dir()
  except (OSError, ValueError):  # An impossible path.
    is_folder = False
  if not is_folder or arrow.is_saved(path):
    return [_Source(path)]
  children, folders = image_folders.children(path), image_folders.folders(path)
  tables = [p for p in children if p.suffix.lower() in ('.csv', '.tsv')]
  others = [p for p in children if p.suffix.lower() in data_files.ARROW]
  files = tables or others
  if tables and others:
    _beside(path, tables[0], others[0], 'and is of another kind')
  for folder in (f for f in folders if files and _split_of(f)):
    _beside(path, files[0], folder, 'and is a folder named like a split')
  for one, other in itertools.pairwise(sorted(files, key=lambda p: p.stem)):
    if one.stem == other.stem:
      _beside(path, one, other, 'and would be the same client or split')
  if left_out := [p.name for p in children if files and p not in files]:
    notes.append(
      f'Of {path}, {columns_lib.listed(left_out)} is left out: beside '
      f'{files[0].name} other kinds of files, and folders, are not read.'
    )
  found = files or folders
  splits = [_split_of(p) for p in found]
  named = [p for p, part in zip(found, splits, strict=True) if part]
  if named and (files or len(named) == len(found) or not _has_classes(path)):
    if len(named) < len(found):
      other = next(p for p in found if p not in named)
      _wrong(
        path,
        f'{named[0].name} is named like a split and {other.name} is not; name '
        'splits train, test and validation, or rename clients.',
      )
    if split not in splits:
      _wrong(
        path,
        f'there is no split {split} beside {named[0].name}, which is named '
        'like a split; rename it if it is a client.',
      )
    return [
      dataclasses.replace(source, split=part or '')
      for place, part in zip(found, splits, strict=True)
      for source in _sources(place, notes, part or '')
    ]
  if files:
    pieces = all(_PIECE.fullmatch(p.stem) for p in files)
    return [
      _Source(p, None if pieces else image_folders.text_of(p.stem))
      for p in files
    ]
  if not image_folders.has_images(path):
    _wrong(
      path,
      'a folder of CSV files, of Parquet or Arrow files, or of folders of '
      'images was expected, and there are none.',
    )
  return [_Source(path)]


def _beside(
  path: pathlib.Path, one: pathlib.Path, other: pathlib.Path, told: str
) -> NoReturn:
  _wrong(
    path,
    f'{other.name} is beside {one.name} {told}; move or rename one of them.',
  )


def _has_classes(path: pathlib.Path) -> bool:
  """Returns whether a folder's folders have images themselves."""
  return all(
    image_folders.has_images(f) and not image_folders.folders(f)
    for f in image_folders.folders(path)
  )


def read(path: pathlib.Path, names: Names) -> Examples:
  """Reads a table.

  Raises:
    DataError: If a file is missing or invalid; names the file and, if possible,
      column and row.
  """
  notes: list[str] = []
  sources, frames = _sources(path, notes), []
  for source in sources:
    frame = _read_source(source.path, names, notes)
    if names.text is not None:
      names = dataclasses.replace(names, features=[names.text])
    client = names.client or DEFAULT_CLIENT
    if source.client and not names.client and client not in frame.columns:
      frame[client] = source.client
    frames.append(frame)
  guessed = _guessed(frames)
  plain = dataclasses.replace(names, words=[*names.words, *guessed])
  for source, frame in zip(sources, frames, strict=True):
    if _is_csv(source.path) and (mine := [n for n in guessed if n in frame]):
      frame[mine] = _read_csv(source.path, plain)[mine]
  if client in frames[[s.split for s in sources].index('train')].columns:
    for source, frame in zip(sources, frames, strict=True):
      if source.split != 'train' and client not in frame.columns:
        frame[client] = ''  # It does not matter whose test examples are.
  _check_columns(sources, frames, names)
  features = _features(sources[0].path, frames[0], names, notes)
  rows = np.repeat(np.arange(len(frames)), [len(f) for f in frames])
  begins = np.cumsum([0, *map(len, frames)])
  whole = pandas.concat(frames, ignore_index=True)
  _check_labels(sources, frames, names)
  unlabelled = whole[names.label].isna().to_numpy()
  kept = np.flatnonzero(~unlabelled)

  def where(marked: Any) -> str:
    first = marked if isinstance(marked, int) else np.argmax(np.array(marked))
    row = kept[first]
    return f'{sources[rows[row]].path}, row {row - begins[rows[row]] + 1}'

  if unlabelled.any():
    if not names.drop_unlabelled or not len(kept):
      kept = np.arange(len(rows))
      _wrong(
        f'{where(unlabelled)}, column {names.label!r}',
        f'it is empty, as in {unlabelled.sum():,} of {len(rows):,} rows (NA, '
        'null and the like count as empty); to leave these rows out, give '
        '--table_drop_unlabelled.',
      )
    notes.append(f'{unlabelled.sum():,} rows without a label are left out.')
    whole = whole.iloc[kept].reset_index(drop=True)
  for name in (client, names.time):
    if name in whole.columns and (empty := whole[name].isna()).any():
      _wrong(
        f'{where(empty)}, column {name!r}',
        'it is empty (NA, null and the like count as empty).',
      )
  if client in whole.columns:
    odd = np.array([isinstance(cell, _NO_WORD) for cell in whole[client]])
    if odd.any():
      _wrong(
        f'{where(odd)}, column {client!r}',
        'one word or number a row was expected, got '
        f'{whole[client][odd].iloc[0]!r:.40}.',
      )
  described, numbers, words = _convert(whole[features], names, where)
  return Examples(
    described,
    numbers,
    words,
    whole[names.label],
    whole[client] if client in whole.columns else None,
    None if names.time is None else _times(whole[names.time], names),
    np.array([source.split for source in sources])[rows[kept]],
    names.marks,
    tuple(notes),
  )


def _guessed(frames: Sequence[pandas.DataFrame]) -> list[str]:
  """Returns the columns with words in one file, and none in another.

  Pandas decides file by file what 'TRUE' or '007' is.
  """
  if len(frames) < 2:
    return []
  holds_text = columns_lib.holds_text
  names = dict.fromkeys(name for frame in frames for name in frame)
  kinds = {n: {holds_text(f[n]) for f in frames if n in f} for n in names}
  return [name for name, found in kinds.items() if len(found) > 1]


def _read_source(
  path: pathlib.Path, names: Names, notes: list[str]
) -> pandas.DataFrame:
  """Reads a file or folder."""
  kind = path.suffix.lower()
  if kind == '.npz':
    frame = _read_archive(path)
  elif kind in data_files.ARROW:
    frame = arrow.read(path)
  elif _is_csv(path):
    frame = _read_csv(path, names)
  elif arrow.is_saved(path):
    frame = arrow.read_saved(path)
  else:
    if names.client or names.features or names.words or names.text:
      _wrong(
        path,
        'folders of images have no columns; --table_client, --table_features, '
        '--table_words and --table_text are for tables.',
      )
    frame, told = image_folders.read(path)
    frame = frame.rename(columns={image_folders.LABEL: names.label})
    notes += told
  if not len(frame):
    _wrong(path, 'it has no rows.')
  for name in {names.label, names.client or DEFAULT_CLIENT, names.time}:
    if name in frame.columns:
      frame[name] = frame[name].replace(r'^\s*$', np.nan, regex=True)
  return frame


def _is_csv(path: pathlib.Path) -> bool:
  of_others = path.suffix.lower() in ('.npz', *data_files.ARROW)
  return not of_others and not path.is_dir()


def any_is_empty(words: Sequence[str]) -> bool:
  """Returns whether one of some words is that of an empty cell in CSV files."""
  text = pandas.DataFrame({'word': list(words)}).to_csv(index=False)
  found = pandas.read_csv(io.StringIO(text), dtype=str)
  return bool(found['word'].isna().any())


def _read_csv(path: pathlib.Path, names: Names) -> pandas.DataFrame:
  """Reads a CSV file; the first line names the columns."""
  get = 'The first line names the columns.'
  with data_files.reading(path, 'CSV file', get):
    with open(path, newline='', encoding='utf-8-sig') as file:
      line = next(filter(str.strip, file), '')
      # Without marks in quoted names, which begin with the quote.
      unquoted = re.sub(r'(^|[,;\t])\s*"([^"]|"")*("|$)', r'\1', line)
      delimiter = max(_DELIMITERS, key=unquoted.count)
      # A quoted name may go on in the next line.
      cells = csv.reader(
        itertools.chain([line], file),
        delimiter=delimiter,
        skipinitialspace=True,
      )
      header = [name.strip() for name in next(cells, [])]
    if not header:
      _wrong(path, 'it is empty.')
    header = [name or f'Unnamed: {i}' for i, name in enumerate(header)]
    if twice := [name for name in header if header.count(name) > 1]:
      _wrong(path, f'it has the column {twice[0]!r} twice.')
    # Pandas parses numbers, but does not take away what words look like.
    kept = {names.label, names.client or DEFAULT_CLIENT, names.text}
    kept |= {names.time, *names.words}
    with warnings.catch_warnings():
      # Rows that are longer than the header would lose cells.
      warnings.simplefilter('error', pandas.errors.ParserWarning)
      read = functools.partial(
        pandas.read_csv,
        path,
        sep=delimiter,
        header=0,
        names=header,
        decimal=names.marks[0],
        dtype={n: str for n in kept if n in header},
        index_col=False,
        skipinitialspace=True,
        low_memory=False,
        encoding='utf-8-sig',
      )
      frame: pandas.DataFrame = read()
      literal = [name for name in names.literal if name in header]
      if literal:
        frame[literal] = read(keep_default_na=False)[literal]
      return frame


def _read_archive(path: pathlib.Path) -> pandas.DataFrame:
  """Reads arrays of equal length as columns."""
  if not path.exists():
    raise data_files.DataError(
      f'There is no file {path}; an archive of arrays, as numpy.savez writes '
      'it, was expected.'
    )
  found = {}
  arrays = data_files.read_npz(path)
  rows = max((len(a) for a in arrays.values() if a.ndim), default=0)
  for name, array in arrays.items():
    where = f'{path}, array {name!r}'
    if array.dtype.kind == 'S':
      try:
        array = np.char.decode(array, 'utf-8')
      except UnicodeDecodeError as e:
        _wrong(where, f'its bytes are not valid UTF-8 ({e}).')
    if array.dtype.kind not in 'biufU':
      _wrong(where, f'words or real numbers were expected, got {array.dtype}.')
    if not array.ndim or len(array) != rows:
      _wrong(where, f'{rows} rows were expected, got the shape {array.shape}.')
    kind = object if array.dtype.kind == 'U' else None
    found[name] = (
      pandas.Series(list(array), dtype=object)
      if array.ndim > 1
      else pandas.Series(array, dtype=kind)
    )
  return pandas.DataFrame(found)


def _check_columns(
  sources: Sequence[_Source], frames: Sequence[pandas.DataFrame], names: Names
) -> None:
  """Checks that files have the wanted columns, and the same ones."""
  wanted = {names.label: 'the label'}
  wanted |= {name: 'features' for name in names.features or ()}
  wanted |= {names.client: 'the client'} if names.client else {}
  wanted |= {names.time: 'the time'} if names.time else {}
  for source, frame in zip(sources, frames, strict=True):
    for name, what in wanted.items():
      if name not in frame.columns:
        _wrong(
          source.path,
          f'it has no column {name!r} for {what}; its columns are '
          f'{columns_lib.listed(frame.columns)}.',
        )
    other = set(frame.columns) ^ set(frames[0].columns)
    other -= {c for c in other if _NAMELESS.fullmatch(c)}
    if names.features is not None:
      other &= {DEFAULT_CLIENT}
    if other:
      name = sorted(other)[0]
      has, lacks = source.path, sources[0].path
      if name not in frame.columns:
        has, lacks = lacks, has
      _wrong(has, f'it has a column {name!r}, which {lacks.name} has not.')


def _features(
  path: pathlib.Path, frame: pandas.DataFrame, names: Names, notes: list[str]
) -> list[str]:
  """Returns the names of feature columns, and notes those left out."""
  if names.features is not None:
    features = list(names.features)
  else:
    others = {names.label, names.client or DEFAULT_CLIENT, names.time}
    features = [name for name in frame.columns if name not in others]
    for name in list(features):
      if _NAMELESS.fullmatch(name) and name not in names.words:
        features.remove(name)
        notes.append(
          f'The nameless column {list(frame.columns).index(name) + 1} ({name}) '
          'is left out: it numbers rows.'
        )
  if not features:
    _wrong(path, 'it has no column for features.')
  if names.label in features:
    _wrong(path, f'the column {names.label!r} is the label, and no feature.')
  for name in names.words:
    if name not in features:
      _wrong(
        path,
        f'it has no column {name!r} of features to treat as words; its '
        f'features are {columns_lib.listed(features)}.',
      )
  return features


def _check_labels(
  sources: Sequence[_Source],
  frames: Sequence[pandas.DataFrame],
  names: Names,
) -> None:
  """Checks that labels are not numbers in one file and words in another."""
  kinds: dict[bool, Any] = {}
  decimal, thousands = names.marks
  plain = str.maketrans(decimal, '.', thousands or '')
  for source, frame in zip(sources, frames, strict=True):
    known = frame[names.label].dropna()
    if not len(known):
      continue
    cell = known.iloc[0]
    if isinstance(cell, (*_NO_WORD, bytes)):
      _wrong(
        f'{source.path}, column {names.label!r}',
        f'one word or number a row was expected, got {cell!r:.40}.',
      )
    words = pandas.Series(known.unique(), dtype=object).astype(str)
    plainly = words.str.translate(plain)
    numeric = pandas.to_numeric(plainly, errors='coerce').notna()
    if numeric.all() or not numeric.any():
      kinds.setdefault(bool(numeric.all()), (source.path, cell))
  if len(kinds) > 1:
    (one, number), (other, word) = kinds[True], kinds[False]
    _wrong(
      one,
      f'its labels are numbers, such as {number!s:.40}, but those of '
      f'{other.name} are words, such as {str(word)[:40]!r}; write all as '
      'words or all as numbers.',
    )


def _convert(
  features: pandas.DataFrame,
  names: Names,
  where: Callable[[Any], str],
) -> tuple[tuple[columns_lib.Column, ...], np.ndarray, pandas.DataFrame]:
  """Converts features; returns their descriptions, numbers and words."""
  count = len(features)

  def cells(name: str) -> columns_lib.Cells:
    return columns_lib.Cells(name, features[name], where)

  if names.text is not None:
    texts, column = cells(names.text).texts()
    nothing = np.zeros([count, 0])
    return (column,), nothing, pandas.DataFrame({names.text: texts})
  plain = features.select_dtypes(['number', 'bool'], exclude=['timedelta'])
  plain = plain.drop(columns=[n for n in names.words if n in plain])
  values = plain.to_numpy(np.float64, na_value=np.nan)
  missing = np.isnan(values).sum(axis=0)
  beyond = np.abs(values) > np.finfo(np.float32).max
  for wrong in np.flatnonzero((missing == count) | beyond.any(axis=0)):
    cells(plain.columns[wrong]).checked(values[:, wrong])
  blocks: dict[str, np.ndarray] = dict(zip(plain, values.T, strict=True))
  described = {
    name: columns_lib.Column(name, missing=int(m))
    for name, m in zip(plain, missing, strict=True)
  }
  others = [cells(name) for name in features if name not in blocks]
  words = {}
  if names.image_size and not any(source.is_image for source in others):
    raise data_files.DataError(
      f'--table_image_size={names.image_size} would be ignored: no column has '
      'images.'
    )
  for source in others:
    name, forced = source.name, source.name in names.words
    if source.is_image and not forced:
      blocks[name], described[name] = source.images(names.image_size)
    elif not forced and (found := source.numbers(names.marks)) is not None:
      blocks[name] = found
      described[name] = columns_lib.Column(
        name,
        missing=int(np.isnan(found).sum()),
        width=int(np.prod(found.shape[1:])),
      )
    else:
      words[name], described[name] = source.words(forced, names.marks)
  wide = [c.name for c in described.values() if c.width > 1]
  if wide and words:
    _wrong(
      where(0),
      f'the column {wide[0]!r} has several numbers a row and '
      f'{next(iter(words))!r} has words, which cannot be combined; exclude one '
      'with --table_features.',
    )
  ordered = [name for name in features if name in blocks]
  numbers = np.zeros([count, 0])
  if len(ordered) == 1 and blocks[ordered[0]].ndim > 1:
    numbers = blocks[ordered[0]]
  elif ordered:
    flat = [blocks[name].reshape(count, -1) for name in ordered]
    numbers = np.concatenate(flat, axis=1)
    for name in ordered:
      if described[name].kind == 'image':
        described[name] = dataclasses.replace(described[name], kind='number')
  return (
    tuple(described[name] for name in features),
    numbers,
    pandas.DataFrame(words, index=range(count)),
  )


def _times(cells: pandas.Series, names: Names) -> pandas.Series:
  """Returns numbers or times by which rows can be sorted."""
  if pandas.api.types.is_numeric_dtype(cells) or cells.dtype.kind in 'mM':
    return cells
  found = columns_lib.read_numbers(cells, names.marks)
  if found is not None:
    return pandas.Series(found)
  found = pandas.to_datetime(cells, format='ISO8601', utc=True, errors='coerce')
  if found.notna().all():
    return found
  try:
    found, other = (
      pandas.to_datetime(cells, format='mixed', utc=True, dayfirst=day_first)
      for day_first in (False, True)
    )
    if (unclear := found != other).any():
      raise ValueError(
        f'{cells[unclear].iloc[0]!r} is ambiguous in day and month; write '
        '2024-12-31'
      )
    return found
  except (TypeError, ValueError, OverflowError) as e:
    raise data_files.DataError(
      f'The column {names.time!r} has cells that are neither numbers nor '
      f'times: {e}'
    ) from e
