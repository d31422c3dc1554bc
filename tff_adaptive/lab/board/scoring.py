"""Scores of methods on a board, from costs and losses alone.

A target loss is reached at the cost at which the mean of three successive
evaluations first lies at or below it. Over the seeds of a setting, with each
run counted up to its hit or its end,

  t = (total cost of all runs) / (number of hits),

the expected running time of COCO (Hansen et al., arXiv 1603.08785). Against the
frozen t_ref of tuned baselines a workload's target scores

  s = clip((ln 4 - ln(t / t_ref)) / (2 ln 4), 0, 1),

the integral of a performance profile over ln tau from 1/4 to 4 (Dahl et al.,
AlgoPerf, arXiv 2306.07179): 0.5 for the baselines' time, 1 for a quarter of it,
0 for four times as much or a miss. A method's score is the mean over workloads
of the mean over targets.

Everything here takes tables of numbers; nothing imports TensorFlow.
"""

import dataclasses
import functools
import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# Of the way from the untrained model's loss to the reference loss.
FRACTIONS = (0.5, 0.7, 0.85, 0.95, 1.0)
# Evaluations whose mean has to reach a target.
_WINDOW = 3
# The slowest and, inverted, the quickest ratio to the reference that counts.
_WIDEST = 4.0
_DRAWS = 10_000
_SEED = 20260
_SIGNIFICANT = 0.05


class Runs(NamedTuple):
  """The evaluations of runs, in an order of seeds that all methods have.

  Attributes:
    cost: What was spent until each, increasing; [runs, evaluations].
    loss: Validation loss at each, not finite where a run diverged; likewise.
  """

  cost: np.ndarray
  loss: np.ndarray


