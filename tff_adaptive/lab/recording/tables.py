"""Tables of a run: CSV files with rows by round."""

import csv
import errno
import io
import math
import os
import pathlib
import re
import sys
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.recording import files

# The end of messages about damaged files.
ADVICE = "restore it or delete the run's folder"
_FINITE = r'[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?'
_NOT_FINITE = r'[-+]?inf|nan'
# Far beyond float32, and small enough that sums do not overflow.
_LARGEST = 1e100
# Columns that the program counts or measures, finite even if training diverges.
_COUNTED = re.compile(
  r'seconds(/.*)?|bytes_(down|up)|clients/(count|empty|rejected|failed)'
  '|(virtual|staleness)/.*'
)


def _is_number(cell: str, column: str) -> bool:
  """Returns whether a cell holds a number as a run writes it."""
  if re.fullmatch(_NOT_FINITE, cell):
    return not _COUNTED.fullmatch(column)
  return bool(
    re.fullmatch(_FINITE, cell) and math.fabs(float(cell)) <= _LARGEST
  )


def _text(value: Any) -> str:
  """Formats a value with the fewest digits that identify it."""
  if value is None:
    return ''
  if isinstance(value, np.generic) and not isinstance(value, np.floating):
    value = value.item()
  return str(int(value) if isinstance(value, bool) else value)


