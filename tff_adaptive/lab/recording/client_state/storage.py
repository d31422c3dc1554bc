"""The choice of a run's client state store: memory if it fits, else disk."""

import contextlib
import pathlib
import shutil
import sqlite3
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording.client_state import files as client_states


def choose(
  kind: str,
  record: client_states.Record,
  path: pathlib.Path,
  *,
  clients: int,
  clients_per_round: int,
  total_rounds: int,
  rounds_per_checkpoint: int,
  memory_bytes: int,
  free_bytes: Optional[int] = None,
) -> client_states.ClientStates:
  """Returns the client state store for a run.

  States are held in memory if they fit, otherwise on disk.

  Args:
    kind: 'auto', 'memory' or 'disk'.
    record: The shapes and dtypes of one client's state.
    path: The file.
    clients: Number of the task's clients.
    clients_per_round, total_rounds, rounds_per_checkpoint: The run's settings
      of these names.
    memory_bytes: Memory available for states, in bytes.
    free_bytes: Disk space available for states, in bytes; the free space of the
      file system unless given.

  Raises:
    SettingsError: If states do not fit; the message shows the calculation.
  """
  seen = min(clients, clients_per_round * total_rounds)
  needed = seen * record.size
  sum_of = f'{seen:,} clients x {record.size:,} bytes each = {needed:,} bytes'
  with contextlib.closing(sqlite3.connect(':memory:')) as connection:
    largest = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
  if record.size > largest - client_states.PAGE:
    raise errors.SettingsError(
      f'A client state of this method has {record.size:,} bytes, and a row of '
      f'SQLite at most {largest:,}; use a smaller model or a method without '
      'client states.'
    )
  if kind == 'memory' or (kind == 'auto' and needed <= memory_bytes):
    if needed > memory_bytes:
      raise errors.SettingsError(
        f'Client states do not fit in memory: {sum_of}, but --client_state_mib '
        f'allows {memory_bytes:,}; raise it, or give --client_states=disk.'
      )
    return client_states.ClientStates(record, path, in_memory=True)
  changed = min(seen, clients_per_round * rounds_per_checkpoint)
  on_disk = (seen + client_states.SAVES * changed) * record.size_on_disk
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
      f'{client_states.SAVES} checkpoints of up to {changed:,} changed states '
      f"and SQLite's overhead {on_disk:,}, but --client_state_mib allows "
      f'{memory_bytes:,} and {path.parent} has {free_bytes:,} free; use a '
      'smaller model, fewer clients or a method without client states.'
    )
  return client_states.ClientStates(record, path)
