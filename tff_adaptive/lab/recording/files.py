"""A run's folder, with atomic writes and a lock against other writers."""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, IO, Optional

from tff_adaptive import errors

_KINDS = {
  stat.S_IFDIR: 'a folder',
  stat.S_IFIFO: 'a FIFO',
  stat.S_IFSOCK: 'a socket',
  stat.S_IFCHR: 'a device',
  stat.S_IFBLK: 'a device',
}


def check_regular(path: pathlib.Path) -> None:
  """Checks that a path leads to a regular file.

  Opening a FIFO waits for a writer, and a device may have no end.

  Raises:
    OSError: If it does not; `FileNotFoundError` if it does not exist.
  """
  kind = stat.S_IFMT(os.stat(path).st_mode)
  if kind != stat.S_IFREG:
    found = _KINDS.get(kind, 'something else')
    raise OSError(f'it is {found}, not a regular file')


def read(path: pathlib.Path) -> bytes:
  """Reads a regular file.

  Raises:
    OSError: If it is not a regular file, or cannot be read.
  """
  check_regular(path)
  return path.read_bytes()


def read_if_there(path: pathlib.Path) -> Optional[bytes]:
  """Reads a regular file; `None` if it does not exist."""
  try:
    return read(path)
  except FileNotFoundError:
    return None


@contextlib.contextmanager
def reading(what: object, kind: str, advice: str = '') -> Iterator[None]:
  """Converts errors of reading a file to one sentence.

  Args:
    what: The file, or the flag that names it.
    kind: What it should be.
    advice: What to do, as a further clause.

  Raises:
    SettingsError: In place of any error but a `RunError`: what is damaged can
      raise almost any.
  """
  try:
    yield
  except errors.RunError:
    raise
  except Exception as e:
    reason = errors.reason(e)
    text = f'{what} cannot be read as {kind} ({reason})'
    raise errors.SettingsError(
      f'{text}; {advice}.' if advice else f'{text}.'
    ) from e


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
  """Converts errors of writing a file or a folder to `RunError`."""
  try:
    yield
  except OSError as e:
    raise errors.RunError(
      f'{path} cannot be written: {e.strerror or e}.'
    ) from e


