"""Tables of a run: CSV files with rows by round."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pathlib
import sys
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lazy import pandas as pd

# The end of messages about damaged files.
ADVICE = "restore it or delete the run's folder"
# Columns without numbers: ids of clients, which may be any text.
_WORDS = ('client',)


def _text(value: Any) -> str:
  """Formats a value with the fewest digits that identify it."""
  if value is None:
    return ''
  if isinstance(value, np.generic) and not isinstance(value, np.floating):
    value = value.item()
  return str(int(value) if isinstance(value, bool) else value)


def cell_of(client: str) -> str:
  """Escapes a client's id, as JSON does, so that it is one cell of a line.

  Ids may hold line breaks and bytes that are not UTF-8 (lone surrogates), and
  begin like a formula of a spreadsheet.
  """
  text = json.dumps(client, ensure_ascii=False)[1:-1].replace('\\"', '"')
  text = formatting.printable(text.replace('\x7f', '\\u007f'))
  return f"'{text}" if text[:1] == "'" else formatting.spreadsheet_cell(text)


def client_of(cell: str) -> str:
  """Reverses `cell_of`."""
  escaped = cell.removeprefix("'").replace('"', '\\"')
  client: str = json.loads(f'"{escaped}"')
  return client


def _cell(column: str, value: Any) -> str:
  return cell_of(value) if column in _WORDS else _text(value)


class RowFile:
  """A CSV file with one row per round and the round in the first column.

  TFF's `CSVFileReleaseManager` is not used. It appends a row in place, so that
  a run killed in between leaves half a line, which its next start cannot read;
  its column order is not stable if rows differ in their columns; and every new
  column rereads the whole file through the event loop. Here a row is one write
  of one line. All other changes (new columns, rows dropped on resuming) rewrite
  the file atomically.
  """

  # Whether a round has exactly one row.
  _every_round = True

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
      complete = text[: text.rfind('\n') + 1]
      if complete:
        self._parse(complete)
    except FileNotFoundError:
      return
    except (OSError, ValueError) as e:
      raise errors.RunError(
        f'{path} cannot be read as a table of a run: {errors.reason(e)}; '
        f'{ADVICE}.'
      ) from e

  def _parse(self, text: str) -> None:
    """Parses complete lines; raises `ValueError` if no run wrote them."""
    table = pd.read_csv(
      io.StringIO(text),
      dtype=object,
      keep_default_na=False,
      lineterminator='\n',
      index_col=False,
    )
    self.columns = list(table)
    if self.columns[:1] != ['round']:
      raise ValueError('its first column is not "round"')
    cells = table.drop(columns=[c for c in _WORDS if c in table])
    rounds = cells.replace('', 'nan').astype(float)['round']
    steps = rounds.diff().iloc[1:]
    wrong = steps.ne(1) if self._every_round else ~steps.ge(0)
    if wrong.any():
      raise ValueError(f'line {wrong.idxmax() + 2} is not of the next round')
    self.rows = table.to_dict('records')

  @property
  def numbers(self) -> list[dict[str, float]]:
    """The rows as numbers, without empty cells."""
    return [{k: float(v) for k, v in row.items() if v} for row in self.rows]

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
    texts = {name: _cell(name, value) for name, value in values.items()}
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
    writer.writerow(_cell(name, row.get(name)) for name in rows[0])
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
