"""A sweep's runs as the trials of an Optuna study.

Every point of a sweep is a trial, initially waiting. A process atomically
claims a waiting trial, runs it and records the outcome. An unfinished trial of
a dead process is failed and added once more, as Optuna's
`RetryHeartbeatStaleTrialCallback` does; the newest trial of a name counts.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import TypeVar

import optuna

from tff_adaptive import errors
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import storage as storages
from tff_adaptive.runtime import machine

_STATE_OF = {
  outcomes.FINISHED: optuna.trial.TrialState.COMPLETE,
  outcomes.DIVERGED: optuna.trial.TrialState.PRUNED,
  outcomes.PRUNED: optuna.trial.TrialState.PRUNED,
  outcomes.FAILED: optuna.trial.TrialState.FAIL,
}
_SECONDS_BETWEEN_BEATS = 15.0
# A process on another machine is considered dead after this long a silence.
_SECONDS_OF_SILENCE = 90.0
_Method = TypeVar('_Method', bound=Callable[..., Any])


def _complain(method: _Method) -> _Method:
  """Decorates a method to report storage errors in one sentence."""

  @functools.wraps(method)
  def wrapper(self: 'Study', *args: Any, **kwargs: Any) -> Any:
    with storages.complaints(self.place):
      return method(self, *args, **kwargs)

  return wrapper  # type: ignore[return-value]


class Study:
  """The trials of a sweep.

  Attributes:
    place: The location of the study, as text.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    *,
    rule: scores.SelectionRule,
    storage: Optional[str] = None,
    pruner: Optional[optuna.pruners.BasePruner] = None,
  ):
    """Opens the study, creating it if it does not exist.

    Args:
      folder: The sweep's folder; a study in a `storage` has the folder's name.
      rule: The rule that computes the value of a trial.
      storage: A URL that Optuna accepts, or journal:FILE; by default a file in
        the folder.
      pruner: The pruner of runs; by default none.

    Raises:
      SettingsError: If the location holds something else.
      RunError: If the storage cannot be read or written.
    """
    self.place = storages.describe(folder, storage)
    self._rule = rule
    self._silence: dict[int, tuple[Any, float]] = {}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    self._storage = storages.open_storage(folder, storage)
    with storages.complaints(self.place):
      self._study = optuna.create_study(
        storage=self._storage,
        # With a fixed name, a study in the folder survives renaming it.
        study_name='sweep' if storage is None else folder.name,
        load_if_exists=True,
        # `search.TrialScheduler` chooses the next trial.
        sampler=optuna.samplers.RandomSampler(0),
        pruner=pruner or optuna.pruners.NopPruner(),
      )

  def close(self) -> None:
    """Closes the storage."""
    if isinstance(self._storage, optuna.storages.RDBStorage):
      self._storage.remove_session()
      self._storage.engine.dispose()

  def __enter__(self) -> 'Study':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self.close()

  @_complain
  def add(self, points: Sequence[grids.Point]) -> None:
    """Adds missing points; existing ones must have the same settings.

    Args:
      points: All points of the sweep.

    Raises:
      SettingsError: If the study belongs to another sweep; nothing is changed.
    """
    before = self.trials()
    strangers = sorted(set(before) - {p.name for p in points})
    if strangers:
      raise errors.SettingsError(
        f'{self.place} holds another sweep, with {len(strangers)} runs that do '
        f'not belong to this one, such as {strangers[0]}: choose another '
        '--experiment_name, or give the original axes (an axis may have '
        'additional values).'
      )
    for point in points:
      if point.name in before:
        settings_lib.check_same(
          before[point.name].user_attrs['settings'],
          _plain(point.identity),
          point.folder,
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
              'settings': _plain(point.identity),
            },
          )
        )

  @_complain
  def trials(self) -> dict[str, outcomes.Trial]:
    """Reads the current trial of every run, by name.

    Takes a second for some thousand runs that are not over: Optuna reads them
    anew each time.
    """
    trials = outcomes.newest(self._study.get_trials(deepcopy=False))
    for trial in trials.values():
      outcomes.check(trial)
    return trials

  @_complain
  def take(self, trial: outcomes.Trial) -> Optional['Taken']:
    """Claims a waiting run for this process; `None` if another has it."""
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

  def take_first(self, trials: Iterable[outcomes.Trial]) -> Optional['Taken']:
    """Claims the first run of several that no other process has."""
    return next(filter(None, map(self.take, trials)), None)

  def _identifier(self, number: int) -> int:
    return self._storage.get_trial_id_from_study_id_trial_number(
      self._storage.get_study_id_from_name(self._study.study_name), number
    )

  @_complain
  def run_again(
    self, trial: outcomes.Trial, outcome: Optional[outcomes.Outcome] = None
  ) -> None:
    """Requeues a run, which continues from its last checkpoint.

    Args:
      trial: The run's current trial.
      outcome: The run's progress so far.
    """
    if not trial.state.is_finished() and not self._tell(
      trial.number, state=optuna.trial.TrialState.FAIL
    ):
      return  # Another process has requeued it.
    keep = {key: trial.user_attrs[key] for key in ('name', 'flags', 'settings')}
    if outcome is not None:
      keep['outcome'] = _plain(dataclasses.asdict(outcome))
    # Intermediate values are kept, unless the pruner ended the run.
    states = optuna.trial.TrialState
    again = trial.state in (states.RUNNING, states.FAIL)
    self._study.add_trial(
      optuna.create_trial(
        state=optuna.trial.TrialState.WAITING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={**keep, 'attempt': outcomes.attempt_of(trial) + 1},
        system_attrs=trial.system_attrs if again else {},
        intermediate_values=trial.intermediate_values if again else {},
      )
    )

  def _tell(self, number: int, **what: Any) -> bool:
    """Ends a trial; returns whether this process ended it."""
    try:
      self._study.tell(number, **what)
    except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
      return False  # The trial was over already.
    return True

  @_complain
  def finish(self, taken: 'Taken', outcome: outcomes.Outcome) -> None:
    """Records the outcome of a run that this process has claimed."""
    trial = self._storage.get_trial(self._identifier(taken.trial.number))
    # Another process may have declared this one dead.
    if not trial.state.is_finished():
      self._finish(trial, outcome)

  @_complain
  def fail_runs_of(
    self, process: int, reason: str, run: Optional[str] = None
  ) -> list[str]:
    """Fails the runs of a process that has ended.

    Args:
      process: The process id, on this machine.
      reason: How the process ended.
      run: A run that the process is known to have started, on any machine.

    Returns:
      The names of the runs.
    """
    names = []
    for name, trial in self.trials().items():
      owner = trial.user_attrs.get('owner') or {}
      here = owner.get('machine') == machine.boot()
      if outcomes.is_running(trial) and (
        name == run or (here and owner['process'] == process)
      ):
        self._finish(trial, outcomes.Outcome(outcomes.FAILED, reason))
        names.append(name)
    return names

  def _finish(self, trial: outcomes.Trial, outcome: outcomes.Outcome) -> None:
    if outcome.status == outcomes.WAITING:
      self.run_again(trial, outcome)
      return
    try:
      self._storage.set_trial_user_attr(
        self._identifier(trial.number),
        'outcome',
        _plain(dataclasses.asdict(outcome)),
      )
    except optuna.exceptions.UpdateFinishedTrialError:
      return  # Another process has declared this one dead.
    finished = outcome.status == outcomes.FINISHED
    self._tell(
      trial.number,
      values=outcomes.score_of(self._rule, outcome) if finished else None,
      state=_STATE_OF[outcome.status],
    )

  @_complain
  def take_up_dead(self) -> None:
    """Requeues the runs of dead processes."""
    for trial in self.trials().values():
      interrupted = (
        trial.state.is_finished()
        and outcomes.status_of(trial) == outcomes.WAITING
      )
      if interrupted or (outcomes.is_running(trial) and self._is_dead(trial)):
        self.run_again(trial)

  def _is_dead(self, trial: outcomes.Trial) -> bool:
    owner = trial.user_attrs.get('owner')
    if owner is not None and owner['machine'] == machine.boot():
      return _owner(owner['process']) != owner
    # Measured by this machine's clock, because clocks of machines differ.
    sign = (owner, trial.user_attrs.get('alive'))
    now = time.monotonic()
    before, since = self._silence.get(trial.number, (None, now))
    if before != sign:
      since = now
    self._silence[trial.number] = (sign, since)
    return now - since > _SECONDS_OF_SILENCE


