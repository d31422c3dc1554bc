"""A sweep's runs as the trials of an Optuna study.

A grid's points are trials that wait from the beginning; a search draws one
after the other. Only the first seed of a configuration is searched and pruned;
its other seeds are added once it has finished or, in tuning, once it is the
best of its method. The trial of a name with the most attempts counts; of these
the first.
"""

import contextlib
import dataclasses
import json
import math
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import optuna

from tff_adaptive import errors
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import storage as storages
from tff_adaptive.lab.training import experiment
from tff_adaptive.runtime import machine

Trial = optuna.trial.FrozenTrial
_STATES = optuna.trial.TrialState
# Of a study in the sweep's folder, so that it survives renaming it.
_NAME = 'sweep'
# Random configurations before a sampler's model is used.
_FIRST_TRIALS = 5
# Successive draws of known or invalid configurations after which a search has
# ended.
_MOST_REPEATED = 50
_HALVING_FACTOR = 3
# The attribute of a trial that describes its run.
_RUN = 'run'
# That of a study whose search has ended early: the number of trials asked for.
_SPENT = 'spent'
# That of a study whose search has drawn an invalid configuration: the error.
_REFUSED = 'refused'
# Runs a point; given its trial, unless the pruner may not end it.
Run = Callable[[grids.Point, Optional[optuna.trial.Trial]], outcomes.Outcome]


class Ended(Exception):
  """Raised for a trial that has no result."""


class NotOurs(BaseException):
  """Raised if another process has been given this process's trial."""


def _searched(blocks: Iterable[Any]) -> Any:
  """Returns what a search draws from: of seeds, the first alone."""
  return _plain(
    [
      [fixed, {k: v[:1] if k in runs.SEEDS else v for k, v in axes.items()}]
      for fixed, axes in blocks
    ]
  )


