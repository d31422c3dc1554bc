"""Client states between rounds, by client id, in memory and an SQLite file."""

import contextlib
import math
import pathlib
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files

PAGE = 65536
# One row per client and version. The key includes the checksums, so that they
# are summed without reading states.
_SCHEMA = (
  'CREATE TABLE states (client BLOB, version INTEGER, checksum INTEGER, '
  'leaves BLOB, PRIMARY KEY (client, version, checksum))'
)
# The row of every client that is current at a version.
_CURRENT = (
  'SELECT client, checksum, {} max(version) FROM states WHERE version <= ? '
  'GROUP BY client'
)
# Rows that a newer one has replaced at a version and since.
_REPLACED = (
  'DELETE FROM states AS old WHERE EXISTS (SELECT 1 FROM states AS new WHERE '
  'new.client = old.client AND new.version > old.version AND new.version <= ?)'
)
_FILES = ('', '-journal', '-wal', '-shm')
# From a damaged file, SQLite's messages may not be valid text, and lengths may
# exceed the memory.
_COMPLAINTS = (sqlite3.Error, UnicodeDecodeError, MemoryError, OSError)


def _key(client: str) -> bytes:
  # Ids of clients may be names of files, which need not be valid text.
  return client.encode('utf-8', 'surrogatepass')


