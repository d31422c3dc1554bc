"""Partitions by name, and their sizes."""

import numpy as np
import pytest

from tasks import partition
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
    sizes='equal',
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


def test_dirichlet_sizes_are_those_of_niid_bench():
  """Drawn again until the smallest client has enough."""
  found = [
    partition.dirichlet_sizes(5000, 10, least=m, seed=1) for m in (1, 60)
  ]
  assert [f.sum() for f in found] == [5000, 5000]
  assert found[0].min() < 60 <= found[1].min()
  sizes = _build('iid', sizes='dirichlet').sizes
  assert sizes.sum() == 1000 and np.ptp(sizes) > 50
  with pytest.raises(data_files.PartitionError, match='1000 draws'):
    partition.dirichlet_sizes(5000, 10, least=499)


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
