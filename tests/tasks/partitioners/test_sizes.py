"""Numbers of examples of clients."""

import numpy as np
import pytest

from tasks import partition
from tasks.formats import data_files


def _flwr(units, total):
  """`IdToSizeFncPartitioner` of flwr-datasets."""
  found = [int(unit / sum(units) * total) for unit in units]
  found[-1] += total - sum(found)
  return found


@pytest.mark.parametrize(
  'rule, units',
  [
    ('linear', [1, 2, 3, 4, 5, 6]),
    ('square', [1, 4, 9, 16, 25, 36]),
    ('exponential', np.exp(range(1, 7)).tolist()),
  ],
)
def test_sizes_grow_as_in_flwr_datasets(rule, units):
  found = partition.draw_sizes(rule, 1003, 6)
  assert found.tolist() == _flwr(units, 1003)


def test_dirichlet_sizes_are_those_of_niid_bench():
  """Drawn again until the smallest client has enough."""
  found = [
    partition.draw_sizes('dirichlet', 5000, 10, least=m, seed=1)
    for m in (1, 60)
  ]
  assert [f.sum() for f in found] == [5000, 5000]
  assert found[0].min() < 60 <= found[1].min()
  flat = partition.draw_sizes('dirichlet', 5000, 10, skew=1000.0)
  assert np.ptp(flat) < 200 < np.ptp(found[0])
  with pytest.raises(data_files.PartitionError, match='1000 draws'):
    partition.draw_sizes('dirichlet', 5000, 10, skew=0.01, least=400)


def test_lognormal_sizes_have_few_large_clients():
  deviations = []
  for skew in (0.5, 2.0):
    found = partition.draw_sizes('lognormal', 10**6, 300, skew=skew, seed=2)
    assert found.sum() == 10**6
    deviations.append(np.log(found[:-1]).std())
  np.testing.assert_allclose(deviations, [0.5, 2.0], rtol=0.15)


@pytest.mark.parametrize('rule', ['exponential', 'lognormal', 'linear'])
def test_the_largest_give_the_smallest_what_they_lack(rule):
  found = partition.draw_sizes(rule, 2000, 40, least=7)
  assert found.sum() == 2000 and found.min() == 7
  # e to the 1000 is infinite; nobody is left without an example.
  assert partition.draw_sizes(rule, 2000, 1000).min() == 1
  with pytest.raises(data_files.PartitionError, match='need 2040'):
    partition.draw_sizes(rule, 2000, 40, least=51)


def test_only_what_is_too_large_is_lowered():
  raised = partition.at_least(np.array([0, 1, 9, 20, 30]), 5)
  assert raised.tolist() == [5, 5, 9, 20, 21]
  assert partition.at_least(np.array([0, 10, 10, 10]), 7).tolist() == [
    7,
    7,
    8,
    8,
  ]
