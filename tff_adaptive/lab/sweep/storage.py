"""The storage of a sweep's study: a journal file, or a database."""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

import optuna
import sqlalchemy
from optuna.storages import _heartbeat
from optuna.storages import journal

from tff_adaptive import errors
from tff_adaptive.lab.recording import files

FILE = 'study.journal'
_SECONDS_BETWEEN_BEATS = 15
# A process is considered dead after this long a silence.
_SECONDS_OF_SILENCE = 90
_SECONDS_FOR_A_LOCK = 120
_TRIES_TO_MAKE_TABLES = 10
_BEAT = 'heartbeat'
_NO_STORAGE = (
  sqlalchemy.exc.ArgumentError,
  sqlalchemy.exc.NoSuchModuleError,
  ImportError,
)
_OF_STORAGE = (
  OSError,
  sqlalchemy.exc.SQLAlchemyError,
  optuna.exceptions.OptunaError,
)
# Called with the study and a trial whose process is dead.
Requeue = Callable[[Any, optuna.trial.FrozenTrial], None]


def _begun_before(
  storage: optuna.storages.BaseStorage, study_id: int
) -> list[optuna.trial.FrozenTrial]:
  """Returns running trials that began before the silence of a dead process.

  A trial that waited and runs again has a heartbeat of its earlier process.
  """
  running = storage.get_all_trials(
    study_id, deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)
  )
  last = time.time() - _SECONDS_OF_SILENCE
  return [
    t
    for t in running
    if t.datetime_start and t.datetime_start.timestamp() < last
  ]


class _Database(optuna.storages.RDBStorage):
  """A database that expects no heartbeat of trials that have just begun."""

  def _get_stale_trial_ids(self, study_id: int) -> list[int]:
    stale = super()._get_stale_trial_ids(study_id)
    begun = {trial._trial_id for trial in _begun_before(self, study_id)}
    return [number for number in stale if number in begun]


class _Journal(optuna.storages.JournalStorage, _heartbeat.BaseHeartbeat):
  """A journal with heartbeats, which Optuna has for databases only."""

  def __init__(self, backend: Any, requeue: Requeue):
    super().__init__(backend)
    self._requeue = requeue

  def record_heartbeat(self, trial_id: int) -> None:
    self.set_trial_user_attr(trial_id, _BEAT, time.time())

  def _get_stale_trial_ids(self, study_id: int) -> list[int]:
    last = time.time() - _SECONDS_OF_SILENCE
    return [
      t._trial_id
      for t in _begun_before(self, study_id)
      if t.user_attrs.get(_BEAT, 0) < last
    ]

  def get_heartbeat_interval(self) -> int:
    return _SECONDS_BETWEEN_BEATS

  def get_heartbeat_stale_trial_callback(self) -> Requeue:
    return self._requeue


class StudyError(errors.RunError):
  """Raised if a sweep's study cannot be read or written."""


@contextlib.contextmanager
def complaints(place: str, *, opening: bool = False) -> Iterator[None]:
  """Converts errors of a study's storage to one sentence that names it.

  Args:
    place: The location of the study, as text.
    opening: Whether any error means that the location holds no study.
  """
  try:
    yield
  except errors.RunError:
    raise
  except Exception as e:
    reason = errors.reason(e)
    if opening and isinstance(e, _NO_STORAGE):
      raise errors.SettingsError(
        f'{place} cannot be opened ({reason}); --storage takes an SQLAlchemy '
        'URL, such as sqlite:////shared/sweep.sqlite, or journal:FILE.'
      ) from e
    if isinstance(e, _OF_STORAGE):
      cause = e.__cause__ or e
      # SQLAlchemy appends the statement to the database's message.
      reason = errors.reason(getattr(cause, 'orig', None) or cause)
      raise StudyError(
        f'{place} cannot be read or written: {reason}; the same command '
        'resumes the sweep.'
      ) from e
    if not opening:
      raise
    raise errors.SettingsError(
      f"{place} cannot be used as a sweep's study ({reason}); move it away, "
      'and the same command rebuilds it from the folders of the runs.'
    ) from e


