"""A sweep's runs as the trials of an Optuna study.

Every point of a sweep is a trial, which waits from the start. A process takes
a waiting trial, which only one can, runs it and says what became of it. What a
process has left unfinished is failed and added once more, as Optuna's
`RetryHeartbeatStaleTrialCallback` does: the newest trial of a name counts.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import TypeVar

import optuna
import psutil
import sqlalchemy
from optuna.storages import journal

from tff_adaptive import errors
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.report import scores
from tff_adaptive.report import sweeps
from tff_adaptive.sweep import grids

# The status of a run.
WAITING = 'waiting'
RUNNING = 'running'
FINISHED = sweeps.FINISHED
DIVERGED = 'diverged'
FAILED = 'failed'
PRUNED = 'pruned'
UNTRIED = 'untried'
# Of these there is nothing left to do.
OVER = (FINISHED, DIVERGED, FAILED, PRUNED)
# What a table says of every run beside its status, in columns of numbers.
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

_FILE = 'study.sqlite'
_FILE_BEFORE = 'sweep.sqlite'
_STATE_OF = {
  FINISHED: optuna.trial.TrialState.COMPLETE,
  DIVERGED: optuna.trial.TrialState.PRUNED,
  PRUNED: optuna.trial.TrialState.PRUNED,
  FAILED: optuna.trial.TrialState.FAIL,
}
_SECONDS_BETWEEN_BEATS = 15.0
# A process elsewhere that was silent for so long is taken for dead.
_SECONDS_OF_SILENCE = 90.0
_SECONDS_FOR_A_LOCK = 120.0
_TRIES_TO_MAKE_TABLES = 10
_SECONDS_BETWEEN_TRIES = 0.2
# Of a --storage that is none.
_NO_STORAGE = (
  sqlalchemy.exc.ArgumentError,
  sqlalchemy.exc.NoSuchModuleError,
  ImportError,
)
# Whatever Optuna and SQLAlchemy make of a study that is damaged or no sweep's.
_COMPLAINTS = (
  sqlalchemy.exc.SQLAlchemyError,
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
_Method = TypeVar('_Method', bound=Callable[..., Any])
Trial = optuna.trial.FrozenTrial


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What became of a run.

  Attributes:
    status: One of `OVER`, or `WAITING` if it was stopped on the way.
    reason: Why, where it is not finished.
    rounds: The last round that has a row.
    metric: The task's first measure of quality, if it has one.
    measures: The run in a few numbers: see `scores.measures`.
  """

  status: str
  reason: Optional[str] = None
  rounds: int = 0
  metric: Optional[str] = None
  measures: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
  """A run in the sweep's table.

  Attributes:
    name: The point's.
    flags: What tells the point from the others, as text.
    settings: All that decides the run's results.
    status: One of `WAITING`, `RUNNING`, `UNTRIED` and `OVER`.
    outcome: What its process said last of it.
  """

  name: str
  flags: Mapping[str, str]
  settings: Mapping[str, Any]
  status: str
  outcome: Outcome


def newest(trials: Sequence[Trial]) -> dict[str, Trial]:
  """The trial of every run that counts, by name.

  That of the last attempt; the first of them if several processes saw to it.
  """
  result: dict[str, Trial] = {}
  for trial in trials:
    name = trial.user_attrs['name']
    if name not in result or _attempt(trial) > _attempt(result[name]):
      result[name] = trial
  return result


def _attempt(trial: Trial) -> int:
  return trial.user_attrs.get('attempt', 0)


def _check(trial: Trial) -> None:
  """Raises an error that is told of unless a trial is a sweep's."""
  row = row_of(trial)
  texts = (row.name, row.outcome.status, *row.flags.values())
  if not all(isinstance(text, str) for text in texts):
    raise ValueError(f'trial {trial.number} is not of a sweep')
  if not isinstance(row.settings, dict) or not isinstance(
    row.outcome.measures, dict
  ):
    raise ValueError(f'trial {trial.number} is damaged')


