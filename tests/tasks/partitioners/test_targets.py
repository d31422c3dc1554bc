"""Partitions by a number, and of natural clients."""

import numpy as np
import pytest

from tasks import partition
from tasks.formats import data_files

_VALUES = np.random.default_rng(0).gamma(2.0, size=600)


def _flwr(values, strictness, noise):
  """`ContinuousPartitioner` of flwr-datasets."""
  z = (values - np.mean(values)) / np.std(values)
  return np.argsort(strictness * z + (1 - strictness) * noise)


@pytest.mark.parametrize('strictness', [0.0, 0.6, 1.0])
def test_values_are_sorted_and_blurred(strictness):
  split = partition.continuous(
    _VALUES, strictness=strictness, sizes=[100] * 6, seed=4
  )
  rng = np.random.default_rng(4)
  rng.permutation(600)
  order = _flwr(_VALUES, strictness, rng.standard_normal(600))
  for rows, paper in zip(split.indices, np.split(order, 6), strict=True):
    assert sorted(rows) == sorted(paper)
  means = [_VALUES[rows].mean() for rows in split.indices]
  spread = np.std(means) / _VALUES.std()
  low, high = {0.0: (0, 0.2), 0.6: (0.4, 0.9), 1.0: (0.9, 1.0)}[strictness]
  assert low <= spread <= high


def test_fewer_than_all_examples_are_drawn_from_all():
  split = partition.continuous(_VALUES, strictness=1.0, sizes=[20, 40])
  first, last = (_VALUES[rows] for rows in split.indices)
  assert len(first) == 20 and len(last) == 40 and first.max() <= last.min()
  assert last.max() > np.quantile(_VALUES, 0.9)
  for values in (np.ones(5), np.array([1.0, np.nan])):
    with pytest.raises(data_files.PartitionError, match='finite numbers'):
      partition.continuous(values, strictness=1.0, sizes=[1])


def test_natural_clients_are_grouped_in_order():
  natural = partition.by_group(list('cabbadec'))
  split = partition.grouped(natural, 2)
  assert split.client_ids == ('client_0', 'client_1', 'client_2')
  assert [sorted(rows) for rows in split.indices] == [
    [1, 2, 3, 4],
    [0, 5, 7],
    [6],
  ]
  assert partition.grouped(natural, 1) is natural