class ClientStates:
  """Versioned client states, restorable to the versions of checkpoints.

  Clients without a stored state have the initial one. States that changed since
  the last checkpoint are held in memory, and so are unchanged ones, up to a
  limit. `save` writes the changed ones in one transaction, before the
  checkpoint is written; beyond the limit they are written earlier, in the same
  transaction. Whenever a run is killed, the file holds the states of the last
  checkpoint and of the three before it. A checkpoint holds the version, the
  number of clients that have a state, and the sum of their checksums.

  SQLite uses a rollback journal instead of a write-ahead log. A log would write
  every state twice and needs memory shared through the file system, which
  network file systems lack.
  """

  def __init__(
    self,
    fresh: Any,
    path: Optional[pathlib.Path] = None,
    memory_bytes: float = math.inf,
  ):
    """Creates the store; the file is created with the first state.

    Args:
      fresh: The initial state of a client: the result of the process's
        `initialize_client_state`.
      path: The file. Without one, states cannot be resumed.
      memory_bytes: Memory for states; a round's changes may exceed it.
    """
    self._fresh = fresh
    # By position, so that it does not matter which containers runtimes return.
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(fresh)]
    self._dtype = np.dtype(
      [(f'{i}', leaf.dtype, leaf.shape) for i, leaf in enumerate(leaves)]
    )
    self._path = path
    self._memory_bytes = memory_bytes
    self._db: Optional[sqlite3.Connection] = None
    self._version = 0
    self._held: dict[str, list[np.ndarray]] = {}
    self._changed: set[str] = set()
    # Whether the open transaction has states of the next version.
    self._spilled = False
    self._lost = ''

  def of(self, clients: Sequence[str]) -> list[Any]:
    """Returns the states of clients, in their order.

    Raises:
      DamagedError: If the file does not hold what was written.
    """
    return [self._of(client) for client in clients]

  def _of(self, client: str) -> Any:
    held = self._held.get(client)
    if held is None and (self._version or self._spilled):
      with self._reading():
        row = (
          self._open()
          .execute(
            'SELECT checksum, leaves FROM states WHERE client = ? AND '
            'version <= ? ORDER BY version DESC LIMIT 1',
            (_key(client), self._version + self._spilled),
          )
          .fetchone()
        )
      if row is not None:
        held = self._unpack(_key(client), *row)
        if not self._is_full:
          self._held[client] = held
    if held is None:
      return self._fresh
    return tf.nest.pack_sequence_as(self._fresh, held)

  def keep(self, clients: Sequence[str], states: Sequence[Any]) -> None:
    """Stores the states that a round returned for its clients."""
    for client, state in zip(clients, states, strict=True):
      leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(state)]
      self._held[client] = leaves
      self._changed.add(client)

  def snapshot(self) -> Any:
    """Returns a snapshot for `roll_back`, valid until the next one or `save`.

    Raises:
      RunError: If the file cannot be written.
    """
    if self._is_full:
      with self._writing() as file:
        self._write(file)
      self._spilled = self._spilled or bool(self._changed)
      self._held, self._changed = {}, set()
    return dict(self._held), set(self._changed)

  def roll_back(self, snapshot: Any) -> None:
    """Reverts all changes since a snapshot."""
    held, changed = snapshot
    # Copies, because a round may be retried more than once.
    self._held, self._changed = dict(held), set(changed)

  def save(self) -> dict[str, Any]:
    """Commits all states; returns the entries for a checkpoint.

    Raises:
      RunError: If the file cannot be written.
    """
    count = total = 0
    version = self._version + (self._spilled or bool(self._changed))
    if version:
      with self._writing() as file:
        self._write(file)
        # Last, because pages freed here are reused by the next transaction
        # without a journal.
        file.execute(_REPLACED, (version - checkpoints.KEEP,))
        count, total = file.execute(
          f'SELECT count(*), sum(checksum) FROM ({_CURRENT.format("")})',
          (version,),
        ).fetchone()
        file.execute('COMMIT')
    self._version, self._changed, self._spilled = version, set(), False
    if self._is_full:
      self._held = {}
    return {
      'version': np.int64(version),
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
    self._version, clients, checksum = (
      int(saved[key]) for key in ('version', 'clients', 'checksum')
    )
    self._held, self._changed, self._spilled, self._lost = {}, set(), False, ''
    if self._path is not None or not clients:
      self.close()
    if not clients:
      return
    with self._reading():
      found = self._check(client_ids)
    if found != (clients, checksum):
      raise errors.DamagedError(
        f'{self._where} does not hold the states of {clients:,} clients that '
        'the checkpoint is of.'
      )

  def close(self) -> None:
    """Closes the file, without what was not saved."""
    if self._db is not None:
      self._db.close()
      self._db = None

  @property
  def _where(self) -> str:
    return str(self._path or 'memory')

  @property
  def _is_full(self) -> bool:
    return len(self._held) * self._dtype.itemsize > self._memory_bytes

  def _check(self, client_ids: Optional[Collection[str]]) -> tuple[int, int]:
    """Reads all client states; returns their number and sum of checksums."""
    known = None if client_ids is None else frozenset(map(_key, client_ids))
    count = total = 0
    for client, checksum, data, _ in self._existing().execute(
      _CURRENT.format('leaves,'), (self._version,)
    ):
      self._unpack(client, checksum, data)
      if known is not None and client not in known:
        raise errors.RunError(
          'The checkpoint holds client states of another population: '
          f'{client!r} is not among the {len(known):,} clients of this task.'
        )
      count += 1
      total += checksum
    return count, total

  def _existing(self) -> sqlite3.Connection:
    """Opens the file of a checkpoint, as last committed."""
    if self._path is None:
      if self._db is None:
        raise errors.DamagedError('They were in the memory of another process.')
      if self._db.in_transaction:
        self._db.execute('ROLLBACK')
      return self._db
    for path in self._files():
      if path == self._path or path.exists():
        files.check_regular(path)
    schema = (
      self._open()
      .execute('SELECT sql FROM sqlite_master WHERE sql NOT NULL')
      .fetchall()
    )
    if schema != [(_SCHEMA,)]:
      raise errors.DamagedError(
        f'{self._path} is not a file of client states of this version of '
        'tff-adaptive.'
      )
    return self._open()

  def _unpack(self, client: Any, checksum: Any, data: Any) -> list[np.ndarray]:
    """Unpacks a row.

    Raises:
      DamagedError: If it is damaged, or of another model.
    """
    if not (
      isinstance(client, bytes)
      and isinstance(data, bytes)
      and zlib.crc32(data, zlib.crc32(client)) == checksum
    ):
      raise errors.DamagedError(
        f'{self._where} does not hold the state of client {client!r} that was '
        'written to it.'
      )
    if len(data) != self._dtype.itemsize:
      raise errors.DamagedError(
        f'{self._where} holds client states of another model: {len(data):,} '
        f'bytes per client, expected {self._dtype.itemsize:,}.'
      )
    (row,) = np.frombuffer(data, self._dtype)
    return [row[name] for name in self._dtype.names or ()]

  def _write(self, file: sqlite3.Connection) -> None:
    """Writes changed states as the next version, without committing."""
    for client in self._changed:
      key = _key(client), self._version + 1
      data = np.array([tuple(self._held[client])], self._dtype).tobytes()
      checksum = zlib.crc32(data, zlib.crc32(key[0]))
      file.execute('DELETE FROM states WHERE client = ? AND version = ?', key)
      file.execute(
        'INSERT INTO states VALUES (?, ?, ?, ?)', (*key, checksum, data)
      )

  @contextlib.contextmanager
  def _reading(self) -> Iterator[None]:
    """Converts SQLite's errors to `DamagedError`."""
    if self._lost:
      raise errors.RunError(self._lost)
    try:
      yield
    except _COMPLAINTS as e:
      raise errors.DamagedError(
        f'{self._where} cannot be read: {_reason(e)}.'
      ) from e

  @contextlib.contextmanager
  def _writing(self) -> Iterator[sqlite3.Connection]:
    """Yields the file in a transaction; converts errors to `RunError`.

    After an error the transaction is undone. States that it held and memory
    does not are lost, and all further calls raise the same error.
    """
    if self._lost:
      raise errors.RunError(self._lost)
    try:
      file = self._open()
      if not file.in_transaction:
        file.execute('BEGIN IMMEDIATE')
        file.execute('DELETE FROM states WHERE version > ?', (self._version,))
      yield file
    except _COMPLAINTS as e:
      sentence = (
        f'The client states cannot be written to {self._where}: {_reason(e)}.'
      )
      if self._spilled or self._path is None:
        self._lost = sentence
      self.close()
      raise errors.RunError(sentence) from e

  def _files(self) -> list[pathlib.Path]:
    """Lists the file and those that SQLite may keep beside it."""
    assert self._path is not None
    return [self._path.with_name(self._path.name + s) for s in _FILES]

  def _open(self) -> sqlite3.Connection:
    """Returns the open file, emptied unless it has saved states."""
    if self._db is not None:
      return self._db
    if self._path is not None and not self._version:
      files.make_folder(self._path.parent)
      for path in self._files():
        path.unlink(missing_ok=True)
    self._db = sqlite3.connect(
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
      self._db.execute(f'PRAGMA {pragma}')
    if not self._version:
      self._db.execute(_SCHEMA)
    return self._db


def _reason(error: BaseException) -> str:
  return getattr(error, 'strerror', None) or errors.reason(error)
