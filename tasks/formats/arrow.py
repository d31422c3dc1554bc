"""Reader of tables in Parquet and Arrow files.

A file is Parquet (.parquet), Feather (.feather) or Arrow IPC (.arrow, file or
stream). A folder holds such files, or was written by `save_to_disk` of Hugging
Face's datasets, with names of classes and types of columns.
"""

import importlib.util
import json
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any
from typing import NoReturn
from typing import Optional

import numpy as np

from tasks.formats import columns
from tasks.formats import data_errors
from tasks.formats import data_files
from tasks.formats import pictures

_SUFFIXES = ('.parquet', '.arrow', '.feather')
_STATE, _INFO, _SPLITS = 'state.json', 'dataset_info.json', 'dataset_dict.json'
# Parts of one table, in datasets' naming: train-00000-of-00004.parquet.
_PIECE = re.compile(r'(.*)-[0-9]{5}-of-[0-9]{5}')
_SHOWN = 10


def is_arrow(path: pathlib.Path, folder: bool) -> bool:
  """Returns whether this module can read a file or folder."""
  if not folder:
    return path.suffix in _SUFFIXES
  if any((path / name).exists() for name in (_STATE, _SPLITS)):
    return True
  return bool(_files(path)) and not any(path.glob('*.csv'))


def missing_reader() -> str:
  """Explains how to install pyarrow; empty if it is installed."""
  if importlib.util.find_spec('pyarrow') is not None:
    return ''
  return (
    'pyarrow reads this, which is not installed: pip install --no-deps -r '
    'requirements-data.txt, or pip install pyarrow'
  )


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES)


def _wrong(where: Any, told: str) -> NoReturn:
  raise data_errors.DataError(f'{where}: {told}')


def read(
  path: pathlib.Path,
  names: columns.Names,
  *,
  image_size: Optional[int] = None,
) -> columns.Examples:
  """Reads a file, a folder of files, or a saved dataset.

  In a folder without a client column each file is a client, unless file names
  mark parts of one table.

  Args:
    path: The file or folder.
    names: The columns to read.
    image_size: If given, images are resized to squares of this size in pixels.

  Raises:
    DataError: If pyarrow is not installed, or a file is missing or invalid;
      names the file and, if possible, column and row.
  """
  if missing := missing_reader():
    _wrong(path, f'{missing}.')
  kinds: dict[str, Any] = {}
  if path.is_dir() and (path / _SPLITS).exists():
    splits = _json(path / _SPLITS).get('splits')
    _wrong(
      path,
      f'it holds the splits {splits}; name the folder of one of them.',
    )
  if path.is_dir() and (path / _STATE).exists():
    parts, kinds = _saved_files(path)
    whose = None
  elif path.is_dir():
    parts = _files(path)
    pieces = [_PIECE.fullmatch(part.stem) for part in parts]
    whose = None if all(pieces) else [part.stem for part in parts]
  else:
    parts, whose = [path], None
  tables = [_read_file(part) for part in parts]
  for part, table in zip(parts, tables, strict=True):
    if sorted(table.column_names) != sorted(tables[0].column_names):
      _wrong(
        part,
        f'its columns are {_listed(table.column_names)}, but those of '
        f'{parts[0].name} are {_listed(tables[0].column_names)}.',
      )
  return _examples(path, parts, tables, whose, names, kinds, image_size)


def _json(path: pathlib.Path) -> dict[str, Any]:
  try:
    data_files.check(path)
    found = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError, RecursionError) as e:
    if isinstance(e, data_errors.DataError):
      raise
    raise data_errors.DataError(f'{path} is not valid JSON: {e}.') from e
  if not isinstance(found, dict):
    _wrong(path, 'an object of JSON was expected.')
  return found