def write_atomically(path: pathlib.Path, content: bytes) -> None:
  """Writes a file atomically: readers see the old or the new content.

  Raises:
    RunError: If the file cannot be written; the old one is kept.
  """
  # Process ids are not unique between containers that share a folder.
  aside = path.with_name(f'.{path.name}.{secrets.token_hex(4)}.tmp')
  with writing(path):
    try:
      with open(aside, 'xb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
      os.replace(aside, path)
      # A rename is durable only after fsync of the folder.
      descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
      os.fsync(descriptor)
      os.close(descriptor)
    finally:
      aside.unlink(missing_ok=True)


def check_writable(
  folder: pathlib.Path, flag: str = '--root_output_dir'
) -> None:
  """Checks that files can be written below `folder`, leaving no trace.

  Several processes may check the same folder at once: temporary folders have
  unique names, and missing parent folders are not created.

  Args:
    folder: The folder, which need not exist.
    flag: The flag that names it, for the message.

  Raises:
    SettingsError: If files cannot be written.
  """
  folder = folder.absolute()
  try:
    there = next(p for p in (folder, *folder.parents) if p.exists())
    tempfile.TemporaryDirectory(prefix='.', dir=there).cleanup()
  except OSError as e:
    raise errors.SettingsError(
      f'The output folder {folder} cannot be written ({e.strerror or e}); '
      f'choose another with {flag}.'
    ) from e


def make_folder(folder: pathlib.Path) -> None:
  """Creates a folder and its parents if they do not exist.

  Raises:
    RunError: If it cannot be created.
  """
  with writing(folder):
    folder.mkdir(parents=True, exist_ok=True)


def _stamp(path: pathlib.Path) -> Optional[tuple[int, int]]:
  """Returns what changes when a file is replaced; `None` without a file."""
  try:
    status = os.stat(path)
  except FileNotFoundError:
    return None
  return status.st_ino, status.st_mtime_ns


class RunFolder:
  """`{root_output_dir}/{experiment_name}` and the names of its files."""

  def __init__(self, path: pathlib.Path):
    self.path = pathlib.Path(path)
    self.metrics = self.path / 'metrics.csv'
    self.sweep = self.path / 'sweep.json'  # If it is a sweep's folder.
    self.step_sizes = self.path / 'step_sizes.csv'
    self.clients = self.path / 'clients.csv'
    self.hparams = self.path / 'hparams.json'
    self.checkpoints = self.path / 'checkpoints'
    self.client_states = self.path / 'client_states.sqlite'
    self.received = self.path / 'received.sqlite'
    self.tensorboard = self.path / 'tensorboard'
    self.curves = self.path / 'curves.png'
    self.step_figure = self.path / 'step_sizes.png'
    self._lock: Optional[IO[str]] = None
    # Of the run that holds the lock, and of its hparams.json.
    self._id: Optional[str] = None
    self._stamp: Optional[tuple[int, int]] = None

  def __enter__(self) -> 'RunFolder':
    """Creates the folder and locks it against other processes.

    Raises:
      SettingsError: If it cannot be created, or another process holds the lock.
    """
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      self._lock = self._open_lock('w')
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      # Temporary files of killed writers, as `write_atomically` names them.
      pattern = re.compile(r'\..+\.[0-9a-f]{8}\.tmp')
      for folder in (self.path, self.checkpoints):
        for path in folder.glob('.*.tmp'):
          # A folder of that name was not created by a run.
          if pattern.fullmatch(path.name) and path.is_file():
            path.unlink()
    except BlockingIOError as e:
      self.__exit__()
      raise errors.SettingsError(
        f'Another process is using {self.path}; wait for it to finish, or '
        'choose another --experiment_name.'
      ) from e
    except OSError as e:
      self.__exit__()
      raise errors.SettingsError(
        f'The output folder {self.path} cannot be written '
        f'({e.strerror or e}); choose another with --root_output_dir.'
      ) from e
    return self

  def _open_lock(self, mode: str) -> IO[str]:
    return open(
      self.path / '.lock',
      mode,
      encoding='utf-8',
      # Opening a FIFO would wait for another process.
      opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK, 0o666),
    )

  def __exit__(self, *exc_info: object) -> None:
    if self._lock is not None:
      self._lock.close()
      self._lock = None

  def check_owned(self) -> None:
    """Checks that the path still leads to the folder that was locked.

    A folder may be deleted, moved or replaced by another run's while a run
    writes to it. Call this before each write. Without a lock, nothing is
    checked.

    Raises:
      RunError: If it was deleted or replaced.
    """
    if self._lock is None:
      return
    held = os.fstat(self._lock.fileno())
    try:
      lost = not os.path.samestat(held, os.stat(self.path / '.lock'))
      stamp = _stamp(self.hparams)
      if not lost and stamp != self._stamp:
        found = (self.read_hparams() or {}).get('id')
        lost = found != (self._id or found)
        if not lost:
          self._id, self._stamp = found, stamp
    except (OSError, errors.SettingsError):
      lost = True
    if lost:
      raise errors.RunError(
        f'{self.path} was deleted or replaced while this run was using it; '
        'nothing more is written there. Start it again under another '
        '--experiment_name.'
      )

  def is_busy(self) -> bool:
    """Returns whether another process holds the folder's lock."""
    try:
      with self._open_lock('r') as lock:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
    except OSError:
      return False  # Entering the folder reports the error.
    return False

  def discard_checkpoints(self) -> None:
    """Deletes checkpoints and client states, of which tables need nothing.

    Raises:
      RunError: If they cannot be deleted.
    """
    try:
      if self.checkpoints.exists():
        shutil.rmtree(self.checkpoints)
      for database in (self.client_states, self.received):
        # With SQLite's journal of a transaction that was cut off.
        for path in self.path.glob(f'{database.name}*'):
          path.unlink()
    except OSError as e:
      raise errors.RunError(
        f'{e.filename or self.path} cannot be deleted: {e.strerror or e}.'
      ) from e

  def write_hparams(self, hparams: Mapping[str, Any]) -> None:
    """Writes hparams.json with a unique id."""
    self.check_owned()
    text = json.dumps({'id': uuid.uuid4().hex, **hparams}, indent=2) + '\n'
    write_atomically(self.hparams, text.encode('utf-8'))

  def read_hparams(self) -> Optional[dict[str, Any]]:
    """Reads hparams.json; `None` if it does not exist.

    Raises:
      SettingsError: If the file was not written by a run.
    """
    advice = f'delete {self.path} or choose another --experiment_name'
    with reading(self.hparams, "a run's settings", advice):
      if (content := read_if_there(self.hparams)) is None:
        return None
      hparams = json.loads(content.decode('utf-8'))
      # Of lone surrogates, which are valid JSON, those for bytes of paths.
      json.dumps(hparams, ensure_ascii=False).encode('utf-8', 'surrogateescape')
      if not isinstance(hparams, dict) or not isinstance(
        hparams.get('settings'), dict
      ):
        raise ValueError('it has none')
      return hparams

  @property
  def identity(self) -> str:
    """An id that distinguishes this run from others, even of the same settings.

    A digest of the id and the settings in hparams.json, stored in checkpoints.
    A copy of the whole folder has the same identity.

    Raises:
      SettingsError: If hparams.json was not written by a run.
    """
    hparams = self.read_hparams() or {}
    settings = hparams.get('settings')
    # Extending a run by more rounds keeps its identity.
    if settings is not None and 'first_total_rounds' in hparams:
      settings = {**settings, 'total_rounds': hparams['first_total_rounds']}
    words = json.dumps([hparams.get('id'), settings], sort_keys=True)
    return hashlib.sha256(words.encode('utf-8')).hexdigest()
