"""The order of a sweep's runs, by grid or by search.

Optuna's samplers propose points in the space of the axes; the nearest waiting
point of the sweep is run. Only the first seed of a configuration is proposed
and pruned; other seeds repeat configurations that ran to their end.
"""

import dataclasses
import functools
import math
import random
import warnings
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import optuna

from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import study as study_lib

_Trials = Mapping[str, outcomes.Trial]
# The range of numbers, or the choices of words, by flag.
_Space = dict[str, optuna.distributions.BaseDistribution]
# Defaults of --trials and --halving_factor.
_TRIALS = 20
_HALVING_FACTOR = 3
# Random configurations before a sampler's model is used.
_FIRST_TRIALS = 5


@dataclasses.dataclass(frozen=True)
class TrialScheduler:
  """The runs of a sweep and their order.

  Attributes:
    points: The sweep's points.
    sampler: The sampler of configurations: 'grid', 'random', 'tpe' or 'gp'.
    rule: The rule that compares configurations.
    trials: Number of configurations that a sampler other than grid tries.
    seed: Seed of the sampler.
    halving_factor: After every rung, 1 / halving_factor of the runs continue;
      `None` disables pruning.
    tuned: Whether only the best configuration of each method is repeated on
      further seeds, once all results on the first seed are known.
  """

  points: Sequence[grids.Point]
  sampler: str
  rule: scores.SelectionRule
  trials: int
  seed: int
  halving_factor: Optional[int] = None
  tuned: bool = False

  @functools.cached_property
  def _configurations(self) -> list[list[str]]:
    """The runs' names, grouped by configuration."""
    result: dict[grids.Configuration, list[str]] = {}
    for point in self.points:
      key = grids.configuration(point.flags)
      result.setdefault(key, []).append(point.name)
    return list(result.values())

  @functools.cached_property
  def _groups(self) -> dict[str, int]:
    """The number of the group of runs that share a traced round, by run."""
    found: dict[grids.Configuration, int] = {}
    return {
      point.name: found.setdefault(grids.words_of(point.flags), len(found))
      for point in self.points
    }

  @property
  def most_runs(self) -> int:
    """The largest number of runs, if none is pruned or skipped."""
    sizes = sorted(map(len, self._configurations), reverse=True)
    if self.sampler != 'grid':
      sizes = sizes[: self.trials]
    if not self.tuned:
      return sum(sizes)
    # One configuration of each method is repeated.
    best = min(len(set(self._methods.values())), len(sizes))
    return len(sizes) + best * (sizes[0] - 1)

  @property
  def learns(self) -> bool:
    """Whether results of runs change which runs come next."""
    every = self.sampler == 'grid' and self.halving_factor is None
    return self.tuned or not every

  def next(self, trials: _Trials) -> list[str]:
    """Returns the runs that may be started now, the best choice first.

    Args:
      trials: The current trial of every run.
    """
    held, fresh = self._open(trials)
    if held or not fresh:
      return held
    if self.sampler == 'grid' and self.halving_factor is None:
      return fresh
    if self.sampler in ('grid', 'random'):
      # In grid order each rate may be better than the ones before it, so that
      # none would be pruned.
      shuffled = _shuffled(fresh, self.seed)
      if self.sampler == 'random':
        return shuffled
      return sorted(shuffled, key=self._groups.__getitem__)
    count = len(self._configurations) - len(fresh)
    space = encode([p.flags for p in self.points])
    seed = random.Random(f'{self.seed} {count}').getrandbits(31)
    proposed = self._propose(space, trials, seed)
    places = {p.name: place(space, p.flags) for p in self.points}
    return sorted(fresh, key=lambda n: _distance(space, places[n], proposed))

  def _open(self, trials: _Trials) -> tuple[list[str], list[str]]:
    """Returns the waiting runs that go first, and those to choose from."""
    waiting = [
      p.name
      for p in self.points
      if outcomes.status_of(trials[p.name]) == outcomes.WAITING
    ]
    if not self.learns:
      return waiting, []
    firsts = [first for first, *_ in self._configurations]
    fresh = [n for n in firsts if not outcomes.was_begun(trials[n])]
    begun = [n for n in firsts if n not in set(fresh)]
    if self.sampler != 'grid' and len(begun) >= self.trials:
      fresh = []
    repeated = self._repeated(trials, begun, bool(fresh))
    held = []
    for first, *repeats in self._configurations:
      held += [first] if first in begun else []
      held += repeats if first in repeated else []
    # Runs that have been started go first.
    held = [name for name in held if name in waiting]
    return held, [] if held else fresh

  def _repeated(
    self, trials: _Trials, begun: Sequence[str], more: bool
  ) -> set[str]:
    """Returns the first runs of configurations to repeat on other seeds.

    Args:
      trials: The current trial of every run.
      begun: First runs that have been started.
      more: Whether further first runs will be started.
    """
    status = {name: outcomes.status_of(trials[name]) for name in begun}
    finished = {n for n, s in status.items() if s == outcomes.FINISHED}
    if not self.tuned:
      return finished
    if more or any(s not in outcomes.OVER for s in status.values()):
      return set()
    by_method: dict[tuple, dict[str, list[float]]] = {}
    for name in begun:
      outcome = outcomes.outcome_of(trials[name])
      score = scores.score(
        self.rule, outcome.measures, outcome.metric, finished=name in finished
      )
      by_method.setdefault(self._methods[name], {})[name] = [score]
    best = (scores.best(scored) for scored in by_method.values())
    return {name for name in best if name is not None}

  @functools.cached_property
  def _methods(self) -> dict[str, tuple]:
    """The experiment and method of each run, by name."""
    return {
      point.name: (
        sections.experiment(point.identity),
        runs.method_of(point.identity),
      )
      for point in self.points
    }

  def untried(self, trials: _Trials) -> dict[str, str]:
    """Returns the waiting runs that will not be run, with the reasons.

    Empty until it is certain.

    Args:
      trials: The current trial of every run.
    """
    if any(self._open(trials)) or any(
      map(outcomes.is_running, trials.values())
    ):
      return {}
    reasons = {}
    for first, *repeats in self._configurations:
      status = outcomes.status_of(trials[first])
      if status == outcomes.WAITING:
        reasons[first] = f'not among the {self.trials} configurations tried'
      why = f'{first} is {status}'
      if status == outcomes.FINISHED:
        why = f"{first} is not its method's best"
      for name in repeats:
        if outcomes.status_of(trials[name]) == outcomes.WAITING:
          reasons[name] = reasons.get(first, why)
    return reasons

  def pruner(self) -> optuna.pruners.BasePruner:
    """Builds Optuna's pruner."""
    if self.halving_factor is None:
      return optuna.pruners.NopPruner()
    return _Halving(
      min_resource=self._first_rung, reduction_factor=self.halving_factor
    )

  def rungs(self, name: str) -> list[int]:
    """Returns the rounds after which a run is compared with the others."""
    factor = self.halving_factor
    if factor is None or name not in {
      first for first, *_ in self._configurations
    }:
      return []
    rungs = [self._first_rung]
    while rungs[-1] * factor < self.points[0].total_rounds:
      rungs.append(rungs[-1] * factor)
    return [r for r in rungs if r < self.points[0].total_rounds]

  @property
  def _first_rung(self) -> int:
    """The first rung, such that one configuration is left after the last."""
    assert self.halving_factor is not None
    total = self.points[0].total_rounds
    most = min(len(self._configurations), total)
    rungs = int(math.log(most, self.halving_factor) + 1e-9)
    return math.ceil(total / self.halving_factor**rungs)

  def _propose(
    self, space: _Space, trials: _Trials, seed: int
  ) -> Mapping[str, Any]:
    """Asks Optuna's sampler for a point, given all results so far."""
    with warnings.catch_warnings():
      # Optuna warns about experimental features and non-finite scores.
      warnings.simplefilter('ignore')
      if self.sampler == 'gp':
        sampler: optuna.samplers.BaseSampler = optuna.samplers.GPSampler(
          seed=seed, n_startup_trials=_FIRST_TRIALS
        )
      else:
        sampler = optuna.samplers.TPESampler(
          seed=seed,
          n_startup_trials=_FIRST_TRIALS,
          multivariate=True,
          constant_liar=True,
        )
      known = optuna.create_study(sampler=sampler)
      for point in self.points:
        trial = trials[point.name]
        status = outcomes.status_of(trial)
        outcome = outcomes.outcome_of(trial)
        over = status in outcomes.OVER
        if over or status == outcomes.RUNNING:
          states = optuna.trial.TrialState
          known.add_trial(
            optuna.create_trial(
              state=states.COMPLETE if over else states.RUNNING,
              value=outcomes.score_of(self.rule, outcome) if over else None,
              params=place(space, point.flags),
              distributions=space,
            )
          )
      return known.ask(space).params


