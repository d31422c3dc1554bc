"""The numbers that runs are judged by."""

import math

import numpy as np
import pytest

from tff_adaptive.lab.report import results
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections


def test_rules_on_numbers():
  rows = [{'round': 0, 'validation/acc': 0.9}]
  for number in range(1, 51):
    row = {'round': number, 'train/loss': 100.0 - number, 'train/acc': 0.01}
    if number % 5 == 0:
      row['validation/acc'] = number / 100
    rows.append(row)
  rows[46]['train/loss'] = 0.0
  measured = scores.measures(rows, 'acc', 3)
  # 50 rounds: the last 5, that is 46 to 50.
  assert scores.window(50) == 5
  assert measured['train/loss'] == pytest.approx((0 + 53 + 52 + 51 + 50) / 5)
  assert measured['last/loss'] == 50.0
  assert measured['validation/metric'] == 0.5
  # The untrained model's 0.9 does not count.
  assert measured['best/metric'] == 0.5
  assert measured['recent/metric'] == pytest.approx(0.275)
  assert scores.window(1500) == 100 and scores.window(1) == 1
  better = scores.RULES['validation_metric']
  assert scores.score(better, measured, 'acc') == -0.5
  assert scores.score(better, measured, 'mean_squared_error') == 0.5
  assert scores.score(better, measured, 'acc', finished=False) == float('inf')
  # One seed that failed spoils a configuration.
  assert scores.best({'a': [0.1, float('inf')], 'b': [3.0, 4.0]}) == 'b'
  assert scores.best({'a': [float('inf')], 'b': []}) is None


@pytest.mark.parametrize(
  'count, quantile',
  # Student's t with one degree of freedom less, 0.975, as tables have it.
  [(2, 12.706), (3, 4.303), (5, 2.776), (22, 2.080), (40, 2.023)],
)
def test_confidence_interval(count, quantile):
  values = [1.0, 3.0] * 20
  values = values[:count]
  assert scores.interval(values) == pytest.approx(
    quantile * np.std(values, ddof=1) / count**0.5, rel=1e-3
  )


def test_interval_of_one_value():
  assert scores.interval([1.0]) == 0.0


def test_the_best_evaluation_is_the_best_finite_one():
  """A metric may be 0 / 0 at first."""
  for values in ([math.nan, 0.9, 0.5], [0.5, 0.9, math.nan]):
    rows = [
      {'round': i, 'validation/accuracy': value}
      for i, value in enumerate([0.1, *values])
    ]
    measured = scores.measures(rows, 'accuracy', 10)
    assert measured['best/metric'] == 0.9


def test_rules_are_of_the_loss_without_a_metric():
  losses = [9.0, 0.01, *[1.0] * 18, 0.5]
  rows = [{'round': i, 'validation/loss': x} for i, x in enumerate(losses)]
  measured = scores.measures(rows, None)
  for rule, expected in (
    ('best_round', 0.01),
    ('last_evaluations', 0.95),
    ('validation_metric', 0.75),
  ):
    assert scores.score(scores.RULES[rule], measured, None) == expected
  criterion = sections.Criterion(scores.RULES['best_round'], None, False)
  assert criterion.compared == ('best/loss', 'best validation loss')
  criterion = sections.Criterion(scores.RULES['last_evaluations'], None, False)
  assert criterion.compared[0] == 'recent/loss'


def test_a_level_that_few_seeds_reach_is_not_reached_first():
  few = scores.mean_of([5.0], planned=3)
  every = scores.mean_of([8.0, 9.0, 9.0], planned=3)
  for of_cost, best in ((True, None), (False, 0)):
    column = results.Column('rounds', [few, every], less=True, of_cost=of_cost)
    assert column.best() == best
