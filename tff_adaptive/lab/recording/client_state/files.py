"""Client states by client id, in an SQLite file."""

import contextlib
import dataclasses
import math
import pathlib
import sqlite3
import zlib
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording.checkpoints import folder as checkpoints

# Number of checkpoints whose states must stay readable: those that are kept,
# and the next one.
SAVES = checkpoints.KEEP + 1
PAGE = 65536
# One row per client and version. The index includes the checksums, so that
# they are summed without reading states.
_SCHEMA = (
  'CREATE TABLE states (client TEXT NOT NULL, version INTEGER NOT NULL, '
  'checksum INTEGER NOT NULL, leaves BLOB NOT NULL)',
  'CREATE UNIQUE INDEX versions ON states (client, version, checksum)',
  'CREATE TABLE saves (version INTEGER PRIMARY KEY)',
)
# From a damaged file, SQLite's messages may not be valid text, and lengths may
# exceed the memory.
_COMPLAINTS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
# The row of every client that is current at a version.
_SEEN = (
  'SELECT rowid, checksum, max(version) FROM states WHERE version <= ? '
  'GROUP BY client'
)
# Rows that are current neither at the latest nor at a saved version: the client
# has a newer row, and no version in between was saved.
_UNSEEN = (
  'DELETE FROM states AS old WHERE EXISTS (SELECT 1 FROM states AS new '
  'WHERE new.client = old.client AND new.version > old.version '
  'AND NOT EXISTS (SELECT 1 FROM saves '
  'WHERE saves.version >= old.version AND saves.version < new.version))'
)


@dataclasses.dataclass(frozen=True)
class Record:
  """The shapes and dtypes of one client's state.

  Attributes:
    shapes, dtypes: Shapes and dtypes of its arrays, flat.
  """

  shapes: tuple[tuple[int, ...], ...]
  dtypes: tuple[np.dtype, ...]

  @classmethod
  def of(cls, leaves: Sequence[np.ndarray]) -> 'Record':
    return cls(tuple(x.shape for x in leaves), tuple(x.dtype for x in leaves))

  @property
  def size(self) -> int:
    """Bytes of one client's state."""
    return sum(
      math.prod(shape) * dtype.itemsize
      for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
    )

  @property
  def size_on_disk(self) -> int:
    """Upper bound of the bytes that one client's state adds to the file."""
    return self.size + min(self.size, PAGE) + 128

  def pack(self, leaves: Sequence[np.ndarray]) -> bytes:
    return b''.join(np.ascontiguousarray(x).tobytes() for x in leaves)

  def unpack(self, data: bytes) -> list[np.ndarray]:
    leaves, start = [], 0
    for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
      count = math.prod(shape)
      leaf = np.frombuffer(data, dtype, count, start).reshape(shape)
      start += count * dtype.itemsize
      leaves.append(leaf)
    return leaves


