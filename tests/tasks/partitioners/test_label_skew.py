"""Label skew, against transcriptions of the programs that have it."""

import numpy as np
import pytest

from tasks import partition
from tasks.formats import data_files
from tasks.partitioners import label_skew

_LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 120))
_BUILDERS = {
  'dirichlet': lambda seed: label_skew.dirichlet(
    _LABELS, alpha=0.3, num_clients=12, seed=seed
  ),
  'inner_dirichlet': lambda seed: label_skew.inner_dirichlet(
    _LABELS, alpha=0.3, sizes=[100] * 12, seed=seed
  ),
  'pathological': lambda seed: label_skew.pathological(
    _LABELS, classes_per_client=3, num_clients=12, seed=seed
  ),
  'shards': lambda seed: label_skew.shards(
    _LABELS, shards_per_client=2, num_clients=12, seed=seed
  ),
  'lognormal': lambda seed: label_skew.lognormal(
    _LABELS, classes_per_client=2, num_clients=20, seed=seed
  ),
}


@pytest.mark.parametrize('name', _BUILDERS)
def test_every_example_is_given_out_once_and_by_the_seed(name):
  split, again, other = (_BUILDERS[name](s) for s in (0, 0, 1))
  every = np.sort(np.concatenate(split.indices))
  assert every.tolist() == list(range(len(_LABELS)))
  assert all(map(np.array_equal, split.indices, again.indices))
  assert not all(map(np.array_equal, split.indices, other.indices))


def _niid_bench_label_dirichlet(labels, alpha, num_clients, least, seed):
  """`noniid-labeldir`: Li et al., arXiv 2102.02079, `partition_data`."""
  rng = np.random.default_rng(seed)
  classes = range(labels.max() + 1)
  by_class = [rng.permutation(np.flatnonzero(labels == k)) for k in classes]
  smallest = -1
  while smallest < least:
    clients = [[] for _ in range(num_clients)]
    for rows in by_class:
      log_p = partition.log_dirichlet(alpha, num_clients, rng)
      p = np.exp(log_p - log_p.max())
      p = np.array(
        [
          x * (len(c) < len(labels) / num_clients)
          for x, c in zip(p, clients, strict=True)
        ]
      )
      cuts = (np.cumsum(p / p.sum()) * len(rows)).astype(int)[:-1]
      clients = [
        c + part.tolist()
        for c, part in zip(clients, np.split(rows, cuts), strict=True)
      ]
    smallest = min(map(len, clients))
  return clients


@pytest.mark.parametrize('least', [1, 30])
def test_dirichlet_is_that_of_niid_bench(least):
  expected = _niid_bench_label_dirichlet(_LABELS, 0.3, 12, least, 7)
  split = label_skew.dirichlet(
    _LABELS, alpha=0.3, num_clients=12, least=least, seed=7
  )
  for rows, paper in zip(split.indices, expected, strict=True):
    assert sorted(rows) == sorted(paper)
  assert split.sizes.min() >= least


def test_dirichlet_over_clients_is_not_dirichlet_over_labels():
  """Sizes tell it from `lda`, and that no client is much above the mean."""
  split = _BUILDERS['dirichlet'](3)
  assert split.sizes.std() > 10
  # Who has as many as the mean takes nothing of another label.
  assert split.sizes.max() <= 100 + 120
  free = label_skew.dirichlet(
    _LABELS, alpha=0.3, num_clients=12, balanced=False, seed=3
  )
  assert free.sizes.std() > split.sizes.std()
  with pytest.raises(data_files.PartitionError, match='fewer than 99'):
    label_skew.dirichlet(_LABELS, alpha=0.01, num_clients=12, least=99)


def _acar(labels, alpha, sizes, seed):
  """The turns of Acar et al., arXiv 2111.04263, one draw at a time."""
  rng = np.random.default_rng(seed)
  classes = range(labels.max() + 1)
  left = [
    rng.permutation(np.flatnonzero(labels == k)).tolist() for k in classes
  ]
  log_p = np.stack(
    [partition.log_dirichlet(alpha, len(left), rng) for _ in sizes]
  )
  had = [dict.fromkeys(classes, 0) for _ in sizes]
  unfinished = list(range(len(sizes)))
  while unfinished:
    client = unfinished[int(rng.random() * len(unfinished))]
    prior = np.exp(log_p[client] - log_p[client][[bool(x) for x in left]].max())
    prior[[not x for x in left]] = 0
    sums = np.cumsum(prior / prior.sum())
    label = int(np.argmax(rng.random() < sums / sums[-1]))
    left[label].pop()
    had[client][label] += 1
    if sum(had[client].values()) == sizes[client]:
      unfinished.remove(client)
  return np.array([list(h.values()) for h in had])