def status_of(trial: Trial) -> str:
  """A trial's status, one of `WAITING`, `RUNNING` and `OVER`."""
  if trial.state == optuna.trial.TrialState.RUNNING:
    return RUNNING
  status = outcome_of(trial).status
  return status if trial.state.is_finished() and status in OVER else WAITING


def outcome_of(trial: Trial) -> Outcome:
  """What a trial's process said last of it."""
  return Outcome(**trial.user_attrs.get('outcome', {'status': WAITING}))


def is_running(trial: Trial) -> bool:
  """Whether some process has taken a run and not ended it."""
  return status_of(trial) == RUNNING


def row_of(trial: Trial) -> Row:
  """A trial as a row of the sweep's table."""
  outcome = outcome_of(trial)
  if is_running(trial):
    outcome = dataclasses.replace(outcome, reason=None)
  return Row(
    name=trial.user_attrs['name'],
    flags=trial.user_attrs['flags'],
    settings=trial.user_attrs['settings'],
    status=status_of(trial),
    outcome=outcome,
  )


def write_table(folder: pathlib.Path, rows: Sequence[Row]) -> None:
  """Writes results.csv: a row a run, a column for each flag of the sweep."""
  flags = list(dict.fromkeys(f for row in rows for f in row.flags))
  rest = ('status', 'reason', 'rounds', 'metric', *MEASURES)
  # A flag that is called like one of these columns keeps its dashes.
  head = ['name', *(f'--{f}' if f in rest else f for f in flags), *rest]
  table = [
    [
      row.name,
      *(row.flags.get(f) for f in flags),
      *(row.status, row.outcome.reason),
      *(row.outcome.rounds, row.outcome.metric),
      *(row.outcome.measures.get(m) for m in MEASURES),
    ]
    for row in rows
  ]
  sweeps.write_table(folder, head, table)


def was_begun(trial: Trial) -> bool:
  """Whether a run was ever started."""
  return trial.state != optuna.trial.TrialState.WAITING or _attempt(trial) > 0


def score_of(rule: scores.Rule, outcome: Outcome) -> float:
  """A run's score by the rounds that it has; less is better.

  Infinite where it diverged or failed.
  """
  useful = outcome.status in (FINISHED, PRUNED)
  return scores.score(rule, outcome.measures, outcome.metric, finished=useful)


def _complain(method: _Method) -> _Method:
  """Tells what is wrong with a study's storage in one sentence."""

  @functools.wraps(method)
  def wrapper(self: 'Study', *args: Any, **kwargs: Any) -> Any:
    with _told(self.place):
      return method(self, *args, **kwargs)

  return wrapper  # type: ignore[return-value]


@contextlib.contextmanager
def _told(place: str) -> Iterator[None]:
  try:
    yield
  except (errors.RunError, *_NO_STORAGE):
    raise
  except _COMPLAINTS as e:
    cause = e.__cause__ or e
    # SQLAlchemy adds the statement to what the database said.
    reason = errors.reason(getattr(cause, 'orig', None) or cause)
    if isinstance(cause, (sqlalchemy.exc.OperationalError, OSError)):
      raise errors.RunError(
        f'{place} cannot be read or written: {reason}.'
      ) from e
    raise errors.SettingsError(
      f"{place} cannot be used as a sweep's study ({reason}); move it away, "
      "and the same command makes it anew from the runs' folders."
    ) from e