class RowFile:
  """A CSV file with one row per round and the round in the first column.

  TFF's `CSVFileReleaseManager` is not used. It appends a row in place, so that
  a run killed in between leaves half a line, which its next start cannot read;
  its column order is not stable if rows differ in their columns; and every new
  column rereads the whole file through the event loop. Here a row is one write
  of one line. All other changes (new columns, rows dropped on resuming) rewrite
  the file atomically.
  """

  # Columns without numbers, and allowed differences of successive rounds.
  _WORDS: frozenset[str] = frozenset()
  _MAY_BE_LATER: Container[int] = (1,)

  def __init__(self, path: pathlib.Path):
    """Reads existing rows, except an incomplete last line.

    Raises:
      RunError: If the file was not written by a run.
    """
    self.path = path
    self.columns: list[str] = []
    self.rows: list[dict[str, str]] = []
    try:
      text = files.read(path).decode('utf-8')
    except FileNotFoundError:
      return
    except (OSError, UnicodeDecodeError) as e:
      raise errors.RunError(
        f'{path} cannot be read: {errors.reason(e)}; {ADVICE}.'
      ) from e
    complete = text[: text.rfind('\n') + 1]
    try:
      lines = list(csv.reader(io.StringIO(complete), strict=True))
    except csv.Error as e:
      raise errors.RunError(
        f'{path} is not a complete CSV file: {e}; {ADVICE}.'
      ) from e
    if not lines:
      return
    self.columns = lines[0]
    if self.columns[:1] != ['round']:
      raise errors.RunError(
        f'{path} was not written by a run: its first column is not "round"; '
        f'{ADVICE}.'
      )
    for number, line in enumerate(lines[1:], start=2):
      row = dict(zip(self.columns, line, strict=False))
      if len(row) != len(line) or not self._may_follow(row):
        raise errors.RunError(f'{path} is damaged in line {number}; {ADVICE}.')
      self.rows.append(row)

  @property
  def numbers(self) -> list[dict[str, float]]:
    """The rows as numbers, without empty cells."""
    return [{k: float(v) for k, v in row.items() if v} for row in self.rows]

  def _may_follow(self, row: Mapping[str, str]) -> bool:
    """Returns whether a row is well-formed and of an allowed next round."""
    if len(row) != len(self.columns) or not re.fullmatch(
      '[0-9]{1,9}', row['round']
    ):
      return False
    if self.rows:
      later = int(row['round']) - int(self.rows[-1]['round'])
      if later not in self._MAY_BE_LATER:
        return False
    return all(
      _is_number(cell, name)
      for name, cell in row.items()
      if cell and name not in self._WORDS
    )

  def drop_after(self, last_round: int) -> int:
    """Drops the rows of later rounds; returns their number."""
    kept = [row for row in self.rows if int(row['round']) <= last_round]
    dropped = len(self.rows) - len(kept)
    # Rewritten even if nothing is dropped, to remove an incomplete line.
    self.rows = kept
    if self.columns:
      self._rewrite()
    return dropped

  def append(self, row: Mapping[str, Any]) -> None:
    """Appends a row; missing columns stay empty.

    New columns are inserted in the documented order: round, training,
    validation and test metrics, then costs.

    Raises:
      RunError: If the row cannot be written.
    """
    # `intern` shares the names of columns between rows.
    texts = {sys.intern(name): _text(value) for name, value in row.items()}
    self.rows.append(texts)
    if self._add_columns(texts):
      self._rewrite()
      return
    line = self._line(texts.get(name, '') for name in self.columns)
    data = line.encode('utf-8')
    try:
      with open(self.path, 'ab', buffering=0) as file:
        # A nearly full disk writes a part without raising an error.
        written = file.write(data)
        if written != len(data):
          raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as e:
      raise self._error(e) from e

  def _error(self, error: OSError) -> errors.RunError:
    return errors.RunError(
      f'{self.path} cannot be written: {error.strerror or error}.'
    )

  def sync(self) -> None:
    """Flushes the rows to disk.

    Raises:
      RunError: If they cannot be written.
    """
    try:
      with open(self.path, 'rb') as file:
        os.fsync(file.fileno())
    except OSError as e:
      raise self._error(e) from e

  def extend_last(self, values: Mapping[str, Any]) -> None:
    """Adds values to the last row."""
    texts = {name: _text(value) for name, value in values.items()}
    self.rows[-1] = self.rows[-1] | texts
    self._add_columns(texts)
    self._rewrite()

  def clear_last(self, prefixes: tuple[str, ...]) -> None:
    """Empties the last row's cells in columns with one of the prefixes."""
    if not self.rows:
      return
    found = [
      c for c, v in self.rows[-1].items() if v and c.startswith(prefixes)
    ]
    if found:
      self.rows[-1] = {**self.rows[-1], **dict.fromkeys(found, '')}
      self._rewrite()

  def _add_columns(self, names: Iterable[str]) -> bool:
    new = [name for name in names if name not in self.columns]
    self.columns = sorted(self.columns + new, key=_place)
    return bool(new)

  def _line(self, cells: Iterable[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator='\n').writerow(cells)
    return buffer.getvalue()

  def _rewrite(self) -> None:
    lines = [self._line(self.columns)]
    for row in self.rows:
      lines.append(self._line(row.get(name, '') for name in self.columns))
    files.write_atomically(self.path, ''.join(lines).encode('utf-8'))


def write(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
  """Writes a table as a CSV file, with the columns of the first row.

  Raises:
    RunError: If it cannot be written.
  """
  buffer = io.StringIO()
  writer = csv.writer(buffer, lineterminator='\n')
  writer.writerow(rows[0])
  for row in rows:
    writer.writerow(_text(row.get(name)) for name in rows[0])
  files.write_atomically(path, buffer.getvalue().encode('utf-8'))


_GROUPS = (
  'round',
  'train',
  'validation',
  'ema',
  'test',
  'test_ema',
  'per_client',
  'per_client_tuned',
  'clients',
  'update',
  'drift',
  'step_size',
  'seconds',
  'bytes_down',
  'bytes_up',
  'virtual',
  'staleness',
)


def _place(column: str) -> tuple[int, int]:
  """Returns a sort key that orders columns by group, with the loss first."""
  group, _, name = column.partition('/')
  place = _GROUPS.index(group) if group in _GROUPS else len(_GROUPS)
  return place, 0 if name == 'loss' else 1
