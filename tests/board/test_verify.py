"""What verification takes for equal."""

import dataclasses

import numpy as np
import pytest

from tests.board import made_up
from tff_adaptive.lab.board import verify


@pytest.fixture(name='record')
def record_fixture():
  return made_up.entry('fedprox', 1.0).repeats('hospitals', 1)[0]


def changed(record, place, factor, of='losses'):
  array = getattr(record, of).copy()
  array[place] *= factor
  return dataclasses.replace(record, **{of: array})


def test_equal_runs_agree(record):
  assert verify.difference(record, record, 0.0) is None


def test_a_digit_matters_on_the_same_kind_of_machine(record):
  other = changed(record, 7, 1 + 1e-5)
  assert 'losses' in verify.difference(record, other, 0.0)
  assert verify.difference(record, other, 1e-3) is None


def test_elsewhere_a_thousandth_is_allowed(record):
  assert verify.difference(record, changed(record, 7, 1.0005), 1e-3) is None
  found = verify.difference(record, changed(record, 7, 1.002), 1e-3)
  assert 'losses' in found and 'at 7' in found


def test_ends_costs_and_lengths_matter(record):
  ended = dataclasses.replace(record, status='diverged')
  assert 'status' in verify.difference(record, ended, 1e-3)
  shorter = dataclasses.replace(record, losses=record.losses[:-1])
  assert '49 values' in verify.difference(shorter, record, 1e-3)
  gone = changed(record, 49, np.nan)
  assert 'at 49' in verify.difference(record, gone, 1e-3)
  dearer = changed(record, (9, 4), 2, of='costs')
  assert 'bytes: 50.0 at 9' in verify.difference(record, dearer, 1e-3)


def test_tuning_runs_are_compared_by_what_selects(record):
  tuned = record.of_tuning()
  assert verify.difference(tuned, record.of_tuning(), 0.0) is None
  other = changed(record, 48, 1.1).of_tuning()
  assert 'losses' in verify.difference(tuned, other, 1e-3)
