"""Scores against the formulas, written out, and against published examples."""

import itertools
import math

import numpy as np
import pytest

from tff_adaptive.lab.board import scoring


def curve(cost, loss):
  return np.array(cost, float), np.array(loss, float)


def made_up(rng, quickness, *, evaluations=60, floor=0.2):
  """A noisy descent from 1; some never come near its floor."""
  cost = np.cumsum(rng.uniform(0.5, 1.5, evaluations))
  loss = floor + (1 - floor) * np.exp(-quickness * cost / 20)
  return curve(cost, loss + rng.normal(0, 0.02, evaluations))


def hit(cost, loss, target):
  for e in range(2, len(loss)):
    if (loss[e - 2] + loss[e - 1] + loss[e]) / 3 <= target:
      return cost[e]
  return None


def expected(curves, target):
  total, hits = 0.0, 0
  for cost, loss in curves:
    at = hit(cost, loss, target)
    total += cost[-1] if at is None else at
    hits += at is not None
  return total / hits if hits else math.inf


def single(t, t_ref):
  if t == math.inf:
    return 0.0
  s = (math.log(4) - math.log(t / t_ref)) / (2 * math.log(4))
  return min(max(s, 0.0), 1.0)


def test_targets():
  np.testing.assert_allclose(
    scoring.targets(2.0, 1.0), [1.5, 1.3, 1.15, 1.05, 1.0]
  )


def test_a_target_is_reached_by_the_mean_of_three():
  runs = scoring.joined(
    [
      # One value below is not enough: the means are 6, 4, 4, 2.
      curve([1, 2, 3, 4, 5, 6], [9, 0, 9, 3, 0, 3]),
      curve([1, 2], [0, 0]),
      curve([1, 2, 3, 4, 5], [1, np.nan, 1, 1, 1]),
      # Reached once is reached, whatever follows.
      curve([1, 2, 3, 4], [1, 1, 1, 9]),
      curve([], []),
    ]
  )
  spent, hit = scoring.hits(runs, np.array([4, 2, 1.9, 7]))
  assert hit.tolist() == [
    [True, True, False, True],
    [False] * 4,
    [True] * 4,
    [True] * 4,
    [False] * 4,
  ]
  assert spent.tolist() == [
    [4, 6, 6, 3], [2] * 4, [5] * 4, [3] * 4, [0] * 4,
  ]  # fmt: skip


def test_expected_running_time_as_coco_defines_it():
  """Two hits after 10 and 20, and a run of 100 without one: 130 / 2."""
  runs = [
    curve([8, 9, 10, 11], [0, 0, 0, 0]),
    curve([5, 15, 20, 30], [0, 0, 0, 0]),
    curve([50, 60, 70, 100], [5, 5, 5, 5]),
  ]
  target = np.array([1.0])
  every, none, two = map(scoring.joined, (runs, runs[2:], runs[:2]))
  assert scoring.reference_costs(target, {'a': every}) == [65]
  assert scoring.reference_costs(target, {'a': none}) == [math.inf]
  both = {'a': every, 'b': two}
  assert scoring.reference_costs(target, both) == [15]


@pytest.mark.parametrize('ratio', [0.1, 0.25, 0.6, 1, 2, 3.9, 4, 7, math.inf])
def test_a_score_is_the_integral_of_a_performance_profile(ratio):
  """AlgoPerf's profile of one workload, over ln tau from 1/4 to 4."""
  taus = np.exp(np.linspace(-math.log(4), math.log(4), 200_001))
  profile = np.mean(ratio <= taus)
  found = scoring.score(np.array([ratio * 3]), np.array([3.0]))
  assert abs(found[0] - profile) < 1e-4
  assert found[0] == pytest.approx(single(ratio * 3, 3.0))