class Study:
  """The trials of a sweep.

  Attributes:
    place: Where they are, for people.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    *,
    rule: scores.Rule,
    storage: Optional[str] = None,
    pruner: Optional[optuna.pruners.BasePruner] = None,
  ):
    """Opens the study, making it if there is none.

    Args:
      folder: The sweep's; a study in a `storage` is called like it.
      rule: Makes the value of a trial.
      storage: A URL that Optuna takes, or journal:FILE; a file in the folder
        unless given.
      pruner: Decides which runs are given up on the way; none unless given.

    Raises:
      SettingsError: If there is something else in that place.
      RunError: If it cannot be read or written.
    """
    self.place = _describe(folder, storage)
    self._rule = rule
    self._silence: dict[int, tuple[Any, float]] = {}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
      with _told(self.place):
        self._storage = _open(folder, storage)
    except _NO_STORAGE as e:
      raise errors.SettingsError(
        f'{self.place} cannot be opened ({errors.reason(e)}); it takes a URL '
        "of SQLAlchemy's, such as sqlite:////shared/sweep.sqlite, or "
        'journal:FILE.'
      ) from e
    with _told(self.place):
      self._study = optuna.create_study(
        storage=self._storage,
        # A file of its own stays the sweep's if its folder gets another name.
        study_name='sweep' if storage is None else folder.name,
        load_if_exists=True,
        # Which trial is next is decided elsewhere.
        sampler=optuna.samplers.RandomSampler(0),
        pruner=pruner or optuna.pruners.NopPruner(),
      )

  def close(self) -> None:
    """Lets go of the storage."""
    if isinstance(self._storage, optuna.storages.RDBStorage):
      self._storage.remove_session()
      self._storage.engine.dispose()

  def __enter__(self) -> 'Study':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self.close()

  @_complain
  def add(self, points: Sequence[grids.Point]) -> None:
    """Adds the points that are not there; the others must be the same ones.

    Args:
      points: All points of the sweep.

    Raises:
      SettingsError: If this is another sweep's study; nothing is changed.
    """
    before = self.trials()
    strangers = sorted(set(before) - {p.name for p in points})
    if strangers:
      raise errors.SettingsError(
        f'{self.place} holds another sweep, with {len(strangers)} runs that '
        f'are not of this one, such as {strangers[0]}: choose another '
        '--experiment_name, or give the axes that it was started with (an axis '
        'may have more values than before).'
      )
    for point in points:
      if point.name in before:
        settings_lib.check_same(
          before[point.name].user_attrs['settings'],
          _plain(point.settings.identity),
          point.settings.folder,
        )
    distributions = _distributions(points)
    for point in points:
      if point.name not in before:
        params = _numbers(point.flags)
        self._study.add_trial(
          optuna.create_trial(
            state=optuna.trial.TrialState.WAITING,
            params=params,
            distributions={k: distributions[k] for k in params},
            user_attrs={
              'name': point.name,
              'flags': dict(point.flags),
              'settings': _plain(point.settings.identity),
            },
          )
        )

  @_complain
  def trials(self) -> dict[str, Trial]:
    """The newest trial of every run, by name."""
    trials = newest(self._study.get_trials(deepcopy=False))
    for trial in trials.values():
      _check(trial)
    return trials

  @_complain
  def take(self, trial: Trial) -> Optional['Taken']:
    """Takes a waiting run for this process; `None` if another one has it."""
    identifier = self._identifier(trial.number)
    try:
      mine = self._storage.set_trial_state_values(
        identifier, optuna.trial.TrialState.RUNNING
      )
    except optuna.exceptions.UpdateFinishedTrialError:
      return None
    if not mine:
      return None
    taken = Taken(self, optuna.trial.Trial(self._study, identifier))
    taken.trial.set_user_attr('owner', _owner(os.getpid()))
    return taken

  def _identifier(self, number: int) -> int:
    return self._storage.get_trial_id_from_study_id_trial_number(
      self._storage.get_study_id_from_name(self._study.study_name), number
    )

  @_complain
  def run_again(self, trial: Trial, outcome: Optional[Outcome] = None) -> None:
    """Lets a run be taken once more, which goes on from where it is.

    Args:
      trial: The run's newest one.
      outcome: How far it is.
    """
    if not trial.state.is_finished() and not self._tell(
      trial.number, state=optuna.trial.TrialState.FAIL
    ):
      return  # Another process has seen to it.
    keep = {key: trial.user_attrs[key] for key in ('name', 'flags', 'settings')}
    if outcome is not None:
      keep['outcome'] = _plain(dataclasses.asdict(outcome))
    # What a pruner compared counts, unless it was that which ended the run.
    states = optuna.trial.TrialState
    again = trial.state in (states.RUNNING, states.FAIL)
    self._study.add_trial(
      optuna.create_trial(
        state=optuna.trial.TrialState.WAITING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={**keep, 'attempt': _attempt(trial) + 1},
        system_attrs=trial.system_attrs if again else {},
        intermediate_values=trial.intermediate_values if again else {},
      )
    )

  def _tell(self, number: int, **what: Any) -> bool:
    """Ends a trial; returns whether it was this process that did."""
    try:
      self._study.tell(number, **what)
    except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
      return False  # As Optuna says that it is over already.
    return True

  @_complain
  def finish(self, taken: 'Taken', outcome: Outcome) -> None:
    """Says what became of a run that this process has taken."""
    trial = self.trials()[taken.name]
    if trial.number == taken.trial.number:
      self._finish(trial, outcome)

  @_complain
  def fail_runs_of(self, process: int, reason: str) -> list[str]:
    """Ends the runs of a process of this machine that is gone.

    Returns:
      Their names.
    """
    names = []
    for name, trial in self.trials().items():
      owner = trial.user_attrs.get('owner')
      if is_running(trial) and owner and owner['process'] == process:
        if owner['machine'] == _machine():
          self._finish(trial, Outcome(FAILED, reason))
          names.append(name)
    return names

  def _finish(self, trial: Trial, outcome: Outcome) -> None:
    if outcome.status == WAITING:
      self.run_again(trial, outcome)
      return
    try:
      self._storage.set_trial_user_attr(
        self._identifier(trial.number),
        'outcome',
        _plain(dataclasses.asdict(outcome)),
      )
    except optuna.exceptions.UpdateFinishedTrialError:
      return  # Another process took this one for dead.
    finished = outcome.status == FINISHED
    self._tell(
      trial.number,
      values=score_of(self._rule, outcome) if finished else None,
      state=_STATE_OF[outcome.status],
    )

  @_complain
  def take_up_dead(self) -> None:
    """Lets the runs be taken once more whose process is gone."""
    for trial in self.trials().values():
      interrupted = trial.state.is_finished() and status_of(trial) == WAITING
      if interrupted or (is_running(trial) and self._is_dead(trial)):
        self.run_again(trial)

  def _is_dead(self, trial: Trial) -> bool:
    owner = trial.user_attrs.get('owner')
    if owner is not None and owner['machine'] == _machine():
      return _owner(owner['process']) != owner
    # By this machine's clock alone: clocks of different machines differ.
    sign = (owner, trial.user_attrs.get('alive'))
    now = time.monotonic()
    before, since = self._silence.get(trial.number, (None, now))
    if before != sign:
      since = now
    self._silence[trial.number] = (sign, since)
    return now - since > _SECONDS_OF_SILENCE


class Taken:
  """A run that this process has taken; a context manager that says so.

  Attributes:
    trial: Optuna's.
  """

  def __init__(self, study: Study, trial: optuna.trial.Trial):
    self.trial = trial
    self._study = study
    self._ended = threading.Event()
    self._thread = threading.Thread(target=self._beat, daemon=True)

  @property
  def name(self) -> str:
    return self.trial.user_attrs['name']

  def __enter__(self) -> 'Taken':
    self._thread.start()
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._ended.set()
    self._thread.join()

  def _beat(self) -> None:
    """Shows other machines that this process is alive."""
    count = 0
    while not self._ended.wait(_SECONDS_BETWEEN_BEATS):
      count += 1
      # A storage that is away for a while is tried again with the next beat.
      with contextlib.suppress(errors.RunError), _told(self._study.place):
        self.trial.set_user_attr('alive', count)

  def is_worse(self, score: float, round_number: int) -> bool:
    """Whether the pruner gives the run up after a round.

    Args:
      score: The run's so far; less is better.
      round_number: The round.
    """
    with _told(self._study.place):
      self.trial.report(score, round_number)
      return self.trial.should_prune()


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
  """A mapping as it comes back from JSON."""
  return json.loads(json.dumps(dict(value)))


def _numbers(flags: Mapping[str, str]) -> dict[str, float]:
  """Those of a point's flags that are numbers, as Optuna's parameters.

  Words are not among them: the choices of a parameter of Optuna's cannot grow,
  as the axes of a sweep can.
  """
  found = {flag: grids.number(text) for flag, text in flags.items()}
  return {flag: value for flag, value in found.items() if value is not None}


def _distributions(
  points: Sequence[grids.Point],
) -> dict[str, optuna.distributions.FloatDistribution]:
  values: dict[str, list[float]] = {}
  for point in points:
    for flag, value in _numbers(point.flags).items():
      values.setdefault(flag, []).append(value)
  return {
    flag: optuna.distributions.FloatDistribution(min(found), max(found))
    for flag, found in values.items()
  }


@functools.cache
def _machine() -> str:
  """Tells in which processes' numbers a number is one."""
  boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text('utf-8')
  return f'{boot.strip()}/{os.stat("/proc/self/ns/pid").st_ino}'