def _saved_files(
  folder: pathlib.Path,
) -> tuple[list[pathlib.Path], dict[str, Any]]:
  """Returns the files of a saved dataset, and its columns' features."""
  state = _json(folder / _STATE)
  if state.get('_indices_files') or state.get('_indices_data_files'):
    _wrong(
      folder,
      'it selects rows by a file of indices; call flatten_indices() before '
      'save_to_disk().',
    )
  try:
    files = [entry['filename'] for entry in state['_data_files']]
    # Confined to this folder, whatever path is given.
    named = [isinstance(f, str) and pathlib.Path(f).name == f for f in files]
  except (KeyError, TypeError) as e:
    raise data_errors.DataError(
      f'{folder / _STATE}: a list _data_files of objects with a filename was '
      'expected.'
    ) from e
  if not files or not all(named):
    _wrong(folder / _STATE, f'names of files beside it were expected: {files}.')
  info = folder / _INFO
  kinds = _json(info).get('features') if info.exists() else {}
  if not isinstance(kinds, dict):
    _wrong(info, 'an object was expected for features.')
  return [folder / f for f in files], kinds


def _read_file(path: pathlib.Path) -> Any:
  """Reads a file as a `pyarrow.Table`."""
  import pyarrow
  from pyarrow import feather
  from pyarrow import parquet

  try:
    data_files.check(path)
    if path.suffix == '.parquet':
      with parquet.ParquetFile(path) as file:
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(g).total_byte_size for g in groups)
        data_files.check_size(path, size)
        table = file.read()
    elif path.suffix == '.feather':
      table = feather.read_table(path, memory_map=False)
    else:
      with pyarrow.OSFile(str(path)) as source:
        try:
          table = pyarrow.ipc.open_file(source).read_all()
        except pyarrow.ArrowInvalid:
          # The stream format, which datasets writes.
          source.seek(0)
          table = pyarrow.ipc.open_stream(source).read_all()
    # Untrusted content: offsets of strings may be out of bounds.
    table.validate(full=True)
    data_files.check_size(path, table.nbytes)
  except FileNotFoundError as e:
    raise data_errors.DataError(f'There is no file {path}.') from e
  except data_errors.DataError:
    raise
  except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as e:
    raise data_errors.DataError(
      f'{path} is no whole {path.suffix[1:].capitalize()} file: '
      f'{str(e).splitlines()[0] if str(e) else type(e).__name__}.'
    ) from e
  if not len(table):
    _wrong(path, 'it has no rows.')
  names = table.column_names
  if len(set(names)) < len(names):
    _wrong(path, f'it has duplicate columns; its columns are {_listed(names)}.')
  return table


def _listed(names: Sequence[str]) -> str:
  more = f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''
  return ', '.join(repr(name[:40]) for name in names[:_SHOWN]) + more


def _examples(
  path: pathlib.Path,
  parts: Sequence[pathlib.Path],
  tables: Sequence[Any],
  whose: Optional[Sequence[str]],
  names: columns.Names,
  kinds: dict[str, Any],
  image_size: Optional[int],
) -> columns.Examples:
  """Builds examples from the files' tables."""

  def column(name: str) -> list['_Cells']:
    return [
      _Cells(part, name, table.column(name), kinds.get(name))
      for part, table in zip(parts, tables, strict=True)
    ]

  found = tables[0].column_names
  text = [] if names.text is None else [names.text]
  wanted = text or (names.features and list(names.features))
  for name, what in (
    (names.label, 'the label'),
    (names.client, 'the client'),
    *((name, 'features') for name in wanted or ()),
  ):
    if name is not None and name not in found:
      _wrong(
        parts[0],
        f'it has no column {name!r} for {what}; its columns are '
        f'{_listed(found)}.',
      )
  client = names.client
  if client is None and columns.DEFAULT_CLIENT in found:
    client = columns.DEFAULT_CLIENT
  labels = np.concatenate([cells.tags() for cells in column(names.label)])
  clients = None
  if client is not None:
    tags = [cells.tags() for cells in column(client)]
    clients = np.concatenate(tags).astype(str).astype(object)
  elif whose is not None:
    rows = [len(table) for table in tables]
    clients = np.repeat(np.array(whose, object), rows)
  if names.text is not None:
    texts = [text for cells in column(names.text) for text in cells.texts()]
    features, described = columns.described_texts(path, names.text, texts)
    return columns.Examples(features, labels, clients, described)
  if wanted is None:
    wanted = [name for name in found if name not in (names.label, client)]
  if not wanted:
    _wrong(parts[0], 'it has no column for features.')
  for name in names.words:
    if name not in wanted:
      _wrong(
        parts[0],
        f'it has no column {name!r} among the features to treat as words.',
      )
  blocks, described_all = [], []
  for name in wanted:
    block, one = _feature(column(name), name in names.words, image_size)
    blocks.append(block)
    described_all.append(one)
  wide = [c.name for c in described_all if c.width > 1]
  words = [c.name for c in described_all if c.words]
  if wide and words:
    _wrong(
      parts[0],
      f'the column {wide[0]!r} has several numbers a row and {words[0]!r} has '
      'words, which cannot be combined; exclude one with --table_features.',
    )
  features = blocks[0]
  if len(blocks) > 1:
    flat = [block.reshape(len(block), -1) for block in blocks]
    features = np.concatenate(flat, axis=1)
    described_all = [
      columns.Column(c.name, c.words, c.missing, c.width) for c in described_all
    ]
  elif features.ndim == 1:
    features = features[:, np.newaxis]
  return columns.Examples(features, labels, clients, tuple(described_all))


