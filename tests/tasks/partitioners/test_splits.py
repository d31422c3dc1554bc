"""Partitions by name."""

import numpy as np
import pytest

from tasks.formats import data_files
from tasks.partitioners import splits

_LABELS = np.repeat(np.arange(10), 100)


def _build(kind, **changes):
  options = dict(
    partition=kind,
    data='native',
    num_clients=10,
    examples_per_client=None,
    smallest_client=None,
    alpha=0.1,
    classes_per_client=2,
    seed=0,
  )
  return splits.build(_LABELS, dict(options, **changes))


def test_each_kind_is_what_it_says():
  def classes(kind):
    return (_build(kind).label_counts(_LABELS) > 0).sum(axis=1)

  assert (classes('classes') == 2).all()
  assert classes('iid').min() >= 9
  assert classes('lda').mean() < 7


def test_sizes():
  assert _build('iid').sizes.tolist() == [100] * 10
  assert _build('iid', examples_per_client=30).sizes.tolist() == [30] * 10
  sizes = _build('lda', examples_per_client=80, smallest_client=20).sizes
  assert 20 <= sizes.min() < sizes.max() <= 80


def test_sizes_that_cannot_be():
  with pytest.raises(data_files.PartitionError, match=r'at most 30.*got 40'):
    _build('iid', examples_per_client=30, smallest_client=40)
  with pytest.raises(data_files.PartitionError, match='need 2000 examples'):
    _build('iid', examples_per_client=200)


def test_a_stand_in_takes_numbers_as_bounds():
  split = _build(
    'lda',
    num_clients=500,
    examples_per_client=500,
    smallest_client=100,
    data='synthetic',
  )
  assert split.sizes.tolist() == [50] * 20
  split = _build('iid', num_clients=4, examples_per_client=10, data='synthetic')
  assert split.sizes.tolist() == [10] * 4
