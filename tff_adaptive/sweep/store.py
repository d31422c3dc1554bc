"""What a sweep knows of its runs: one SQLite table, with a copy as CSV."""

import contextlib
import csv
import io
import json
import pathlib
import sqlite3
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.recording import files
from tff_adaptive.sweep import grids

# What becomes of a run. `running` in a table that nobody works on is a run
# that was killed: it is taken up again.
WAITING = 'waiting'
RUNNING = 'running'
FINISHED = 'finished'
DIVERGED = 'diverged'
FAILED = 'failed'
PRUNED = 'pruned'
OVER = (FINISHED, DIVERGED, FAILED, PRUNED)

# The columns of numbers, as `selection.measures` calls them.
MEASURES = (
  'train/loss',
  'train/metric',
  'validation/loss',
  'validation/metric',
  'best/metric',
  'recent/metric',
  'last/loss',
  'test/loss',
  'test/metric',
  'megabytes',
  'seconds',
)
_FORMAT = '1'
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
  name TEXT PRIMARY KEY,
  position INTEGER NOT NULL,
  flags TEXT NOT NULL,
  settings TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  rounds INTEGER NOT NULL DEFAULT 0,
  metric TEXT,
  {', '.join(f'"{m}" REAL' for m in MEASURES)}
);
"""


class Store:
  """The table of a sweep's folder; use as a context manager.

  Every change is a transaction of SQLite's: whoever is killed in one leaves
  the table as it was before.
  """

  def __init__(self, folder: pathlib.Path):
    self.path = files.RunFolder(folder).sweep
    self.csv = pathlib.Path(folder) / 'results.csv'
    self._connection: Optional[sqlite3.Connection] = None

  def __enter__(self) -> 'Store':
    """Opens the table, making it if there is none.

    Raises:
      SettingsError: If the file is no sweep's table.
    """
    with self._complaints():
      self._connection = sqlite3.connect(self.path)
      self._connection.row_factory = sqlite3.Row
      # Rows are durable once written, without a journal beside the file.
      self._connection.execute('PRAGMA synchronous = FULL')
      with self._connection:
        self._connection.executescript(_SCHEMA)
        self._connection.execute(
          'INSERT OR IGNORE INTO sweep VALUES (?, ?)', ('format', _FORMAT)
        )
      found = self.get('format')
    if found != _FORMAT:
      self.__exit__()
      raise errors.SettingsError(
        f'{self.path} was written by another version of this program (format '
        f'{found}, this one reads {_FORMAT}); choose another '
        '--experiment_name.'
      )
    return self

  def __exit__(self, *exc_info: Any) -> None:
    if self._connection is not None:
      self._connection.close()
      self._connection = None

  @contextlib.contextmanager
  def _complaints(self) -> Iterator[None]:
    try:
      yield
    # SQLite says some things in the words of a damaged file, as bytes; a column
    # whose name was damaged is an IndexError.
    except (sqlite3.Error, ValueError, TypeError, IndexError) as e:
      if isinstance(e, sqlite3.OperationalError):
        raise errors.RunError(
          f'{self.path} cannot be written: {errors.reason(e)}.'
        ) from e
      if self._connection is not None:
        self._connection.close()
      raise errors.SettingsError(
        f"{self.path} cannot be used as a sweep's table "
        f'({errors.reason(e)}); move it away, and the same command makes it '
        "anew from the runs' folders."
      ) from e

  @property
  def _db(self) -> sqlite3.Connection:
    assert self._connection is not None, 'the store is not open'
    return self._connection

  def get(self, key: str) -> Optional[str]:
    """A word about the sweep as a whole."""
    with self._complaints():
      row = self._db.execute(
        'SELECT value FROM sweep WHERE key = ?', (key,)
      ).fetchone()
    return None if row is None else row['value']

  def put(self, key: str, value: str) -> None:
    """Keeps a word about the sweep as a whole."""
    with self._complaints(), self._db:
      self._db.execute('REPLACE INTO sweep VALUES (?, ?)', (key, value))

  def add(
    self, points: Sequence[grids.Point], *, complete: bool = True
  ) -> None:
    """Takes points in; those that are there already must be the same ones.

    Args:
      points: The sweep's points.
      complete: Whether these are all: then a run in the table that is not
        among them is one of another sweep.

    Raises:
      SettingsError: If the folder holds another sweep; nothing is changed.
    """
    folder = self.path.parent
    before = {r['name']: r for r in self.rows()}
    strangers = sorted(set(before) - {p.name for p in points})
    if complete and strangers:
      raise errors.SettingsError(
        f'{folder} holds another sweep, with {len(strangers)} runs that are '
        f'not of this one, such as {strangers[0]}: choose another '
        '--experiment_name, or give the axes that it was started with (an axis '
        'may have more values than before).'
      )
    for point in points:
      if point.name in before:
        settings_lib.check_same(
          before[point.name]['settings'],
          _plain(point.settings.identity),
          folder / 'runs' / point.name,
        )
    with self._complaints(), self._db:
      for position, point in enumerate(points):
        self._db.execute(
          'INSERT INTO runs (name, position, flags, settings, status) '
          'VALUES (?, ?, ?, ?, ?) '
          'ON CONFLICT (name) DO UPDATE SET position = excluded.position',
          (
            point.name,
            position if complete else len(before) + position,
            json.dumps(dict(point.flags)),
            json.dumps(_plain(point.settings.identity)),
            WAITING,
          ),
        )

  def rows(self) -> list[dict[str, Any]]:
    """All runs in the order of the sweep."""
    with self._complaints():
      rows = self._db.execute('SELECT * FROM runs ORDER BY position').fetchall()
      return [
        {
          **dict(row),
          'flags': _object(row['flags']),
          'settings': _object(row['settings']),
        }
        for row in rows
      ]

  def set(
    self,
    name: str,
    status: str,
    *,
    reason: Optional[str] = None,
    rounds: Optional[int] = None,
    metric: Optional[str] = None,
    measures: Optional[Mapping[str, float]] = None,
  ) -> None:
    """Records what became of a run."""
    values: dict[str, Any] = {'status': status, 'reason': reason}
    if rounds is not None:
      values['rounds'] = rounds
    if metric is not None:
      values['metric'] = metric
    for key in MEASURES if measures is not None else ():
      values[key] = measures.get(key) if measures is not None else None
    assignments = ', '.join(f'"{key}" = ?' for key in values)
    with self._complaints(), self._db:
      self._db.execute(
        f'UPDATE runs SET {assignments} WHERE name = ?',
        (*values.values(), name),
      )

  def export(self) -> None:
    """Writes results.csv: a row a run, a column for each flag of the sweep."""
    rows = self.rows()
    flags = list(dict.fromkeys(f for row in rows for f in row['flags']))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator='\n')
    rest = ('status', 'reason', 'rounds', 'metric', *MEASURES)
    # A flag that is called like one of these columns keeps its dashes.
    writer.writerow(
      ['name', *(f'--{f}' if f in rest else f for f in flags), *rest]
    )
    for row in rows:
      cells = [row['flags'].get(f) for f in flags] + [row[c] for c in rest]
      writer.writerow([row['name'], *('' if c is None else c for c in cells)])
    files.write_atomically(self.csv, buffer.getvalue().encode('utf-8'))


def _object(text: str) -> dict[str, Any]:
  """What a cell with a JSON object says."""
  found = json.loads(text)
  if not isinstance(found, dict):
    raise ValueError(f'an object was expected, got {text[:40]!r}')
  return found


def _plain(identity: Mapping[str, Any]) -> dict[str, Any]:
  """Settings as they come back from JSON."""
  return json.loads(json.dumps(dict(identity)))
