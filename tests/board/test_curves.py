"""Curves against the formulas of docs/time.md, written out."""

import math

import numpy as np

from tff_adaptive.lab.board import curves

_ROWS = [
  {'round': 0, 'validation/loss': 2.0},
  {
    'round': 1, 'bytes_down': 100, 'bytes_up': 50, 'clients/count': 4,
    'clients/steps': 12, 'virtual/seconds': 7.0, 'virtual/most_work': 5,
  },
  {
    'round': 2, 'bytes_down': 100, 'bytes_up': 20, 'clients/count': 3,
    'clients/steps': 9, 'virtual/seconds': 9.5, 'virtual/most_work': 4,
    'validation/loss': 1.5,
  },
  {
    'round': 3, 'bytes_down': 100, 'bytes_up': 50, 'clients/count': 4,
    'clients/steps': 10, 'virtual/seconds': 12.0, 'virtual/most_work': 3,
  },
]  # fmt: skip


def silos(down, up, steps, gradients):
  return (
    2 * 0.0295 + 8e-6 * (down / 1000 + up / 1000) + 0.0046 * gradients * steps
  )


def test_costs_are_those_of_the_formulas():
  record = curves.of_rows(_ROWS, 3, 'diverged')
  assert record.untrained == 2.0
  # The last row has no evaluation: the run ended between two.
  assert record.losses == [1.5, None]
  first = silos(100, 50, 5, 3) + silos(100, 20, 4, 3)
  np.testing.assert_allclose(
    record.costs['cross_silo'], [first, first + silos(100, 50, 3, 3)]
  )
  assert record.costs['cross_device'] == [9.5, 12.0]
  assert record.costs['rounds'] == [2, 3]
  assert record.costs['gradients'] == [3 * 21, 3 * 31]
  assert record.costs['bytes'] == [4 * 150 + 3 * 120, 4 * 150 * 2 + 3 * 120]


def test_diverged_runs_are_last():
  assert curves.of_rows(_ROWS, 1, 'diverged').final == math.inf
  assert curves.of_rows(_ROWS[:3], 1, 'finished').final == 1.5
  assert curves.of_rows(_ROWS[:3], 1, 'failed').final == math.inf
  worse = [*_ROWS[:2], {**_ROWS[2], 'validation/loss': math.nan}]
  assert curves.of_rows(worse, 1, 'finished').final == math.inf


def test_a_run_that_failed_before_its_first_round_hits_nothing():
  record = curves.of_rows([], 1, 'failed')
  curve = record.curve('rounds')
  assert record.final == math.inf
  assert [*curve.hits(np.array([math.inf]))] == [math.inf]
  assert list(curve.cost) == [0.0]


def test_equal_costs_are_written_once():
  one = curves.of_rows(_ROWS, 1, 'diverged')
  other = curves.of_rows(_ROWS, 1, 'finished')
  plain = curves.plain({'a': one, 'b': other})
  assert len(plain['costs']) == 1
  assert curves.read(plain) == {'a': one, 'b': other}