def describe(folder: pathlib.Path, storage: Optional[str]) -> str:
  """Describes the location of a study, without passwords."""
  if storage is None:
    return str(folder / FILE)
  with contextlib.suppress(sqlalchemy.exc.ArgumentError):
    url = sqlalchemy.engine.make_url(storage)
    storage = url.render_as_string(hide_password=True)
  return f'--storage={storage}'


def open_storage(
  folder: pathlib.Path, storage: Optional[str], requeue: Requeue
) -> optuna.storages.BaseStorage:
  """Opens a study's storage, creating it if it does not exist.

  Args:
    folder: The sweep's folder.
    storage: The value of --storage; by default a file in the folder.
    requeue: Called with trials whose process is dead.

  Raises:
    SettingsError: If the location holds something else, or the kind of storage
      is not supported.
    RunError: If the storage cannot be read or written.
  """
  with complaints(describe(folder, storage), opening=True):
    if storage is None:
      return _open_journal(folder / FILE, requeue)
    scheme, _, rest = storage.partition(':')
    if scheme == 'journal':
      return _open_journal(pathlib.Path(rest), requeue)
    return _open_database(sqlalchemy.engine.make_url(storage), requeue)


def _open_journal(path: pathlib.Path, requeue: Requeue) -> _Journal:
  """Opens a journal, dropping an incomplete last line.

  A killed process or a full disk leaves one; Optuna would append its next entry
  to it and could read neither.
  """
  lock = journal.JournalFileSymlinkLock(str(path))
  if path.exists():
    files.check_regular(path)
    # Writers hold the lock, so an incomplete line has no writer any more.
    with journal._file.get_lock_file(lock), open(path, 'rb+') as file:
      whole, _, rest = file.read().rpartition(b'\n')
      if rest and not rest.startswith(b'{"op_code"'[: len(rest)]):
        raise ValueError('it is no journal')
      file.truncate(len(whole) + 1 if whole else 0)
  return _Journal(journal.JournalFileBackend(str(path), lock_obj=lock), requeue)


def _open_database(
  url: sqlalchemy.engine.URL, requeue: Requeue
) -> optuna.storages.RDBStorage:
  """Opens a database, creating its tables if they do not exist.

  Retries, because processes that create tables at the same time conflict:
  Optuna lists the existing tables before it creates the others.
  """
  sqlite = url.get_backend_name() == 'sqlite'
  if sqlite and url.database in (None, '', ':memory:'):
    raise errors.SettingsError(
      f'--storage={url} lives in the memory of one process, and a sweep uses '
      'several; give a file.'
    )
  for left in reversed(range(_TRIES_TO_MAKE_TABLES)):
    try:
      storage = _Database(
        url.render_as_string(hide_password=False),
        engine_kwargs={
          'connect_args': {'timeout': _SECONDS_FOR_A_LOCK} if sqlite else {}
        },
        heartbeat_interval=_SECONDS_BETWEEN_BEATS,
        grace_period=_SECONDS_OF_SILENCE,
        heartbeat_stale_trial_callback=requeue,
      )
      break
    except (sqlalchemy.exc.DatabaseError, optuna.exceptions.OptunaError) as e:
      conflicts = isinstance(e, sqlalchemy.exc.IntegrityError)
      if not left or not (conflicts or 'exists' in str(e)):
        raise
      time.sleep(0.2)
  if sqlite:
    _lock_transactions(storage.engine)
  return storage


def _lock_transactions(engine: sqlalchemy.engine.Engine) -> None:
  """Makes SQLite take its write lock at the start of every transaction.

  Optuna claims a waiting trial by reading its state and then changing it,
  relying on row locks in between. SQLite has no row locks, so two processes
  could claim the same trial.
  """

  @sqlalchemy.event.listens_for(engine, 'connect')
  def leave_transactions_to_us(connection: Any, record: Any) -> None:
    connection.isolation_level = None

  @sqlalchemy.event.listens_for(engine, 'begin')
  def begin(connection: Any) -> None:
    connection.exec_driver_sql('BEGIN IMMEDIATE')

  engine.dispose()  # Closes connections opened without the listeners.