def scheduler_of(sweep: flags.Sweep) -> TrialScheduler:
  """Builds the scheduler for a sweep's flags."""
  options = sweep.options
  return TrialScheduler(
    points=sweep.points,
    sampler=sweep.sampler,
    rule=scores.RULES[sweep.select],
    trials=options['trials'] or _TRIALS,
    seed=sweep.points[0].identity['seed'],
    halving_factor=(options['halving_factor'] or _HALVING_FACTOR)
    if sweep.pruner == 'halving'
    else None,
    tuned=sweep.tuned_on is not None,
  )


def open_study(
  sweep: flags.Sweep, scheduler: TrialScheduler
) -> study_lib.Study:
  """Opens a sweep's study, creating it if it does not exist."""
  return study_lib.Study(
    sweep.folder,
    rule=scheduler.rule,
    storage=sweep.options['storage'],
    pruner=scheduler.pruner(),
  )


class _Halving(optuna.pruners.SuccessiveHalvingPruner):
  """Successive halving that counts a requeued run once."""

  def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
    newest: Any = _NewestTrials(study)
    return super().prune(newest, trial)


class _NewestTrials:
  """A study restricted to the current trials of its runs."""

  def __init__(self, study: optuna.Study):
    self._study = study

  def __getattr__(self, name: str) -> Any:
    return getattr(self._study, name)

  def get_trials(self, **arguments: Any) -> list[outcomes.Trial]:
    return list(outcomes.newest(self._study.get_trials(**arguments)).values())


