"""Invariants of every partitioner, and what each is known for."""

import numpy as np
import pytest

from tasks import partition
from tasks.formats import data_files
from tasks.partitioners import label_skew

_LABELS = np.repeat(np.arange(10), 200)
_COARSE, _FINE = np.repeat(np.arange(20), 250), np.repeat(np.arange(100), 50)

_BUILDERS = {
  'iid': lambda sizes, seed: partition.iid(2000, sizes=sizes, seed=seed),
  'lda': lambda sizes, seed: partition.lda(
    _LABELS, alpha=0.1, sizes=sizes, seed=seed
  ),
  'lda_tiny_alpha': lambda sizes, seed: partition.lda(
    _LABELS, alpha=0.001, sizes=sizes, seed=seed
  ),
  'pam': lambda sizes, seed: partition.pam(
    _COARSE[::2], _FINE[::2], sizes=sizes, seed=seed
  ),
  'k_classes': lambda sizes, seed: label_skew.k_classes(
    _LABELS, classes_per_client=2, sizes=sizes, seed=seed
  ),
}


@pytest.mark.parametrize('name', _BUILDERS)
@pytest.mark.parametrize('sizes', [[100] * 20, [7, 300, 45, 120, 2]])
def test_sizes_are_exact_and_no_example_is_used_twice(name, sizes):
  # 20 x 100 uses every example of iid and lda: labels run out on the way.
  split = _BUILDERS[name](sizes, 0)
  assert split.sizes.tolist() == sizes
  every = np.concatenate(split.indices)
  assert len(np.unique(every)) == sum(sizes)
  assert every.min() >= 0 and every.max() < 2500
  assert len(set(split.client_ids)) == len(sizes)


@pytest.mark.parametrize('name', _BUILDERS)
def test_the_seed_decides_everything(name):
  sizes = [40] * 12
  first, again, other = (_BUILDERS[name](sizes, s) for s in (3, 3, 4))
  for a, b in zip(first.indices, again.indices, strict=True):
    np.testing.assert_array_equal(a, b)
  assert any(
    (a != b).any() for a, b in zip(first.indices, other.indices, strict=True)
  )


@pytest.mark.parametrize('name', _BUILDERS)
def test_more_examples_than_there_are_is_an_error(name):
  with pytest.raises(data_files.PartitionError, match='need 10000 examples'):
    _BUILDERS[name]([1000] * 10, 0)


@pytest.mark.parametrize('sizes', [[], [5, 0], [-1], [1.5, 2.0], [[1, 2]]])
def test_sizes_must_be_counts(sizes):
  with pytest.raises(data_files.PartitionError, match='at least 1'):
    partition.iid(10, sizes=sizes)


def test_lda_is_skewed_more_for_smaller_alpha():
  def classes(alpha):
    split = partition.lda(_LABELS, alpha=alpha, sizes=[50] * 30, seed=1)
    return np.mean((split.label_counts(_LABELS) > 0).sum(axis=1))

  seen = [classes(alpha) for alpha in (0.001, 0.1, 1.0, 100.0)]
  assert seen == sorted(seen)
  assert seen[0] < 2.0 and seen[-1] > 9.0


def test_lda_follows_the_dirichlet_distribution():
  # E[sum of squared shares] = (alpha + 1) / (10 alpha + 1), to which drawing
  # n examples adds (1 - that) / n. Few clients of many examples: none runs out.
  labels = np.repeat(np.arange(10), 20_000)
  for alpha in (0.1, 1.0):
    split = partition.lda(labels, alpha=alpha, sizes=[50] * 1500, seed=2)
    shares = split.label_counts(labels) / 50
    exact = (alpha + 1) / (10 * alpha + 1)
    expected = exact + (1 - exact) / 50
    assert np.mean((shares**2).sum(axis=1)) == pytest.approx(expected, rel=0.03)


def test_pam_matches_the_papers_statistics():
  # AFO Appendix F: 500 clients x 100 examples, most with 20 to 30 fine labels,
  # some above 40. All examples are used, so labels do run out.
  coarse, fine = np.repeat(np.arange(20), 2500), np.repeat(np.arange(100), 500)
  split = partition.pam(coarse, fine, sizes=[100] * 500, seed=0)
  assert len(np.unique(np.concatenate(split.indices))) == 50_000
  seen = (split.label_counts(fine) > 0).sum(axis=1)
  assert 20 <= np.median(seen) <= 30
  # Labels of one coarse label come together; LDA over fine labels has no such
  # tie, and with beta = 10 a client sees nearly all five of its coarse labels.
  counts = split.label_counts(fine)[:100].reshape(100, 20, 5)
  main = counts[np.arange(100), counts.sum(axis=2).argmax(axis=1)]
  assert (main > 0).sum(axis=1).mean() > 4.7


def test_pam_wants_one_coarse_label_for_a_fine_one():
  with pytest.raises(
    data_files.PartitionError, match='Fine label 1 must have one'
  ):
    partition.pam(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), sizes=[2])


@pytest.mark.parametrize('k', [1, 2, 5, 10])
def test_k_classes_gives_every_client_k_equal_shares(k):
  split = label_skew.k_classes(
    _LABELS, classes_per_client=k, sizes=[100] * 20, seed=5
  )
  counts = split.label_counts(_LABELS)
  assert ((counts > 0).sum(axis=1) == k).all()
  assert (counts.max(axis=1) - counts[counts > 0].min() <= 1).all()