def joined(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Runs:
  """Joins the costs and losses of single runs, [evaluations].

  Those that ended early spend nothing more, and reach nothing.

  Raises:
    ValueError: If there are not as many costs as losses.
  """
  longest = max(_WINDOW, *(len(loss) for _, loss in runs))
  found = Runs(*np.full((2, len(runs), longest), np.nan))
  for i, (cost, loss) in enumerate(runs):
    found.cost[i, : len(loss)] = cost
    found.loss[i, : len(loss)] = loss
    found.cost[i, len(loss) :] = cost[-1] if len(loss) else 0.0
  return found


@dataclasses.dataclass(frozen=True)
class Reference:
  """What a workload is scored against, frozen with its version.

  Attributes:
    targets: Losses to reach, [targets]; those that no baseline reaches are
      left out.
    costs: The least expected cost of each among the tuned baselines, likewise.
  """

  targets: np.ndarray
  costs: np.ndarray


@dataclasses.dataclass(frozen=True)
class Setting:
  """The runs of one setting of a method on one workload.

  Attributes:
    share: How often tuning selects this setting; shares of a workload add up
      to 1.
    runs: A run a seed.
  """

  share: float
  runs: Runs


# A method's settings by workload.
Entry = Mapping[str, Sequence[Setting]]


def targets(untrained: float, reference: float) -> np.ndarray:
  """Returns the target losses of a workload, [5].

  Args:
    untrained: L0, the loss before training.
    reference: Q, the least of the baselines' median final losses.
  """
  return untrained - np.array(FRACTIONS) * (untrained - reference)


def reference_costs(
  targets: np.ndarray, baselines: Mapping[str, Runs]
) -> np.ndarray:
  """Returns the least expected cost of each target; infinite without a hit.

  Args:
    targets: Losses to reach, [targets].
    baselines: By baseline, the runs of its tuned setting.
  """
  each = [hits(runs, targets) for runs in baselines.values()]
  return np.min(
    [_expected(spent.sum(axis=0), hit.sum(axis=0)) for spent, hit in each],
    axis=0,
  )


def score(cost: np.ndarray, reference: np.ndarray) -> np.ndarray:
  """Scores expected costs against those of the reference, from 0 to 1."""
  widest = math.log(_WIDEST)
  with np.errstate(divide='ignore'):
    ratio = np.log(np.asarray(cost, float) / reference)
  return np.clip((widest - ratio) / (2 * widest), 0, 1)


def selection(losses: Sequence[float], budget: int) -> np.ndarray:
  """Returns how likely each trial is the best of `budget` in random order.

  Of n trials the r-th best is, with probability C(n - r, k - 1) / C(n, k), the
  best of k; trials with equal losses share theirs.

  Args:
    losses: Final validation loss of each trial; not finite if it diverged,
      which is the worst.
    budget: Trials that are looked at, k, at most as many as there are.

  Returns:
    Probabilities that add up to 1, [trials].
  """
  count = len(losses)
  if not 1 <= budget <= count:
    raise ValueError(
      f'`budget` must be from 1 to {count}, the number of trials, got {budget}.'
    )
  ranked = np.where(np.isfinite(losses), losses, np.inf)
  by_rank = np.array(
    [math.comb(count - r, budget - 1) for r in range(1, count + 1)]
  ) / math.comb(count, budget)
  chances = np.empty(count)
  chances[np.argsort(ranked, kind='stable')] = by_rank
  _, alike = np.unique(ranked, return_inverse=True)
  return (np.bincount(alike, chances) / np.bincount(alike))[alike]


def block_selection(losses: Sequence[float], budget: int) -> np.ndarray:
  """Returns how likely each trial is the best of a block of `budget` trials.

  Blocks are successive trials, which are as evenly spread as all of them; so
  few trials are ever selected, and repeated.

  Args:
    losses: As `selection` takes them.
    budget: Trials of a block, a divisor of the number of trials.

  Returns:
    Probabilities that add up to 1, [trials].
  """
  ranked = np.where(np.isfinite(losses), losses, np.inf).reshape(-1, budget)
  found = np.zeros(ranked.shape)
  found[np.arange(len(ranked)), ranked.argmin(axis=1)] = 1 / len(ranked)
  return found.ravel()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
  """A score, or a difference of two.

  Attributes:
    value: Its value.
    draws: Values of bootstrap draws, [draws]; the same draws for all methods.
  """

  value: float
  draws: np.ndarray

  @property
  def interval(self) -> tuple[float, float]:
    """A 95 % interval."""
    low, high = np.percentile(self.draws, [2.5, 97.5])
    return float(low), float(high)

  @property
  def p(self) -> float:
    """A two-sided p-value of 0."""
    sides = (np.sum(self.draws <= 0), np.sum(self.draws >= 0))
    return min(1.0, 2 * (min(sides) + 1) / (len(self.draws) + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores(Estimate):
  """The score of a method, the mean over workloads.

  Attributes:
    by_workload: The mean over targets of each.
  """

  by_workload: Mapping[str, float]


def scores_of(
  entry: Entry,
  references: Mapping[str, Reference],
  *,
  draws: int = _DRAWS,
  seed: int = _SEED,
) -> Scores:
  """Scores a method, with a hierarchical bootstrap over workloads and seeds.

  Args:
    entry: Its settings on every workload of `references`.
    references: By workload.
    draws: Of the bootstrap.
    seed: Of these; workloads and seeds drawn are the same for all methods.
  """
  names = sorted(references)
  by_workload, drawn = {}, []
  for name in names:
    reference = references[name]
    of_draws = np.zeros(draws)
    value = 0.0
    for setting in entry[name]:
      spent, hit = hits(setting.runs, reference.targets)
      costs = _expected(spent.sum(axis=0), hit.sum(axis=0))
      value += setting.share * float(score(costs, reference.costs).mean())
      times = _times(len(spent), draws, (seed, zlib.crc32(name.encode())))
      costs = _expected(times @ spent, times @ hit.astype(int))
      of_draws += setting.share * score(costs, reference.costs).mean(axis=-1)
    by_workload[name] = value
    drawn.append(of_draws)
  chosen = np.random.default_rng(seed).integers(
    len(names), size=(len(names), draws)
  )
  return Scores(
    value=float(np.mean([*by_workload.values()])),
    draws=np.stack(drawn)[chosen, np.arange(draws)].mean(axis=0),
    by_workload=by_workload,
  )


def hits(runs: Runs, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Finds out where runs reach targets.

  Args:
    runs: The runs.
    targets: Losses, [targets].

  Returns:
    Costs up to the hit or the end, and whether there was a hit; both [runs,
    targets].
  """
  windows = np.lib.stride_tricks.sliding_window_view(runs.loss, _WINDOW, axis=1)
  with np.errstate(invalid='ignore', over='ignore'):
    means = windows.mean(axis=-1)
  least = np.minimum.accumulate(
    np.where(np.isnan(means), np.inf, means), axis=1
  )
  first = np.sum(least[..., np.newaxis] > targets, axis=1)
  end = runs.cost.shape[1] - 1
  places = np.minimum(first + _WINDOW - 1, end)
  return np.take_along_axis(runs.cost, places, axis=1), first < least.shape[1]


def _expected(spent: np.ndarray, hits: np.ndarray) -> np.ndarray:
  """Returns expected costs, of sums over the seeds."""
  with np.errstate(divide='ignore', invalid='ignore'):
    return np.where(hits > 0, spent / hits, np.inf)


@functools.lru_cache
def _times(number: int, draws: int, seed: tuple[int, ...]) -> np.ndarray:
  """Returns how often each draw has each seed, [draws, seeds].

  With it sums over a draw are products.
  """
  chosen = np.random.default_rng(seed).integers(number, size=(number, draws))
  return np.stack([(chosen == i).sum(axis=0) for i in range(number)], axis=1)


def difference(one: Estimate, other: Estimate) -> Estimate:
  """Returns the one's score minus the other's, on the same bootstrap draws."""
  return Estimate(value=one.value - other.value, draws=one.draws - other.draws)


def apart_from(name: str, entries: Mapping[str, Scores]) -> dict[str, Estimate]:
  """Returns the differences of other methods from one that are significant, at
  5 % after Holm's correction for all of them."""
  found = {
    other: difference(scores, entries[name])
    for other, scores in entries.items()
    if other != name
  }
  significant = _holm({other: d.p for other, d in found.items()})
  return {o: d for o, d in found.items() if o in significant}


def _holm(p: Mapping[str, float]) -> set[str]:
  """Returns the names that are significant after Holm's correction."""
  ordered = sorted(p, key=lambda n: p[n])
  passed = itertools.takewhile(
    lambda i: p[ordered[i]] <= _SIGNIFICANT / (len(p) - i), range(len(p))
  )
  return {ordered[i] for i in passed}


def cost_factor(score: float) -> float:
  """Returns the cost over the reference's that a score stands for.

  Of mean scores it is the geometric mean of factors, each within 1/4 and 4.
  """
  return float(_WIDEST ** (1 - 2 * score))