class _Cells:
  """A column of one file.

  Attributes:
    where: File and column, for errors.
    kind: 'number', 'words', 'list', 'image', or Arrow's name of the type.
  """

  def __init__(self, path: pathlib.Path, name: str, chunks: Any, told: Any):
    """Takes the column's content.

    Args:
      path: The file.
      name: Name of the column.
      chunks: The column's cells, a `pyarrow.ChunkedArray`.
      told: The column's feature in a saved dataset.
    """
    import pyarrow
    from pyarrow import types

    self.name = name
    self.where = f'{path}, column {name!r}'
    array = chunks.combine_chunks()
    if isinstance(array, pyarrow.ChunkedArray):
      array = pyarrow.concat_arrays(array.chunks)
    # The storage type of registered extension types.
    if isinstance(array, pyarrow.ExtensionArray):
      array = array.storage
    if types.is_dictionary(array.type):
      array = array.dictionary_decode()
    self._array = array
    t = array.type
    if types.is_boolean(t) or types.is_integer(t) or types.is_floating(t):
      self.kind = 'number'
    elif types.is_decimal(t):
      self.kind, self._array = 'number', array.cast(pyarrow.float64())
    elif types.is_string(t) or types.is_large_string(t):
      self.kind = 'words'
    elif _is_list(t):
      self.kind = 'list'
    elif types.is_binary(t) or types.is_large_binary(t):
      self.kind = 'image'
    elif types.is_struct(t) and t.get_field_index('bytes') >= 0:
      self.kind, self._array = 'image', array.field('bytes')
    else:
      self.kind = str(t)
    classes = told.get('names') if isinstance(told, dict) else None
    self._classes = classes if isinstance(classes, list) else None

  def wrong(self, told: str, row: Optional[int] = None) -> NoReturn:
    _wrong(self.where if row is None else f'{self.where}, row {row}', told)

  def _whole(self) -> None:
    """Raises `DataError` if a cell is empty."""
    if self._array.null_count:
      valid = self._array.is_valid().to_numpy(zero_copy_only=False)
      self.wrong('it is empty.', int(np.argmin(valid)))

  def tags(self) -> np.ndarray:
    """Returns labels or client names: words or numbers, [rows]."""
    self._whole()
    if self.kind == 'words':
      return np.array(self._array.to_pylist(), object)
    if self.kind != 'number':
      self.wrong(f'words or numbers were expected, got {self._array.type}.')
    numbers = self._array.to_numpy(zero_copy_only=False)
    if self._classes is None:
      if numbers.dtype.kind == 'f' and np.isnan(numbers).any():
        row = int(np.argmax(np.isnan(numbers)))
        self.wrong('a word or a number was expected, got nan.', row)
      return numbers
    words = np.array(list(map(str, self._classes)), object)
    if numbers.dtype.kind != 'i' or not (
      numbers.min() >= 0 and numbers.max() < len(words)
    ):
      self.wrong(
        f'{numbers.min()} to {numbers.max()} are no numbers of the '
        f'{len(words)} classes that {_INFO} names.'
      )
    return words[numbers]

  def texts(self) -> list[str]:
    """Returns texts [rows], '' for empty cells."""
    if self.kind != 'words':
      self.wrong(f'text was expected, got {self._array.type}.')
    return [text or '' for text in self._array.to_pylist()]

  def numbers(self) -> np.ndarray:
    """Returns numbers, float32 [rows, ...], NaN for empty cells."""
    array, shape = self._array, [len(self._array)]
    while _is_list(array.type):
      if array.null_count:
        self._whole()
        self.wrong('a list in a list is empty.')
      count = len(array)
      offsets = array.value_lengths().to_numpy(zero_copy_only=False)
      if len(set(offsets.tolist())) > 1 or not offsets[0]:
        self.wrong(
          f'lists of one length were expected, got {offsets.min()} to '
          f'{offsets.max()} values.'
        )
      array = array.flatten()
      shape.append(len(array) // count)
    from pyarrow import types

    t = array.type
    if not (types.is_integer(t) or types.is_floating(t) or types.is_boolean(t)):
      self.wrong(f'numbers were expected, got {self._array.type}.')
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    values = array.to_numpy(zero_copy_only=False)
    with np.errstate(over='ignore', invalid='ignore'):
      found = np.where(valid, values, np.nan).astype(np.float32)
    # pandas writes empty cells as either null or NaN.
    wrong = np.isinf(found)
    if len(shape) > 1:
      wrong |= np.isnan(found)
    if wrong.any():
      place = int(np.argmax(wrong))
      self.wrong(
        f'a finite number was expected, got {found[place]}.',
        place // max(1, math.prod(shape[1:])),
      )
    return found.reshape(shape)

  def as_words(self) -> list[str]:
    """Returns words [rows], '' for empty cells, with numbers as text."""
    return [
      '' if cell is None else str(cell).strip()
      for cell in self._array.to_pylist()
    ]

  def images(self, size: Optional[int]) -> tuple[list[np.ndarray], list[str]]:
    """Returns images, and each one's location for errors."""
    found, places = [], []
    for row, content in enumerate(self._array):
      where = f'{self.where}, row {row}'
      data = content.as_py()
      if data is None:
        # Paths are not followed: they may lead anywhere.
        _wrong(where, 'the bytes of an image were expected, got none.')
      found.append(pictures.decode(data, where, size=size))
      places.append(where)
    return found, places


def _is_list(kind: Any) -> bool:
  """Returns whether an Arrow type is a list type."""
  from pyarrow import types

  return (
    types.is_list(kind)
    or types.is_large_list(kind)
    or types.is_fixed_size_list(kind)
  )


def _feature(
  parts: Sequence[_Cells], forced: bool, image_size: Optional[int]
) -> tuple[np.ndarray, columns.Column]:
  """Builds the features of a column of all files, and their `Column`."""
  first = parts[0]
  for cells in parts:
    if cells.kind != first.kind:
      cells.wrong(f'it holds {cells.kind}, but {first.where} {first.kind}.')
  if first.kind == 'image':
    images, places = [], []
    for cells in parts:
      found, where = cells.images(image_size)
      images += found
      places += where
    stacked = pictures.stack(images, places)
    column = columns.Column(first.name, width=stacked[0].size, image=True)
    return stacked, column
  if first.kind in ('number', 'list') and not forced:
    shapes = [cells.numbers() for cells in parts]
    if len({block.shape[1:] for block in shapes}) > 1:
      first.wrong('lists of one length were expected in all files.')
    block = np.concatenate(shapes)
    missing = int(np.isnan(block).sum())
    if missing == block.size:
      first.wrong('it is empty; exclude it with --table_features.')
    width = math.prod(block.shape[1:])
    return block, columns.Column(first.name, missing=missing, width=width)
  if first.kind not in ('words', 'number'):
    first.wrong(
      'numbers, words, lists of numbers or images were expected, got '
      f'{first.kind}; exclude it with --table_features.'
    )
  texts = [text for cells in parts for text in cells.as_words()]
  return columns.coded_words(first.where, first.name, texts)