@pytest.mark.parametrize(
  'k, sizes, message',
  [
    (11, [20], '1 to 10 of the 10 labels, got 11'),
    (0, [20], 'got 0'),
    (3, [2, 9], 'at least 3 examples, got 2'),
    (1, [201], 'No assignment was found that gives 1 clients 1 labels'),
    (1, [150] * 11, 'No assignment was found'),
  ],
)
def test_k_classes_that_cannot_be_are_an_error(k, sizes, message):
  with pytest.raises(data_files.PartitionError, match=message):
    label_skew.k_classes(_LABELS, classes_per_client=k, sizes=sizes)


def test_largest_equal_size_is_feasible_and_largest():
  rng = np.random.default_rng(0)
  # As uneven as MNIST: with 600 examples each it could not be done.
  labels = np.repeat(np.arange(10), rng.integers(540, 680, 10))
  for k, clients in ((2, 100), (1, 10), (3, 40), (10, 7)):
    size = label_skew.largest_equal_size(
      labels, classes_per_client=k, num_clients=clients
    )
    split = label_skew.k_classes(
      labels, classes_per_client=k, sizes=[size] * clients, seed=1
    )
    counts = split.label_counts(labels)
    assert ((counts == size // k) | (counts == 0)).all()
    if size + k <= len(labels) // clients:
      with pytest.raises(data_files.PartitionError):
        label_skew.k_classes(
          labels, classes_per_client=k, sizes=[size + k] * clients
        )


def test_natural_partition_follows_the_groups():
  split = partition.by_group([7, 3, 7, 12, 3, 7], prefix='writer_')
  assert split.client_ids == ('writer_3', 'writer_7', 'writer_12')
  assert [i.tolist() for i in split.indices] == [[1, 4], [0, 2, 5], [3]]


def test_sizes_in_a_range():
  sizes = partition.sizes_in_range(2000, 100, 500, seed=1)
  assert sizes.min() == 100 and sizes.max() == 500
  assert sizes.mean() == pytest.approx(300, rel=0.03)
  np.testing.assert_array_equal(
    sizes, partition.sizes_in_range(2000, 100, 500, seed=1)
  )
  with pytest.raises(data_files.PartitionError, match='0 to 5'):
    partition.sizes_in_range(3, 0, 5)


def test_equal_sizes():
  assert partition.equal_sizes(1438, 20).tolist() == [71] * 20
  with pytest.raises(data_files.PartitionError, match='got 30'):
    partition.equal_sizes(20, 30)


@pytest.mark.parametrize('alpha', [0.0, -1.0, np.nan, np.inf])
def test_alpha_must_be_positive(alpha):
  with pytest.raises(
    data_files.PartitionError, match='`alpha` must be positive'
  ):
    partition.lda(_LABELS, alpha=alpha, sizes=[3])


def test_labels_must_be_whole_numbers():
  with pytest.raises(data_files.PartitionError, match='float64'):
    partition.lda(_LABELS * 1.0, alpha=1.0, sizes=[3])


def test_saved_partitions_come_back(tmp_path):
  split = partition.lda(_LABELS, alpha=0.5, sizes=[3, 50, 20], seed=9)
  path = tmp_path / 'partition.npz'
  split.save(path)
  back = partition.Partition.load(path)
  assert back.client_ids == split.client_ids
  for a, b in zip(back.indices, split.indices, strict=True):
    np.testing.assert_array_equal(a, b)
  assert [p.name for p in tmp_path.iterdir()] == ['partition.npz']


def test_files_that_hold_no_partition_are_refused(tmp_path):
  path = tmp_path / 'partition.npz'
  with pytest.raises(data_files.DataError, match=r'partition\.npz'):
    partition.Partition.load(path)
  partition.iid(50, sizes=[5, 5]).save(path)
  whole = path.read_bytes()
  for damaged in (b'', b'not a partition', whole[: len(whole) // 2]):
    path.write_bytes(damaged)
    with pytest.raises(data_files.DataError, match='is no partition saved by'):
      partition.Partition.load(path)
  for ids, sizes, indices, told in (
    (['a'], [3], [1, 2], 'sizes of 3 for 2 positions'),
    (['a', 'b'], [3, -1], [1, 2], 'nonnegative integers'),
    (['a', 'b'], [1, 1], [1.5, 2], 'nonnegative integers'),
    (['a', 'b'], 2, [1, 2], 'nonnegative integers'),
    (['a'], [1, 1], [1, 2], 'one client id per index array'),
    (['a', 'b'], [1, 1], [1, 1], 'must not share examples'),
  ):
    np.savez(path, client_ids=ids, sizes=sizes, indices=indices)
    with pytest.raises(data_files.DataError, match=told):
      partition.Partition.load(path)


def test_a_partition_checks_itself():
  with pytest.raises(ValueError, match='share examples'):
    partition.Partition(('a', 'b'), (np.array([1]), np.array([1])))
  with pytest.raises(ValueError, match='distinct'):
    partition.Partition(('a', 'a'), (np.array([1]), np.array([2])))


def test_largest_equal_size_that_cannot_be():
  with pytest.raises(data_files.PartitionError, match='at least 40 examples'):
    label_skew.largest_equal_size(
      np.arange(10), classes_per_client=4, num_clients=10
    )
