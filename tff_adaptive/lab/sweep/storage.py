"""The storage of a sweep's study: a file, a database or a journal."""

import contextlib
import pathlib
import re
import sqlite3
import time
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Optional

import alembic.util
import optuna
import sqlalchemy
from optuna.storages import journal

from tff_adaptive import errors
from tff_adaptive.lab.recording import files

_FILE = 'study.sqlite'
_FILE_BEFORE = 'sweep.sqlite'
_SECONDS_FOR_A_LOCK = 120.0
_TRIES_TO_MAKE_TABLES = 10
_SECONDS_BETWEEN_TRIES = 0.2
# Raised for a --storage that is malformed or not supported.
_NO_STORAGE = (
  sqlalchemy.exc.ArgumentError,
  sqlalchemy.exc.NoSuchModuleError,
  ImportError,
)
# SQLite's result codes for a file that cannot be accessed, whatever it holds.
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_OUT_OF_REACH = (
  sqlite3.SQLITE_CANTOPEN,
  sqlite3.SQLITE_FULL,
  sqlite3.SQLITE_IOERR,
  sqlite3.SQLITE_NOMEM,
  sqlite3.SQLITE_PERM,
  sqlite3.SQLITE_READONLY,
)
# Raised by Optuna and SQLAlchemy for a study that is damaged or no sweep's.
_COMPLAINTS = (
  sqlalchemy.exc.SQLAlchemyError,
  alembic.util.CommandError,  # Of the tables' version.
  optuna.exceptions.OptunaError,
  ArithmeticError,
  AssertionError,
  AttributeError,
  LookupError,
  OSError,
  RuntimeError,
  TypeError,
  ValueError,
)


def _sqlite_code(error: Optional[BaseException]) -> Optional[int]:
  """Returns the primary SQLite result code that caused an error, if any."""
  seen: set[int] = set()
  while error is not None and id(error) not in seen:
    seen.add(id(error))
    code = getattr(getattr(error, 'orig', None), 'sqlite_errorcode', None)
    if code is not None:
      return code & 0xFF
    error = error.__cause__ or error.__context__
  return None


@contextlib.contextmanager
def complaints(place: str) -> Iterator[None]:
  """Converts errors of a study's storage to one sentence that names it."""
  try:
    yield
  except (errors.RunError, *_NO_STORAGE):
    raise
  except _COMPLAINTS as e:
    cause = e.__cause__ or e
    # SQLAlchemy appends the statement to the database's message.
    reason = errors.reason(getattr(cause, 'orig', None) or cause)
    code = _sqlite_code(e)
    if code in _LOCKED:
      raise errors.RunError(
        f'{place} is locked by another program ({reason}); run the same '
        'command again once the lock is released.'
      ) from e
    if code in _OUT_OF_REACH:
      raise errors.RunError(
        f'{place} cannot be read or written: {reason}; its contents are not '
        'necessarily damaged.'
      ) from e
    if isinstance(cause, (sqlalchemy.exc.OperationalError, OSError)):
      raise errors.RunError(
        f'{place} cannot be read or written: {reason}.'
      ) from e
    raise errors.SettingsError(
      f"{place} cannot be used as a sweep's study ({reason}); move it away, "
      'and the same command rebuilds it from the folders of the runs.'
    ) from e


def describe(folder: pathlib.Path, storage: Optional[str]) -> str:
  """Describes the location of a study, without passwords."""
  if storage is None:
    return str(folder / _FILE)
  with contextlib.suppress(sqlalchemy.exc.ArgumentError):
    url = sqlalchemy.engine.make_url(storage)
    storage = url.render_as_string(hide_password=True)
  return f'--storage={storage}'


def open_storage(
  folder: pathlib.Path, storage: Optional[str]
) -> optuna.storages.BaseStorage:
  """Opens a study's storage, creating it if it does not exist.

  Args:
    folder: The sweep's folder.
    storage: The value of --storage; by default a file in the folder.

  Raises:
    SettingsError: If the location holds something else, or the kind of storage
      is not supported.
    RunError: If the storage cannot be read or written.
  """
  place = describe(folder, storage)
  try:
    with complaints(place):
      return _open(folder, storage)
  except _NO_STORAGE as e:
    raise errors.SettingsError(
      f'{place} cannot be opened ({errors.reason(e)}); --storage takes an '
      'SQLAlchemy URL, such as sqlite:////shared/sweep.sqlite, or '
      'journal:FILE.'
    ) from e