def test_scores_against_the_formulas():
  rng = np.random.default_rng(0)
  names = ['convex', 'deep', 'noisy']
  losses = {n: scoring.targets(1.0, 0.25) for n in names}
  baselines = {
    n: {
      m: [made_up(rng, q) for _ in range(10)] for m, q in (('a', 1), ('b', 2))
    }
    for n in names
  }
  references = {
    n: scoring.Reference(
      losses[n],
      scoring.reference_costs(
        losses[n], {m: scoring.joined(c) for m, c in baselines[n].items()}
      ),
    )
    for n in names
  }
  settings = {
    n: [
      (0.75, [made_up(rng, 3) for _ in range(5)]),
      (0.25, [made_up(rng, 0.3, evaluations=50 + i) for i in range(5)]),
    ]
    for n in names
  }
  entry = {
    n: [scoring.Setting(share, scoring.joined(c)) for share, c in of]
    for n, of in settings.items()
  }
  found = scoring.scores_of(entry, references, draws=200)
  total = 0.0
  for n in names:
    t_ref = [
      min(expected(c, t) for c in baselines[n].values()) for t in losses[n]
    ]
    np.testing.assert_allclose(references[n].costs, t_ref)
    mean = 0.0
    for share, curves in settings[n]:
      s = [
        single(expected(curves, t), r)
        for t, r in zip(losses[n], t_ref, strict=True)
      ]
      mean += share * sum(s) / len(s)
    assert found.by_workload[n] == pytest.approx(mean)
    total += mean / len(names)
  assert found.value == pytest.approx(total)
  low, high = found.interval
  assert low < found.value < high and low >= 0 and high <= 1
  again = scoring.scores_of(entry, references, draws=200)
  np.testing.assert_array_equal(found.draws, again.draws)


def test_a_target_that_all_baselines_miss_has_no_cost():
  slow = scoring.joined([curve([1, 2, 3, 4], [1, 0.6, 0.6, 0.6])] * 3)
  costs = scoring.reference_costs(np.array([0.8, 0.1]), {'a': slow})
  np.testing.assert_array_equal(costs, [3.0, math.inf])


@pytest.mark.parametrize('budget', [1, 2, 3, 5])
@pytest.mark.parametrize(
  'losses',
  [[0.5, math.nan, 0.1, 0.3, 0.2], [0.2, 0.2, math.inf, 0.1, math.nan]],
)
def test_selection_is_the_best_of_trials_in_random_order(losses, budget):
  counted = np.zeros(5)
  ranked = [x if math.isfinite(x) else math.inf for x in losses]
  orders = list(itertools.permutations(range(5)))
  for order in orders:
    counted[min(order[:budget], key=ranked.__getitem__)] += 1
  found = scoring.selection(losses, budget)
  np.testing.assert_allclose(found, counted / len(orders), atol=1e-12)


def test_no_more_trials_are_looked_at_than_there_are():
  losses = [0.5, math.nan, 0.1, 0.3]
  with pytest.raises(ValueError, match='from 1 to 4'):
    scoring.selection(losses, 5)


def scores(total, spread, seed=0):
  draws = total + spread * np.random.default_rng(seed).normal(size=2000)
  return scoring.Estimate(value=total, draws=draws)


def test_differences_are_taken_on_the_same_draws():
  """Much of the spread of two scores may be common to both."""
  shared = np.random.default_rng(0).normal(0, 0.2, 10_000)
  own = np.random.default_rng(1).normal(0, 0.01, 10_000)
  one = scoring.Estimate(value=0.5, draws=0.5 + shared)
  other = scoring.Estimate(value=0.45, draws=0.45 + shared + own)
  found = scoring.difference(one, other)
  assert found.value == pytest.approx(0.05)
  np.testing.assert_allclose(
    found.interval, [0.05 - 0.0196, 0.05 + 0.0196], atol=1e-3
  )
  assert found.p < 1e-3
  back = scoring.difference(other, one)
  assert back.value == -found.value and back.p == found.p
  assert scoring.difference(one, one).p == 1.0


def test_who_is_ahead_of_whom():
  entries = {
    'last': scores(0.2, 0.01, 1),
    'first': scores(0.8, 0.02, 2),
    'near': scores(0.79, 0.02, 3),
    'middle': scores(0.5, 0.01, 4),
  }
  ahead = {
    n: [o for o, d in scoring.apart_from(n, entries).items() if d.value < 0]
    for n in entries
  }
  assert ahead == {
    'last': [],
    'first': ['last', 'middle'],
    'near': ['last', 'middle'],
    'middle': ['last'],
  }


def test_the_cost_that_a_score_stands_for():
  for ratio in (0.25, 0.6, 1.0, 3.9, 4.0):
    found = scoring.score(np.array([ratio]), np.array([1.0]))[0]
    assert scoring.cost_factor(found) == pytest.approx(ratio)
  # Of a mean score, the geometric mean of ratios.
  mean = np.mean(scoring.score(np.array([0.5, 2.0, 3.0]), np.ones(3)))
  assert scoring.cost_factor(mean) == pytest.approx(3 ** (1 / 3))


def test_holm_is_stricter_than_no_correction():
  """Of many comparisons one by chance is not taken for a difference."""
  p = {f'm{i}': 0.04 for i in range(10)}
  assert scoring._holm(p) == set()
  assert scoring._holm({'a': 0.001, 'b': 0.04}) == {'a', 'b'}