class Taken:
  """A run claimed by this process; as a context manager, it sends heartbeats.

  Attributes:
    trial: Optuna's trial.
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
    """Sends heartbeats to processes on other machines."""
    count = 0
    while not self._ended.wait(_SECONDS_BETWEEN_BEATS):
      count += 1
      # The next heartbeat retries a storage that is unavailable.
      with (
        contextlib.suppress(errors.RunError),
        storages.complaints(self._study.place),
      ):
        self.trial.set_user_attr('alive', count)

  def is_worse(self, score: float, round_number: int) -> bool:
    """Returns whether the pruner ends the run after a round.

    Args:
      score: The run's score so far; lower is better.
      round_number: The round.
    """
    with storages.complaints(self._study.place):
      self.trial.report(score, round_number)
      return self.trial.should_prune()


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a mapping after a round trip through JSON."""
  return json.loads(json.dumps(dict(value)))


def _numbers(flags: Mapping[str, str]) -> dict[str, float]:
  """Parses the numeric flags of a point, as Optuna's parameters.

  Words are not included: the choices of an Optuna parameter cannot be extended,
  while the axes of a sweep can.
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


def _owner(process: int) -> Optional[dict[str, Any]]:
  """Describes a process of this machine; `None` if it has ended."""
  started = machine.start_of(process)
  if started is None:
    return None
  return {'machine': machine.boot(), 'process': process, 'started': started}