def _shuffled(names: Sequence[str], seed: int) -> list[str]:
  """Shuffles names such that removing some keeps the order of the others."""
  return sorted(
    names, key=lambda name: random.Random(f'{seed} {name}').random()
  )


def encode(points: Sequence[Mapping[str, str]]) -> _Space:
  """Builds the search space of points, one dimension for each varying flag.

  Positive numbers that span at least a decade are on a logarithmic scale; words
  are categorical.

  Args:
    points: The flags of all points, as text.
  """
  space: _Space = {}
  flags = (flag for point in points for flag, _ in grids.configuration(point))
  for flag in dict.fromkeys(flags):
    texts = list(dict.fromkeys(point.get(flag) for point in points))
    if len(texts) < 2:
      continue
    numbers = [grids.number(text) for text in texts if text is not None]
    values = [value for value in numbers if value is not None]
    if len(values) == len(numbers) and len(set(values)) > 1:
      low, high = min(values), max(values)
      space[flag] = optuna.distributions.FloatDistribution(
        low, high, log=0 < 10 * low <= high
      )
    else:
      space[flag] = optuna.distributions.CategoricalDistribution(texts)
  return space


def place(space: _Space, flags: Mapping[str, str]) -> dict[str, Any]:
  """Places a point in the space; a missing number is put in the middle."""
  result: dict[str, Any] = {}
  for flag, dimension in space.items():
    text = flags.get(flag)
    if not isinstance(dimension, optuna.distributions.FloatDistribution):
      result[flag] = text
    elif text is not None:
      result[flag] = float(text)
    elif dimension.log:
      result[flag] = math.sqrt(dimension.low * dimension.high)
    else:
      result[flag] = (dimension.low + dimension.high) / 2
  return result


def _distance(
  space: _Space, one: Mapping[str, Any], other: Mapping[str, Any]
) -> float:
  """Computes the squared distance of two points in the unit cube."""
  total = 0.0
  for flag, dimension in space.items():
    a, b = one[flag], other[flag]
    if not isinstance(dimension, optuna.distributions.FloatDistribution):
      total += a != b
    elif dimension.log:
      total += (math.log(a / b) / math.log(dimension.high / dimension.low)) ** 2
    else:
      total += ((a - b) / (dimension.high - dimension.low)) ** 2
  return total