def _open(
  folder: pathlib.Path, storage: Optional[str]
) -> optuna.storages.BaseStorage:
  scheme, _, rest = (storage or 'sqlite:').partition(':')
  if scheme == 'journal':
    return _open_journal(pathlib.Path(rest))
  if storage is None:
    url = sqlalchemy.engine.URL.create(
      'sqlite', database=str(folder.absolute() / _FILE)
    )
  else:
    url = sqlalchemy.engine.make_url(storage)
  if url.get_backend_name() != 'sqlite':
    return _open_database(url, {})
  if url.database in (None, '', ':memory:'):
    raise errors.SettingsError(
      f'--storage={storage} lives in the memory of one process, and a sweep '
      'uses several; give a file.'
    )
  result = _open_database(url, {'timeout': _SECONDS_FOR_A_LOCK})
  _lock_transactions(result.engine)
  return result


def _open_journal(path: pathlib.Path) -> optuna.storages.JournalStorage:
  """Opens a journal, dropping an incomplete last line of a killed process.

  Optuna would append its next entry to that line and could read neither.

  Raises:
    RunError: If the path is not a regular file.
  """
  lock = journal.JournalFileSymlinkLock(str(path))
  if path.exists():
    try:
      files.check_regular(path)
    except OSError as e:
      raise errors.RunError(
        f'--storage=journal:{path} cannot be used: {errors.reason(e)}.'
      ) from e
    # Writers hold the lock, so an incomplete line has no writer any more.
    lock.acquire()
    try:
      with open(path, 'rb+') as file:
        content = file.read()
        if not content.endswith(b'\n'):
          file.truncate(content.rfind(b'\n') + 1)
    finally:
      lock.release()
  return optuna.storages.JournalStorage(
    journal.JournalFileBackend(str(path), lock_obj=lock)
  )


def _open_database(
  url: sqlalchemy.engine.URL, connect_args: Mapping[str, Any]
) -> optuna.storages.RDBStorage:
  """Opens a database, creating its tables if they do not exist.

  Retries, because processes that create tables at the same time conflict:
  Optuna lists the existing tables before it creates the others.
  """
  for _ in range(_TRIES_TO_MAKE_TABLES):
    try:
      return optuna.storages.RDBStorage(
        url.render_as_string(hide_password=False),
        engine_kwargs={'connect_args': dict(connect_args)},
      )
    except (
      sqlalchemy.exc.IntegrityError,
      sqlalchemy.exc.OperationalError,
      sqlalchemy.exc.ProgrammingError,
    ) as e:
      made_elsewhere = re.search('exists|unique|duplicate', str(e), re.I)
      if not made_elsewhere:
        raise
      failure = e
      time.sleep(_SECONDS_BETWEEN_TRIES)
  raise failure


def _lock_transactions(engine: sqlalchemy.engine.Engine) -> None:
  """Makes SQLite take its write lock at the start of every transaction.

  Optuna claims a waiting trial by reading its state and then changing it,
  relying on row locks in between. SQLite has no row locks, so two processes
  could claim the same trial.
  """

  @sqlalchemy.event.listens_for(engine, 'connect')
  def leave_transactions_to_us(connection: Any, record: Any) -> None:
    del record
    connection.isolation_level = None

  @sqlalchemy.event.listens_for(engine, 'begin')
  def begin(connection: Any) -> None:
    connection.exec_driver_sql('BEGIN IMMEDIATE')

  engine.dispose()  # Closes connections opened without the listeners.


def check_folder(folder: pathlib.Path) -> None:
  """Raises `SettingsError` if a folder holds a sweep of an earlier version."""
  if (folder / _FILE_BEFORE).exists():
    raise errors.SettingsError(
      f'{folder} holds a sweep of an earlier version of this program '
      f'({_FILE_BEFORE}), which cannot be resumed; choose another '
      '--experiment_name.'
    )