class Study:
  """The trials of a sweep.

  Attributes:
    place: The location of the study, as text.
  """

  def __init__(self, sweep: flags.Sweep):
    """Opens the study, creating it if it does not exist.

    Args:
      sweep: The sweep; a study in a --storage has the name of its folder.

    Raises:
      SettingsError: If the location holds something else.
      RunError: If the storage cannot be read or written.
    """
    self._sweep = sweep
    self._rule = scores.RULES[sweep.select]
    self._points = {point.name: point for point in sweep.points}
    self._repeated = 0
    self._us = [machine.boot(), os.getpid()]
    storage = sweep.options['storage']
    self._shared = storage is not None
    self.place = storages.describe(sweep.folder, storage)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter('ignore', optuna.exceptions.ExperimentalWarning)
    # By a resumed run.
    warnings.filterwarnings('ignore', 'The reported value is ignored')
    self._storage = storages.open_storage(
      sweep.folder, storage, lambda _, trial: self._requeue(trial)
    )
    with storages.complaints(self.place, opening=True):
      self._study = optuna.create_study(
        storage=self._storage,
        study_name=sweep.folder.name if self._shared else _NAME,
        load_if_exists=True,
        pruner=self._pruner(),
      )

  def _pruner(self) -> optuna.pruners.BasePruner:
    kind = self._sweep.options['pruner']
    if kind == 'none':
      return optuna.pruners.NopPruner()
    if kind == 'median':
      return optuna.pruners.MedianPruner()
    space = self._sweep.space
    points = space.points(samples=True) if space else self._sweep.points
    rungs = points[0].total_rounds // _HALVING_FACTOR**2
    return optuna.pruners.SuccessiveHalvingPruner(
      max(rungs, 1), _HALVING_FACTOR
    )

  def _sampler(self, count: int) -> optuna.samplers.BaseSampler:
    """Builds the sampler, whose choices depend on the seed and earlier trials.

    Args:
      count: The number of trials so far.
    """
    space = self._sweep.space
    assert space is not None
    given = int(space.parser.given.get('seed', self._sweep.tuned_on or 0))
    seed = random.Random(f'{given} {count}').getrandbits(31)
    # A model that draws what it knows is stuck.
    kind = 'random' if self._repeated else self._sweep.options['search']
    if kind == 'qmc':
      return optuna.samplers.QMCSampler(
        seed=given % 2**32, warn_independent_sampling=False
      )
    if kind == 'random':
      return optuna.samplers.RandomSampler(seed)
    return optuna.samplers.TPESampler(
      seed=seed,
      n_startup_trials=_FIRST_TRIALS,
      multivariate=True,
      group=True,
      constant_liar=True,
    )

  def _rows(self) -> dict[str, outcomes.Row]:
    """Reads the current row of every run, by name.

    Raises:
      SettingsError: If the study is damaged.
    """
    found: dict[str, outcomes.Row] = {}
    with storages.complaints(self.place, opening=True):
      for trial in self._study.get_trials(deepcopy=False):
        if _RUN in trial.user_attrs:
          row = row_of(trial)
          if row.attempt > found.setdefault(row.name, row).attempt:
            found[row.name] = row
    return found

  def rows(self) -> list[outcomes.Row]:
    """Returns the rows of the sweep's table, in order of the points."""
    rows = self._rows()
    ordered = [rows.pop(name) for name in self._points if name in rows]
    return [*ordered, *rows.values()]

  def start(self) -> None:
    """Adds what the flags ask for by now, and requeues runs that are to go on.

    That is, interrupted ones, and those that are not over under the flags of
    now, which may have more rounds or other rules that end a run.

    Raises:
      SettingsError: If the study belongs to another sweep; nothing is changed.
    """
    self._check_same()
    # Drawing once more may find values that were missed.
    self._study.set_user_attr(_SPENT, None)
    points = self._sweep.points
    if self._sweep.learns:
      points = [first for first, *_ in self._sweep.configurations.values()]
    if self._sweep.options['pruner'] != 'none':
      # In grid order each rate may be better than the ones before it, so that
      # none would be pruned.
      points = random.Random(0).sample(points, len(points))
    self._add(points)
    for row in self._rows().values():
      again = {
        outcomes.PRUNED: self._sweep.options['pruner'] == 'none',
        outcomes.FAILED: self._sweep.options['retry_failed'],
        # By a limit that is there no longer.
        outcomes.DIVERGED: not self._sweep.options['divergence_factor']
        and math.isfinite(row.outcome.measures.get('last/loss', math.nan)),
        outcomes.FINISHED: row.status == outcomes.FINISHED
        and not self._is_finished(row),
        # Ended by an error that was not its own.
        outcomes.WAITING: row.trial.state.is_finished(),
      }
      if row.status == outcomes.RUNNING and not self._shared:
        # Its process is dead: this one holds the lock of the folder.
        self._release(row.trial)
      elif again.get(row.status, False):
        self._requeue(row.trial)
    self.add_repeats()

  def _check_same(self) -> None:
    """Raises `SettingsError` if the study belongs to another sweep."""
    space, searched = self._sweep.space, None
    if space is not None:
      searched = _searched([[b.fixed, b.axes] for b in space.blocks])
    before, known = self._rows(), self._study.user_attrs.get('searched')
    other = before and searched != (known and _searched(known))
    strangers = [] if space else sorted({*before} - {*self._points})
    if other or strangers:
      raise errors.SettingsError(
        f'{self.place} holds another sweep, with runs that do not belong to '
        f'this one, such as {(strangers or [*before])[0]}: choose another '
        '--experiment_name, or give the original axes (an axis of a grid may '
        'have additional values).'
      )
    self._study.set_user_attr('searched', searched)
    for row in before.values():
      point = self._point(row)
      settings_lib.check_same(
        row.settings, _plain(point.identity), point.folder
      )

  def _point(self, row: outcomes.Row) -> grids.Point:
    """Returns the point of a row, built anew for a search."""
    if self._sweep.space is None:
      return self._points[row.name]
    return self._sweep.space.find(row.flags)

  def _is_finished(self, row: outcomes.Row) -> bool:
    """Returns whether a finished run is so under the settings of now."""
    point = self._point(row)
    if self._shared:  # The run's folder may be on another machine.
      return row.settings['total_rounds'] == point.total_rounds
    try:
      return experiment.prepare(point.settings) is not None
    except errors.RunError:
      return False

  def _add(
    self, points: Iterable[grids.Point], first: Optional[Trial] = None
  ) -> None:
    """Adds the points that are missing, as waiting trials.

    Args:
      points: The points.
      first: The trial of which they are repeats.
    """
    known = self._rows()
    for point in points:
      if point.name in known:
        continue
      # Words are not included: the choices of an Optuna parameter cannot be
      # extended, while the axes of a grid can.
      numbers = {k: grids.number(text) for k, text in point.flags.items()}
      params: dict[str, Any] = {
        k: v for k, v in numbers.items() if v is not None
      }
      kinds: Mapping[str, optuna.distributions.BaseDistribution] = {
        k: optuna.distributions.FloatDistribution(v, v)
        for k, v in params.items()
      }
      if first is not None:
        params, kinds = first.params, first.distributions
      self._wait(params, kinds, _described(point, repeat=first is not None))

  def _wait(
    self, params: Mapping[str, Any], kinds: Mapping[str, Any], run: Any
  ) -> None:
    """Adds a waiting trial."""
    self._study.add_trial(
      optuna.create_trial(
        state=_STATES.WAITING,
        params=dict(params),
        distributions=dict(kinds),
        user_attrs={_RUN: run},
      )
    )

  def _requeue(self, trial: Trial) -> None:
    """Adds a run once more, which continues from its last checkpoint."""
    run = trial.user_attrs.get(_RUN)
    if run is not None:  # Else its process died before it had drawn a point.
      again = {**run, 'attempt': run['attempt'] + 1}
      self._wait(trial.params, trial.distributions, again)

  def add_repeats(self) -> None:
    """Adds the other seeds of configurations that are to be repeated."""
    if not self._sweep.learns:
      return
    rows = self._rows()
    firsts = [row for row in rows.values() if not row.repeat]
    over = [row for row in firsts if row.status in outcomes.OVER]
    chosen = [row for row in over if row.status == outcomes.FINISHED]
    if self._sweep.tuned_on is not None:
      if len(over) < len(firsts) or self._to_draw(rows):
        return
      by_method: dict[tuple, dict[str, list[float]]] = {}
      for row in over:
        method = sections.experiment(row.settings), runs.method_of(row.settings)
        score = row.outcome.score(self._rule)
        by_method.setdefault(method, {})[row.name] = [score]
      best = (scores.best(scored) for scored in by_method.values())
      chosen = [rows[name] for name in best if name is not None]
    for row in chosen:
      if self._sweep.space is not None:
        repeats = self._sweep.space.repeats(row.flags)
      else:
        key = grids.configuration(row.flags)
        repeats = self._sweep.configurations[key][1:]
      self._add(repeats, row.trial)

  def _to_draw(self, rows: Mapping[str, outcomes.Row]) -> int:
    """Returns how many further configurations the search draws."""
    trials = self._sweep.trials
    if (
      self._sweep.space is None or self._study.user_attrs.get(_SPENT) == trials
    ):
      return 0
    drawn = sum(not row.repeat for row in rows.values())
    return max(trials - drawn, 0)

  def left(self) -> int:
    """Returns how many runs can be started now, or are running."""
    rows = self._rows()
    unfinished = sum(r.status not in outcomes.OVER for r in rows.values())
    return unfinished + self._to_draw(rows)

  def run_next(self, run: Run) -> Optional[bool]:
    """Claims a run, draws it if none is waiting, and runs it.

    Args:
      run: Runs it.

    Returns:
      Whether a run was claimed; `None` if there is none to claim, and none
      running elsewhere. Not `None` if a search has just ended early, after
      which the best may be repeated.
    """
    rows = self._rows()
    states = {row.trial.state for row in rows.values()}
    if _STATES.WAITING not in states and not self._to_draw(rows):
      if self._shared:
        optuna.storages.fail_stale_trials(self._study)
      return False if _STATES.RUNNING in states else None
    if self._sweep.space is not None:
      self._study.sampler = self._sampler(len(self._study.trials))
    claimed: list[optuna.trial.Trial] = []

    def objective(trial: optuna.trial.Trial) -> float:
      row = self._claim(trial)
      claimed.append(trial)
      outcome = run(self._point(row), None if row.repeat else trial)
      self._check_ours(trial)
      trial.set_user_attr('outcome', _plain(dataclasses.asdict(outcome)))
      if outcome.status == outcomes.FAILED:
        raise Ended
      if outcome.status != outcomes.FINISHED:
        raise optuna.TrialPruned
      return outcome.score(self._rule)

    try:
      self._study.optimize(objective, n_trials=1, catch=(Ended,))
    except NotOurs:
      pass
    except BaseException:
      # Stopped by a signal, or by an error that is not the run's own.
      with contextlib.suppress(NotOurs):
        for trial in claimed:
          self._check_ours(trial)
          self._release(trial)
      raise
    if 0 < self._repeated < _MOST_REPEATED and not claimed:
      return self.run_next(run)  # At once: nothing else has to end first.
    return bool(claimed)

  def _claim(self, trial: optuna.trial.Trial) -> outcomes.Row:
    """Takes a waiting trial, or draws a new one.

    Raises:
      Ended: If another process has the run already.
    """
    if _RUN not in trial.user_attrs:
      rows = self._rows()
      if self._sweep.space is None or not self._to_draw(rows):
        raise Ended  # The last waiting trial was claimed elsewhere meanwhile.
      try:
        point = self._sweep.space.draw(trial)
        is_new = point.name not in rows
      except errors.SettingsError as e:
        is_new = False  # Values that contradict each other.
        if _REFUSED not in self._study.user_attrs:
          self._study.set_user_attr(_REFUSED, str(e))
          print(f'The search passes over, for example: {e}', file=sys.stderr)
      self._repeated = 0 if is_new else self._repeated + 1
      if self._repeated >= _MOST_REPEATED:
        # In the study, as other processes wait for what is left to draw.
        self._study.set_user_attr(_SPENT, self._sweep.trials)
      if not is_new:
        raise Ended
      trial.set_user_attr(_RUN, _described(point, repeat=False))
    row = self._rows()[trial.user_attrs[_RUN]['name']]
    if row.trial.number != trial.number:
      raise Ended
    trial.set_user_attr('process', self._us)
    # Those of now, which may have more rounds.
    settings = _plain(self._point(row).identity)
    trial.set_user_attr(_RUN, {**trial.user_attrs[_RUN], 'settings': settings})
    return row

  def _check_ours(self, trial: optuna.trial.Trial) -> None:
    now = self._storage.get_trial(trial._trial_id)
    if now.state.is_finished() or now.user_attrs.get('process') != self._us:
      raise NotOurs

  def _release(self, trial: Any) -> None:
    """Lets a running trial wait again."""
    self._storage.set_trial_state_values(trial._trial_id, _STATES.WAITING)

  def release_runs_of(self, process: int) -> None:
    """Lets the running trials of a process of this machine wait again."""
    for trial in self._running(process):
      self._release(trial)

  def fail_runs_of(self, process: int, reason: str) -> bool:
    """Fails the runs of a process of this machine; returns if it had any."""
    lost = self._running(process)
    outcome = outcomes.Outcome(outcomes.FAILED, reason)
    for trial in lost:
      self._storage.set_trial_user_attr(
        trial._trial_id, 'outcome', dataclasses.asdict(outcome)
      )
      self._study.tell(trial.number, state=_STATES.FAIL)
    return bool(lost)

  def _running(self, process: int) -> list[Trial]:
    us = [machine.boot(), process]
    trials = [row.trial for row in self._rows().values()]
    return [
      trial
      for trial in trials
      if trial.state == _STATES.RUNNING
      and trial.user_attrs.get('process') == us
    ]


def _described(point: grids.Point, *, repeat: bool) -> dict[str, Any]:
  """Returns the description of a point's trials."""
  return {
    'name': point.name,
    'flags': dict(point.flags),
    'settings': _plain(point.identity),
    'repeat': repeat,
    'attempt': 0,
  }


def _plain(value: Any) -> Any:
  """Returns a value after a round trip through JSON."""
  return json.loads(json.dumps(value))


def row_of(trial: Trial) -> outcomes.Row:
  """Converts a trial to a row of the sweep's table."""
  outcome = outcomes.Outcome(**trial.user_attrs.get('outcome', {}))
  status = outcome.status
  if trial.state == _STATES.RUNNING:
    status = outcomes.RUNNING
  elif not trial.state.is_finished() or status not in outcomes.OVER:
    status = outcomes.WAITING
  return outcomes.Row(
    **trial.user_attrs[_RUN], status=status, outcome=outcome, trial=trial
  )