def _with_companions(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns a database's file and the files that SQLite keeps beside it."""
  suffixes = ('', '-journal', '-wal', '-shm')
  return [path.with_name(path.name + suffix) for suffix in suffixes]


def _checksum(client: str, data: bytes) -> int:
  return zlib.crc32(data, zlib.crc32(client.encode('utf-8')))


class ClientStates:
  """Versioned client states, restorable to the versions of checkpoints.

  The version is incremented in each round that changes states. All changes
  between two checkpoints are one transaction, committed before the checkpoint
  is written. Whenever a run is killed, the file holds the states of the last
  checkpoint and of the three before it. A checkpoint holds the version, the
  number of clients that have a state, and the sum of their checksums.

  SQLite uses a rollback journal instead of a write-ahead log. A log would write
  every state twice (1.2 times as long for 10 x 1.2 M weights a round) and needs
  memory shared through the file system, which network file systems lack. The
  journal stays small, because states are added or replace pruned ones.
  """

  def __init__(
    self,
    record: Record,
    path: Optional[pathlib.Path] = None,
    *,
    in_memory: bool = False,
  ):
    """Creates the store; the file is created with the first state.

    Args:
      record: The shapes and dtypes of one client's state.
      path: The file. Without one, states cannot be resumed.
      in_memory: Whether the latest states are also held in memory, so that the
        file is read only on resuming and written only at checkpoints.
    """
    self.in_memory = in_memory
    self._record = record
    self._path = path
    self._db: Optional[sqlite3.Connection] = None
    self._resumed = False
    self._version = 0
    self._complete = True  # Whether the next `put` starts a new version.
    self._saved = 0
    self._changed: set[str] = set()
    self._held: dict[str, tuple[int, list[np.ndarray]]] = {}
    self._lost = ''

  @property
  def _where(self) -> str:
    return str(self._path or 'memory')

  @property
  def _file(self) -> sqlite3.Connection:
    """The open database; emptied unless resumed from a checkpoint."""
    if self._db is None:
      if self._path is not None:
        files.make_folder(self._path.parent)
        if not self._resumed:
          for path in _with_companions(self._path):
            path.unlink(missing_ok=True)
      self._db = self._connect()
      if not self._resumed:
        for statement in _SCHEMA:
          self._db.execute(statement)
    return self._db

  def _connect(self) -> sqlite3.Connection:
    connection = sqlite3.connect(
      self._path or ':memory:',
      timeout=60,
      isolation_level=None,
      check_same_thread=False,
    )
    for pragma in (
      f'page_size = {PAGE}',
      'journal_mode = DELETE',
      # Makes the deletion of the journal durable, so that it cannot reappear.
      'synchronous = EXTRA',
      'secure_delete = OFF',
      # The file may have been manipulated.
      'trusted_schema = OFF',
      'cell_size_check = ON',
      'temp_store = MEMORY',
    ):
      connection.execute(f'PRAGMA {pragma}')
    return connection

  def _begin(self) -> sqlite3.Connection:
    """Returns the database, in the transaction that the next `save` commits."""
    if not self._file.in_transaction:
      self._file.execute('BEGIN IMMEDIATE')
    return self._file

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    """Converts SQLite's errors to `RunError`.

    After an error, changes since the last checkpoint are lost, because SQLite
    may have rolled them back. Only states held in memory can be written again.
    """
    if self._lost:
      raise errors.RunError(self._lost)
    try:
      yield
    except (*_COMPLAINTS, OSError) as e:
      sentence = (
        f'The client states cannot be written to {self._where}: '
        f'{getattr(e, "strerror", None) or errors.reason(e)}.'
      )
      if not self.in_memory:
        self._lost = sentence
      if self._db is not None and self._db.in_transaction:
        with contextlib.suppress(sqlite3.Error):  # As SQLite may have done.
          self._db.execute('ROLLBACK')
      raise errors.RunError(sentence) from e

  def get(self, client: str) -> Optional[list[np.ndarray]]:
    """Returns a client's arrays, or `None` if it has no state yet.

    Raises:
      DamagedError: If the file does not hold what was written.
    """
    if self.in_memory:
      return self._held[client][1] if client in self._held else None
    if self._lost:
      raise errors.RunError(self._lost)
    if self._db is None:
      return None
    try:
      row = self._db.execute(
        'SELECT client, checksum, leaves FROM states WHERE client = ? '
        'ORDER BY version DESC LIMIT 1',
        (client,),
      ).fetchone()
    except _COMPLAINTS as e:
      raise self._damaged(e) from e
    return None if row is None else self._checked(*row)

  def _damaged(self, error: Exception) -> errors.DamagedError:
    return errors.DamagedError(
      f'{self._where} cannot be read: {errors.reason(error)}.'
    )

  def _checked(self, client: Any, checksum: Any, data: Any) -> list[np.ndarray]:
    """Unpacks a row.

    Raises:
      DamagedError: If it is damaged, or of another model.
    """
    if not (
      isinstance(client, str)
      and isinstance(data, bytes)
      and _checksum(client, data) == checksum
    ):
      raise errors.DamagedError(
        f'{self._where} does not hold the state of client {client!r} that was '
        'written to it.'
      )
    if len(data) != self._record.size:
      raise errors.DamagedError(
        f'{self._where} holds client states of another model: {len(data):,} '
        f'bytes per client, expected {self._record.size:,}.'
      )
    return self._record.unpack(data)

  def put(self, client: str, leaves: list[np.ndarray]) -> None:
    """Stores a client's arrays; `roll_back` restores the previous ones.

    Raises:
      RunError: If they cannot be written.
    """
    if self._complete:
      self._version += 1
      self._complete = False
    self._changed.add(client)
    if self.in_memory:
      self._held[client] = self._version, leaves
    else:
      with self._writing():
        self._insert(client, self._version, leaves)

  def _insert(
    self, client: str, version: int, leaves: Sequence[np.ndarray]
  ) -> None:
    data = self._record.pack(leaves)
    file = self._begin()
    file.execute(
      'DELETE FROM states WHERE client = ? AND version = ?', (client, version)
    )
    file.execute(
      'INSERT INTO states VALUES (?, ?, ?, ?)',
      (client, version, _checksum(client, data), data),
    )

  def snapshot(self) -> Any:
    """Returns a snapshot for `roll_back`, valid until the next one or `save`.

    Raises:
      RunError: If the file cannot be written.
    """
    self._complete = True
    if self.in_memory:
      return self._version, dict(self._held), set(self._changed)
    if self._changed:
      # Only the latest version since the last checkpoint is needed.
      with self._writing():
        self._begin().executemany(
          'DELETE FROM states WHERE client = ? AND version > ? AND version < ?',
          [(client, self._saved, self._version) for client in self._changed],
        )
      self._changed = set()
    return self._version, {}, set()

  def roll_back(self, snapshot: Any) -> None:
    """Reverts all changes since a snapshot.

    Raises:
      RunError: If the file cannot be written.
    """
    undone = self._version
    self._version, held, changed = snapshot
    self._complete = True
    # Copies, because a round may be retried more than once.
    self._held, self._changed = dict(held), set(changed)
    if not self.in_memory and undone > self._version:
      with self._writing():
        self._drop_later()

  def _drop_later(self) -> None:
    for table in ('states', 'saves'):
      self._begin().execute(
        f'DELETE FROM {table} WHERE version > ?', (self._version,)
      )

  def save(self) -> dict[str, Any]:
    """Commits all states; returns the entries for a checkpoint.

    Raises:
      RunError: If the file cannot be written.
    """
    self._complete = True
    count = total = 0
    if self._version:
      with self._writing():
        file = self._begin()
        for client in sorted(self._changed) if self.in_memory else ():
          self._insert(client, *self._held[client])
        file.execute('INSERT OR IGNORE INTO saves VALUES (?)', (self._version,))
        file.execute(
          'DELETE FROM saves WHERE version NOT IN '
          '(SELECT version FROM saves ORDER BY version DESC LIMIT ?)',
          (SAVES,),
        )
        # Last, because pages freed here are reused by the next transaction
        # without a journal.
        file.execute(_UNSEEN)
        count, total = file.execute(
          f'SELECT count(*), sum(checksum) FROM ({_SEEN})', (self._version,)
        ).fetchone()
        file.execute('COMMIT')
      self._saved = self._version
      self._changed = set()
    return {
      'version': np.int64(self._version),
      'clients': np.int64(count),
      'checksum': np.int64(total),
    }

  def restore(
    self, saved: dict[str, Any], client_ids: Optional[Collection[str]] = None
  ) -> None:
    """Restores the states of a checkpoint, after reading all of them once.

    Later versions are removed by the next `save`, not before.

    Args:
      saved: The entries returned by `save`.
      client_ids: The task's clients, to check against; by default any.

    Raises:
      DamagedError: If the file does not hold the states of the checkpoint.
      RunError: If the states belong to another population.
    """
    version, clients, checksum = (
      int(saved[key]) for key in ('version', 'clients', 'checksum')
    )
    self._resumed = clients > 0
    self._complete = True
    self._version = self._saved = version
    self._changed, self._held, self._lost = set(), {}, ''
    if not self._resumed:
      self._close()
      return
    try:
      self._open_again()
      self._drop_later()
      count, total = self._read_all(version, client_ids)
    except _COMPLAINTS as e:
      raise self._damaged(e) from e
    except OSError as e:
      raise errors.DamagedError(
        f'{self._where} cannot be read: {e.strerror or e}.'
      ) from e
    if (count, total) != (clients, checksum):
      raise errors.DamagedError(
        f'{self._where} does not hold the states of {clients:,} clients that '
        'the checkpoint is of.'
      )

  def _close(self) -> None:
    if self._db is not None:
      self._db.close()  # Rolls back uncommitted changes.
      self._db = None

  def _open_again(self) -> None:
    """Reopens the file as last committed, and checks it."""
    if self._db is not None:
      if self._db.in_transaction:
        self._db.execute('ROLLBACK')
      return
    if self._path is None:
      raise FileNotFoundError('it was in the memory of another process')
    if not self._path.exists():
      raise errors.DamagedError(f'{self._path} does not exist.')
    for path in _with_companions(self._path):
      if path.exists():
        files.check_regular(path)
    connection = self._connect()
    try:
      found = connection.execute('SELECT sql FROM sqlite_master').fetchall()
      if sorted(found, key=str) != sorted([(s,) for s in _SCHEMA], key=str):
        raise errors.DamagedError(
          f'{self._path} is not a file of client states of tff-adaptive.'
        )
      state = connection.execute('PRAGMA quick_check(1)').fetchone()[0]
      if state != 'ok':
        raise errors.DamagedError(
          f'{self._path} is damaged: {state.splitlines()[-1]}.'
        )
    except BaseException:
      connection.close()
      raise
    self._db = connection

  def _read_all(
    self, version: int, client_ids: Optional[Collection[str]]
  ) -> tuple[int, int]:
    """Reads all client states; returns their number and sum of checksums.

    Reads in the order of the file, which may be larger than memory.
    """
    known = None if client_ids is None else frozenset(client_ids)
    count = total = 0
    for client, number, checksum, data in self._file.execute(
      'SELECT client, version, checksum, leaves FROM states WHERE rowid IN '
      f'(SELECT rowid FROM ({_SEEN}))',
      (version,),
    ):
      leaves = self._checked(client, checksum, data)
      if known is not None and client not in known:
        raise errors.RunError(
          'The checkpoint holds client states of another population: '
          f'{client!r} is not among the {len(known):,} clients of this task.'
        )
      if self.in_memory:
        self._held[client] = number, leaves
      count += 1
      total += checksum
    return count, total
