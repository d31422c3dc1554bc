"""Distances between distributions of labels."""

import numpy as np
import pytest

from tasks import figures
from tasks import partition


def test_distances_by_their_definitions():
  p, q = np.array([0.5, 0.5, 0.0]), np.array([0.1, 0.3, 0.6])
  mean = (p + q) / 2

  def entropy(x):
    return -sum(v * np.log2(v) for v in x if v)

  divergence = entropy(mean) - (entropy(p) + entropy(q)) / 2
  assert figures.jensen_shannon(p, q) == pytest.approx(divergence**0.5)
  affinity = sum(np.sqrt(p * q))
  assert figures.hellinger(p, q) == pytest.approx((1 - affinity) ** 0.5)
  for measure in (figures.jensen_shannon, figures.hellinger):
    assert measure(p, p) == pytest.approx(0, abs=1e-7)
    ends = np.eye(2)
    assert measure(ends[0], ends[1]) == pytest.approx(1)


def test_clients_are_compared_with_the_pool_and_with_each_other():
  labels = np.array([0] * 10 + [1] * 10)
  split = partition.Partition(
    ('a', 'b', 'c'), (np.arange(10), np.arange(10, 15), np.arange(15, 20))
  )
  told = figures.describe(split, labels)
  assert told['clients'] == 3
  assert told['examples'] == {'smallest': 5, 'mean': 6.67, 'largest': 10}
  half = (1 - 0.5**0.5) ** 0.5
  found = told['label_distances']['hellinger']
  # Of three pairs two are of clients without a common label.
  assert found == {
    'to_pool': pytest.approx(half, abs=1e-6),
    'between_clients': pytest.approx(2 / 3, abs=1e-6),
  }
  one = partition.Partition(('a',), (np.arange(20),))
  shift = figures.describe(one, labels)['label_distances']['jensen_shannon']
  assert shift == {'to_pool': 0.0, 'between_clients': 0.0}


def test_numbers_are_compared_by_tenths():
  numbers = np.arange(1000) / 7 - 20
  halves = partition.Partition(
    ('a', 'b'), (np.arange(500), np.arange(500, 1000))
  )
  told = figures.describe(halves, numbers[:, np.newaxis])
  assert told['label_distances']['hellinger']['between_clients'] == 1.0
  labels, words = figures.as_labels(numbers)
  assert np.bincount(labels).tolist() == [100] * 10 and len(words) == 10
  assert figures.as_labels(np.array([3.0, 0.0]))[0].tolist() == [3, 0]
  # Of many clients pairs are a sample.
  many = partition.iid(5000, sizes=[5] * 1000)
  assert figures.describe(many, np.arange(5000) % 10)['clients'] == 1000
