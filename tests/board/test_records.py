"""Records against the formulas of docs/time.md, written out."""

import math

import numpy as np

from tff_adaptive.lab.board import records
from tff_adaptive.lab.board import scoring

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
  record = records.of_rows(_ROWS, 3, 'diverged')
  assert record.untrained == 2.0
  # The last row has no evaluation: the run ended between two.
  np.testing.assert_array_equal(record.losses, [1.5, np.nan])
  first = silos(100, 50, 5, 3) + silos(100, 20, 4, 3)
  expected = {
    'cross_device': [9.5, 12.0],
    'cross_silo': [first, first + silos(100, 50, 3, 3)],
    'rounds': [2, 3],
    'gradients': [3 * 21, 3 * 31],
    'bytes': [4 * 150 + 3 * 120, 4 * 150 * 2 + 3 * 120],
  }
  assert tuple(expected) == records.MEASURES
  kept = records.rounded(np.transpose([*expected.values()]))
  np.testing.assert_array_equal(record.costs, kept)


def test_diverged_runs_are_last():
  for rows, status, final in (
    (_ROWS, 'diverged', math.inf),
    (_ROWS[:3], 'finished', 1.5),
    (_ROWS[:3], 'failed', math.inf),
    (
      [*_ROWS[:2], {**_ROWS[2], 'validation/loss': math.nan}],
      'finished',
      math.inf,
    ),
  ):
    record = records.of_rows(rows, 1, status)
    assert (record.final, record.criterion) == (final, final)


def test_settings_are_selected_by_the_last_tenth():
  """One lucky evaluation at the end selects nothing."""
  losses = np.r_[np.full(45, 9.0), 3.0, 2.0, 4.0, 5.0, 1.0]
  rows = [{'round': r, 'validation/loss': v} for r, v in enumerate(losses)]
  record = records.of_rows([{'round': 0}, *rows], 1, 'finished')
  assert (record.final, record.criterion) == (1.0, 3.0)
  assert record.of_tuning().criterion == 3.0


def test_a_run_that_failed_before_its_first_round_hits_nothing():
  record = records.of_rows([], 1, 'failed')
  assert record.criterion == math.inf and not record.began
  runs = records.joined([record, record], 'rounds')
  spent, hit = scoring.hits(runs, np.array([1e9]))
  assert not hit.any() and not spent.any()
  assert not record.of_tuning().began


def test_records_are_read_as_they_are_written(tmp_path):
  one = records.of_rows(_ROWS, 1, 'diverged')
  tuned = records.of_rows(_ROWS[:3], 1, 'finished').of_tuning()
  failed = records.of_rows([], 1, 'failed')
  made = {'a': one, 'b': one, 'c': tuned, 'd': failed}
  records.write(tmp_path / 'it.npz', {'a': [1]}, made)
  about, again = records.read(tmp_path / 'it.npz')
  assert about == {'a': [1]}
  assert list(again) == list(made)
  for name, record in made.items():
    assert again[name].status == record.status
    np.testing.assert_array_equal(again[name].untrained, record.untrained)
    np.testing.assert_array_equal(again[name].losses, record.losses)
    np.testing.assert_array_equal(again[name].costs, record.costs)


def test_numbers_keep_ten_bits():
  values = [1.0, math.pi, 1e-30, 1e30, -2.5, math.inf]
  found = records.rounded(values)
  # Half a unit in the last place, of a 1 and ten bits.
  np.testing.assert_allclose(found, values, rtol=2**-11)
  np.testing.assert_array_equal(records.rounded(found), found)
  assert not np.any(found[:5].view(np.uint32) & 0x1FFF)
