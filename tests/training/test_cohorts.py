"""Cohorts equal to those of the reference implementation."""

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.training.participation import cohorts as sampling


def test_known_cohorts():
  # Computed from the reference's formula, apart from this code.
  ids = [str(i) for i in range(500)]
  cohort = sampling.build_cohort_fn(ids, clients_per_round=5, random_seed=1)
  assert cohort(0) == ['410', '254', '310', '381', '147']
  assert cohort(1) == ['461', '105', '438', '5', '437']
  assert cohort(2) == ['109', '87', '214', '232', '349']


def test_cohort_depends_on_seed_and_round_only():
  ids = [f'u{i}' for i in range(50)]
  one = sampling.build_cohort_fn(ids, clients_per_round=7, random_seed=3)
  two = sampling.build_cohort_fn(ids, clients_per_round=7, random_seed=3)
  backwards = [two(r) for r in reversed(range(1, 6))][::-1]
  assert [one(r) for r in range(1, 6)] == backwards
  other = sampling.build_cohort_fn(ids, clients_per_round=7, random_seed=4)
  assert other(1) != one(1)


def test_more_clients_than_there_are():
  with pytest.raises(errors.SettingsError, match=r'clients_per_round=4.* 3 '):
    sampling.build_cohort_fn(['a', 'b', 'c'], clients_per_round=4)
