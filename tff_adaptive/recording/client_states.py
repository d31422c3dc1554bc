"""What clients keep between rounds, by client id: in memory or on disk."""

import collections
import dataclasses
import math
import os
import pathlib
import shutil
import zlib
from collections.abc import Collection
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np

from tff_adaptive import errors

# Checkpoints whose states must stay readable: those that are kept, one being
# written, and one in reserve.
_CHECKPOINTS = 5


@dataclasses.dataclass(frozen=True)
class Record:
  """The shape of what one client keeps.

  Attributes:
    shapes, dtypes: Of its arrays, flat.
  """

  shapes: tuple[tuple[int, ...], ...]
  dtypes: tuple[np.dtype, ...]

  @classmethod
  def of(cls, leaves: Sequence[np.ndarray]) -> 'Record':
    return cls(tuple(x.shape for x in leaves), tuple(x.dtype for x in leaves))

  @property
  def size(self) -> int:
    """Bytes of one client's."""
    return sum(
      math.prod(shape) * dtype.itemsize
      for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
    )

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

  def stack(self, states: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """The arrays of several clients, or none, one behind the other."""
    return [
      np.array([leaves[i] for leaves in states], dtype).reshape(
        len(states), *shape
      )
      for i, (shape, dtype) in enumerate(
        zip(self.shapes, self.dtypes, strict=True)
      )
    ]


class MemoryStates:
  """Clients' states in a dictionary."""

  def __init__(self, record: Record):
    self._record = record
    self._states: dict[str, list[np.ndarray]] = {}

  def get(self, client: str) -> Optional[list[np.ndarray]]:
    """A client's arrays, or `None` if it has none yet."""
    return self._states.get(client)

  def put(self, client: str, leaves: list[np.ndarray]) -> None:
    self._states[client] = leaves

  def snapshot(self) -> Any:
    return dict(self._states)

  def roll_back(self, snapshot: Any) -> None:
    self._states = snapshot

  def save(self) -> dict[str, Any]:
    """What a checkpoint holds: ids, and the arrays of all clients stacked."""
    return {
      'ids': _encoded(self._states),
      'clients': self._record.stack(list(self._states.values())),
      'slots': np.zeros([0], np.int64),
      'sums': np.zeros([0], np.int64),
    }

  def replace(self, states: Any) -> None:
    """Takes (client, arrays) pairs in place of what it has."""
    self._states = dict(states)


class DiskStates:
  """Clients' states in one file of equal records; an index is in memory.

  A record that a checkpoint or a snapshot may still refer to is never written
  over: a client's new state goes to a free place. A checkpoint holds the index,
  with a check sum of every record, so that a resumed run reads what it wrote,
  or is told that the file was changed.
  """

  def __init__(self, record: Record, path: pathlib.Path):
    """Opens the file, which need not exist.

    Args:
      record: What one client keeps.
      path: The file.
    """
    self._record = record
    self._path = path
    self._index: dict[str, tuple[int, int]] = {}
    self._saved: collections.deque[frozenset[int]] = collections.deque(
      maxlen=_CHECKPOINTS
    )
    self._used: frozenset[int] = frozenset()
    self._free: list[int] = []
    self._loose: list[int] = []
    self._end = self._resumed_end = 0
    self._opened: Any = None

  @property
  def _file(self) -> Any:
    # Only a run that has states to keep makes the file.
    if self._opened is None:
      try:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        mode = 'r+b' if self._path.exists() else 'w+b'
        self._opened = open(self._path, mode)  # noqa: SIM115
      except OSError as e:
        raise self._error(e) from e
    return self._opened

  def _error(self, error: OSError) -> errors.RunError:
    return errors.RunError(
      f"The clients' states cannot be written to {self._path}: "
      f'{error.strerror}.'
    )

  def get(self, client: str) -> Optional[list[np.ndarray]]:
    """A client's arrays, or `None` if it has none yet.

    Raises:
      DamagedError: If the file does not hold what was written.
    """
    if client not in self._index:
      return None
    slot, total = self._index[client]
    try:
      self._file.seek(slot * self._record.size)
      data = self._file.read(self._record.size)
    except OSError as e:
      raise errors.DamagedError(
        f'{self._path} cannot be read: {errors.reason(e)}.'
      ) from e
    if len(data) != self._record.size or zlib.crc32(data) != total:
      raise errors.DamagedError(
        f'{self._path} does not hold the state of client {client!r} that was '
        'written to it.'
      )
    return self._record.unpack(data)

  def check(self) -> None:
    """Reads every client's state once.

    Raises:
      DamagedError: If the file does not hold what was written.
    """
    # In the order of the file, which may be larger than memory.
    for client in sorted(self._index, key=self._index.__getitem__):
      self.get(client)

  def put(self, client: str, leaves: list[np.ndarray]) -> None:
    data = self._record.pack(leaves)
    if self._free:
      slot = self._free.pop()
    else:
      slot, self._end = self._end, self._end + 1
    try:
      self._file.seek(slot * self._record.size)
      self._file.write(data)
    except OSError as e:
      raise self._error(e) from e
    if client in self._index:
      self._loose.append(self._index[client][0])
    self._index[client] = slot, zlib.crc32(data)

  def snapshot(self) -> Any:
    """What `roll_back` takes, until the next one is taken."""
    # What was replaced since the last snapshot, and is in no checkpoint.
    self._free += [
      slot
      for slot in self._loose
      if slot not in self._used and slot >= self._resumed_end
    ]
    self._loose = []
    return dict(self._index)

  def roll_back(self, snapshot: Any) -> None:
    wanted = {slot for slot, _ in snapshot.values()} | self._used
    written = {slot for slot, _ in self._index.values()} | set(self._loose)
    self._free += [s for s in written - wanted if s >= self._resumed_end]
    self._index = snapshot
    self._loose = []

  def save(self) -> dict[str, Any]:
    """What a checkpoint holds: ids and where their records are."""
    try:
      if self._opened is not None:
        self._file.flush()
        os.fsync(self._file.fileno())
    except OSError as e:
      raise self._error(e) from e
    slots = [slot for slot, _ in self._index.values()]
    self._saved.append(frozenset(slots))
    # What no kept checkpoint refers to may be written over. A round that is
    # running has no records yet when a checkpoint is written.
    self._used = frozenset().union(*self._saved)
    if len(self._saved) == _CHECKPOINTS:
      self._free = [s for s in range(self._end) if s not in self._used]
      self._loose = []
      self._resumed_end = 0
    return {
      'ids': _encoded(self._index),
      'clients': self._record.stack([]),
      'slots': np.array(slots, np.int64),
      'sums': np.array([total for _, total in self._index.values()], np.int64),
    }

  def replace(self, states: Any) -> None:
    """Takes (client, arrays) pairs in place of what it has."""
    self._index = {}
    for client, leaves in states:
      self.put(client, leaves)

  def resume(self, saved: dict[str, Any]) -> None:
    """Takes up the index of a checkpoint.

    Records that it does not name stay until as many checkpoints have been
    written as are kept: an older one may still name them.

    Raises:
      DamagedError: If the file is gone.
    """
    self._index = {
      client.decode('utf-8'): (int(slot), int(total))
      for client, slot, total in zip(
        saved['ids'].tolist(), saved['slots'], saved['sums'], strict=True
      )
    }
    if self._index and not self._path.exists():
      raise errors.DamagedError(f'{self._path} is not there.')
    size = self._path.stat().st_size if self._path.exists() else 0
    self._end = -(-size // self._record.size)
    self._end = max(
      self._end, 1 + max((slot for slot, _ in self._index.values()), default=-1)
    )
    self._resumed_end = self._end
    self._free = []
    self._loose = []
    self._used = frozenset()
    self._saved.clear()


def _encoded(clients: Collection[str]) -> np.ndarray:
  return np.array([c.encode('utf-8') for c in clients], dtype=np.bytes_)


def restore(
  store: Any,
  record: Record,
  saved: dict[str, Any],
  path: Optional[pathlib.Path],
  client_ids: Optional[Collection[str]],
) -> None:
  """Makes a store hold what a checkpoint says, whichever kind wrote it.

  Args:
    store: A `MemoryStates` or `DiskStates`.
    record: What one client of this process keeps.
    saved: As `save` made it.
    path: The file of states on disk.
    client_ids: The task's clients, to compare with.

  Raises:
    RunError: If the states are of another model or population.
    DamagedError: If the file does not hold the states that it should.
  """
  ids = [client.decode('utf-8') for client in saved['ids'].tolist()]
  shapes = tuple(tuple(x.shape[1:]) for x in saved['clients'])
  if shapes != record.shapes:
    raise errors.RunError(
      'The checkpoint holds client states of another model: their arrays have '
      f'the shapes {_words(shapes)}, those of this one {_words(record.shapes)}.'
    )
  if client_ids is not None:
    known = frozenset(client_ids)
    for client in ids:
      if client not in known:
        raise errors.RunError(
          'The checkpoint holds client states of another population: '
          f'{client!r} is none of the {len(known):,} clients of this task.'
        )
  on_disk = len(saved['slots']) == len(ids) and ids
  if on_disk and isinstance(store, DiskStates):
    store.resume(saved)
    store.check()
  elif on_disk:
    assert path is not None
    reader = DiskStates(record, path)
    reader.resume(saved)
    store.replace((client, reader.get(client)) for client in ids)
  else:
    store.replace(
      (client, [leaf[i] for leaf in saved['clients']])
      for i, client in enumerate(ids)
    )


def _words(shapes: Sequence[tuple[int, ...]]) -> str:
  return ', '.join(str(list(shape)) for shape in shapes)


def choose(
  kind: str,
  record: Record,
  path: pathlib.Path,
  *,
  clients: int,
  clients_per_round: int,
  total_rounds: int,
  rounds_per_checkpoint: int,
  memory_bytes: int,
  free_bytes: Optional[int] = None,
) -> Any:
  """The store for a run: in memory if it fits, else on disk.

  Args:
    kind: 'auto', 'memory' or 'disk'.
    record: What one client keeps.
    path: The file, if it is to be on disk.
    clients: Of the task.
    clients_per_round, total_rounds, rounds_per_checkpoint: As in the run's
      settings.
    memory_bytes: What states may take in memory.
    free_bytes: What they may take on disk; what is free there unless given.

  Raises:
    SettingsError: If they do not fit, with the arithmetic.
  """
  seen = min(clients, clients_per_round * total_rounds)
  needed = seen * record.size
  sum_of = (
    f'{seen:,} clients x {record.size:,} bytes that each keeps = '
    f'{needed:,} bytes'
  )
  if kind == 'memory' or (kind == 'auto' and needed <= memory_bytes):
    if needed > memory_bytes:
      raise errors.SettingsError(
        f'Client states do not fit in memory: {sum_of}, but '
        f'--client_state_mib allows {memory_bytes:,}; raise it or give '
        '--client_states=disk.'
      )
    return MemoryStates(record)
  changed = min(seen, clients_per_round * rounds_per_checkpoint)
  on_disk = (seen + _CHECKPOINTS * changed) * record.size
  if free_bytes is None:
    folder = path.parent
    while not folder.exists():
      folder = folder.parent
    free_bytes = shutil.disk_usage(folder).free
    if path.exists():
      free_bytes += path.stat().st_size
  if on_disk > free_bytes:
    raise errors.SettingsError(
      f'Client states fit neither in memory nor on disk: {sum_of}, with '
      f'{_CHECKPOINTS} checkpoints of up to {changed:,} changed ones '
      f'{on_disk:,}, but --client_state_mib allows {memory_bytes:,} and '
      f'{path.parent} has {free_bytes:,} free; use a smaller model, fewer '
      'clients or a method that keeps nothing on clients.'
    )
  return DiskStates(record, path)