def _owner(process: int) -> Optional[dict[str, Any]]:
  """A process of this machine for whoever looks for it; `None` if it is gone.

  A later one may have the same number, but not the same time.
  """
  try:
    found = psutil.Process(process)
    if found.status() == psutil.STATUS_ZOMBIE:
      return None
    started = round(found.create_time(), 2)
  except psutil.NoSuchProcess:
    return None
  return {'machine': _machine(), 'process': process, 'started': started}


def _describe(folder: pathlib.Path, storage: Optional[str]) -> str:
  """Where a study is, without a password."""
  if storage is None:
    return str(folder / _FILE)
  with contextlib.suppress(sqlalchemy.exc.ArgumentError):
    url = sqlalchemy.engine.make_url(storage)
    storage = url.render_as_string(hide_password=True)
  return f'--storage={storage}'


def _open(
  folder: pathlib.Path, storage: Optional[str]
) -> optuna.storages.BaseStorage:
  """Opens a study's storage, making it if there is none."""
  scheme, _, rest = (storage or 'sqlite:').partition(':')
  if scheme == 'journal':
    return optuna.storages.JournalStorage(journal.JournalFileBackend(rest))
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
      f'--storage={storage} is in the memory of one process, and a sweep has '
      'several; give a file.'
    )
  result = _open_database(url, {'timeout': _SECONDS_FOR_A_LOCK})
  _lock_transactions(result.engine)
  return result


