"""Tables of a run: CSV files with rows by round."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lazy import pandas as pd

# The end of messages about damaged files.
ADVICE = "restore it or delete the run's folder"
# Groups of columns that are added to the last row at the end of the run.
_FINAL = ('test/', 'test_ema/', 'per_client/', 'per_client_tuned/')


def cell_of(client: str) -> str:
  """Escapes a client's id, as JSON does, so that it is one cell of a line.

  Ids may hold line breaks and bytes that are not UTF-8 (lone surrogates), and
  begin like a formula of a spreadsheet.
  """
  text = json.dumps(client, ensure_ascii=False)[1:-1].replace('\\"', '"')
  text = formatting.printable(text.replace('\x7f', '\\u007f'))
  return f"'{text}" if text[:1] == "'" else formatting.spreadsheet_cell(text)


def _cell(column: str, value: Any) -> str:
  """Formats a value with the fewest digits that identify it."""
  if column == 'client':
    return cell_of(value)
  if isinstance(value, (bool, np.bool_)):
    value = int(value)
  return '' if value is None else str(value)


def _lines(rows: Iterable[Iterable[str]]) -> str:
  buffer = io.StringIO()
  csv.writer(buffer, lineterminator='\n').writerows(rows)
  return buffer.getvalue()


def parse(text: str) -> pd.DataFrame:
  """Parses a CSV file as text; raises `ValueError` if rows are too long."""
  table = pd.read_csv(
    io.StringIO(text), dtype=object, keep_default_na=False, lineterminator='\n'
  )
  if not isinstance(table.index, pd.RangeIndex):
    raise ValueError('its rows have more cells than its head')
  return table


class RowFile:
  """A CSV file with rows by round, and the round in the first column.

  TFF's `CSVFileReleaseManager` is not used. It appends a row in place, so that
  a run killed in between leaves half a line, which its next start cannot read;
  its column order is not stable if rows differ in their columns; and every new
  column rereads the whole file through the event loop. Here a row is one write
  of one line. All other changes (new columns, rows dropped on resuming) rewrite
  the file atomically.
  """

  def __init__(self, path: pathlib.Path):
    """Reads existing rows, except an incomplete last line.

    Raises:
      RunError: If the file was not written by a run.
    """
    self.path = path
    self.columns: list[str] = []
    self.rows: list[dict[str, str]] = []
    # Number of rows in `checksum`, and their sum.
    self._summed = self._sum = 0
    try:
      content = files.read(path)
      # A line may be cut off within a letter.
      if complete := content[: content.rfind(b'\n') + 1]:
        self._parse(complete.decode('utf-8'))
    except FileNotFoundError:
      return
    except (OSError, ValueError) as e:
      raise errors.RunError(
        f'{path} cannot be read as a table of a run: {errors.reason(e)}; '
        f'{ADVICE}.'
      ) from e

  def _parse(self, text: str) -> None:
    """Parses complete lines; raises `ValueError` if no run wrote them."""
    table = parse(text)
    if table.columns[0] != 'round':
      raise ValueError('its first column is not "round"')
    if not table['round'].astype(int).is_monotonic_increasing:
      raise ValueError('its rounds are not in order')
    table.drop(columns='client', errors='ignore').replace('', '0').astype(float)
    self.columns, self.rows = list(table), table.to_dict('records')

  @property
  def numbers(self) -> list[dict[str, float]]:
    """The rows as numbers, without empty cells."""
    return [{k: float(v) for k, v in row.items() if v} for row in self.rows]

  def checksum(self, last_round: int) -> np.ndarray:
    """Returns the number of rows up to a round, and their CRC-32.

    It does not depend on columns that only other rows have, nor on final
    values, which are added to the last row after its checkpoint.
    """
    for row in self.rows[self._summed :]:
      if int(row['round']) > last_round:
        break
      cells = [
        f'{name}={value}'
        for name, value in sorted(row.items())
        if value and not name.startswith(_FINAL)
      ]
      self._sum = zlib.crc32('\n'.join(cells).encode('utf-8'), self._sum)
      self._summed += 1
    return np.array([self._summed, self._sum])

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
    texts = {
      sys.intern(name): _cell(name, value) for name, value in row.items()
    }
    self.rows.append(texts)
    if not set(texts) <= set(self.columns):
      self._rewrite()
      return
    line = _lines([[texts.get(name, '') for name in self.columns]])
    with files.writing(self.path), open(self.path, 'ab') as file:
      file.write(line.encode('utf-8'))

  def sync(self) -> None:
    """Flushes the rows to disk.

    Raises:
      RunError: If they cannot be written.
    """
    with files.writing(self.path), open(self.path, 'rb') as file:
      os.fsync(file.fileno())

  def set_final(self, values: Mapping[str, Any]) -> None:
    """Replaces the final values in the last row, if there is one."""
    for row in self.rows[-1:]:
      for name in [n for n in row if n.startswith(_FINAL)]:
        row[name] = ''
      row.update((name, _cell(name, value)) for name, value in values.items())
      self._rewrite()

  def _rewrite(self) -> None:
    new = [n for row in self.rows[-1:] for n in row if n not in self.columns]
    self.columns = sorted(self.columns + new, key=_place)
    rows = ([row.get(name, '') for name in self.columns] for row in self.rows)
    text = _lines([self.columns, *rows])
    files.write_atomically(self.path, text.encode('utf-8'))


def write(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
  """Writes a table as a CSV file, with the columns of the first row.

  Raises:
    RunError: If it cannot be written.
  """
  head = list(rows[0])
  cells = ([_cell(name, row.get(name)) for name in head] for row in rows)
  files.write_atomically(path, _lines([head, *cells]).encode('utf-8'))


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
