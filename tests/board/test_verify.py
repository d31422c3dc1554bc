"""What verification takes for equal."""

import dataclasses

import pytest

from tests.board import made_up
from tff_adaptive.lab.board import verify


@pytest.fixture(name='record')
def record_fixture():
  return made_up.entry('fedprox', 1.0).repeats('hospitals', 1)[0]


def with_loss(record, place, factor):
  losses = list(record.losses)
  losses[place] *= factor
  return dataclasses.replace(record, losses=losses)


def test_equal_runs_agree(record):
  assert verify.difference(record, record, 0.0) is None


def test_a_digit_matters_on_the_same_kind_of_machine(record):
  other = with_loss(record, 7, 1 + 1e-9)
  assert 'losses' in verify.difference(record, other, 0.0)
  assert verify.difference(record, other, 1e-3) is None


def test_elsewhere_a_thousandth_is_allowed(record):
  assert verify.difference(record, with_loss(record, 7, 1.0005), 1e-3) is None
  found = verify.difference(record, with_loss(record, 7, 1.002), 1e-3)
  assert 'losses' in found and 'at 7' in found


def test_ends_costs_and_lengths_matter(record):
  ended = dataclasses.replace(record, status='diverged')
  assert 'status' in verify.difference(record, ended, 1e-3)
  shorter = dataclasses.replace(record, losses=record.losses[:-1])
  assert '49 values' in verify.difference(shorter, record, 1e-3)
  gone = dataclasses.replace(record, losses=[*record.losses[:-1], None])
  assert 'at 49' in verify.difference(record, gone, 1e-3)
  dearer = {**record.costs, 'bytes': [2 * c for c in record.costs['bytes']]}
  other = dataclasses.replace(record, costs=dearer)
  assert 'bytes' in verify.difference(record, other, 1e-3)