def _open_database(
  url: sqlalchemy.engine.URL, connect_args: Mapping[str, Any]
) -> optuna.storages.RDBStorage:
  """Opens a database, and makes its tables if they are not there.

  Processes that make them at once get in each other's way: Optuna looks which
  tables there are before it makes the others.
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
  """Makes every transaction of SQLite's keep the others out from its start.

  Optuna takes a waiting trial by reading its state and then changing it, with
  rows locked in between where the database has such locks. SQLite has none:
  two processes could take the same trial.
  """

  @sqlalchemy.event.listens_for(engine, 'connect')
  def leave_transactions_to_us(connection: Any, record: Any) -> None:
    del record
    connection.isolation_level = None

  @sqlalchemy.event.listens_for(engine, 'begin')
  def begin(connection: Any) -> None:
    connection.exec_driver_sql('BEGIN IMMEDIATE')

  engine.dispose()  # Connections from before.


def check_folder(folder: pathlib.Path) -> None:
  """Raises `SettingsError` if a folder has a sweep of an earlier version."""
  if (folder / _FILE_BEFORE).exists():
    raise errors.SettingsError(
      f'{folder} holds a sweep of an earlier version of this program '
      f'({_FILE_BEFORE}), which this one cannot go on with; choose another '
      '--experiment_name.'
    )