def test_inner_dirichlet_takes_turns():
  sizes = [200, 50, 90, 160, 300, 400]
  split = label_skew.inner_dirichlet(_LABELS, alpha=0.2, sizes=sizes, seed=5)
  assert split.sizes.tolist() == sizes
  expected = _acar(_LABELS, 0.2, sizes, 5)
  np.testing.assert_array_equal(split.label_counts(_LABELS), expected)


def test_no_client_chooses_before_the_others():
  """Two clients that want the same label share it."""
  labels = np.repeat([0, 1], 60)

  def first_is_pure(draw):
    found = []
    for seed in range(20):
      split = draw(labels, alpha=0.01, sizes=[60, 60], seed=seed)
      found.append(bool((split.label_counts(labels)[0] > 50).any()))
    return sum(found)

  assert first_is_pure(partition.lda) == 20
  assert 4 < first_is_pure(label_skew.inner_dirichlet) < 16


def test_pathological_divides_each_label_among_its_clients():
  split = _BUILDERS['pathological'](0)
  counts = split.label_counts(_LABELS)
  has = counts > 0
  assert (has.sum(axis=1) == 3).all()
  # NIID-Bench: the first label is the client's place, so that none is left out.
  assert all(has[i, i % 10] for i in range(12))
  for label in range(10):
    parts = counts[has[:, label], label]
    assert parts.sum() == 120 and np.ptp(parts) <= 1
  # Not exact sizes, as `classes` has them.
  assert np.ptp(split.sizes) > 0
  equal = label_skew.k_classes(
    _LABELS, classes_per_client=3, sizes=[90] * 12, seed=0
  )
  assert np.ptp(equal.sizes) == 0
  for wrong in (0, 11):
    with pytest.raises(data_files.PartitionError, match='1 to 10'):
      label_skew.pathological(_LABELS, classes_per_client=wrong, num_clients=2)
  with pytest.raises(data_files.PartitionError, match='would share them'):
    label_skew.pathological(_LABELS[:40], classes_per_client=9, num_clients=40)


def test_shards_are_those_of_mcmahan():
  """100 clients of two shards, as he has of MNIST; scaled down by 10."""
  labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 600))
  split = label_skew.shards(labels, shards_per_client=2, num_clients=100)
  assert set(split.sizes) == {60}
  counts = split.label_counts(labels)
  # Every client has one or two labels, and of each a shard or two.
  assert set((counts > 0).sum(axis=1)) == {1, 2}
  assert set(counts.ravel()) == {0, 30, 60}
  uneven = label_skew.shards(
    np.arange(103) % 7, shards_per_client=3, num_clients=5
  )
  assert uneven.sizes.sum() == 103 and np.ptp(uneven.sizes) <= 3
  with pytest.raises(data_files.PartitionError, match='need 120 examples'):
    label_skew.shards(labels[:100], shards_per_client=2, num_clients=60)


def test_lognormal_is_that_of_flwr_datasets():
  split = label_skew.lognormal(
    _LABELS, classes_per_client=2, num_clients=20, least=5, seed=3
  )
  counts = split.label_counts(_LABELS)
  for client in range(20):
    labels = np.flatnonzero(counts[client])
    assert sorted(labels) == sorted([client % 10, (client + 1) % 10])
  assert counts[counts > 0].min() >= 5
  # Few clients have most: numbers are lognormal, not equal.
  large = np.sort(split.sizes)[::-1]
  assert large[:5].sum() > 2 * large[10:].sum()
  rng = np.random.default_rng(3)
  partition.build_pools(_LABELS, rng)
  weights = rng.lognormal(0, 2.0, 4)
  cuts = (np.cumsum(weights / weights.sum()) * 100).astype(int)
  expected = 5 + np.diff([0, *cuts[:-1], 100])
  assert counts[[0, 9, 10, 19], 0].tolist() == expected.tolist()
  with pytest.raises(data_files.PartitionError, match='at least 50'):
    label_skew.lognormal(
      _LABELS, classes_per_client=2, num_clients=20, least=50
    )
