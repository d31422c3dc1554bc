"""The embedded default task."""

import numpy as np
import pytest

import tasks
from tasks.images import digits as digits_task
from tests.tasks import helpers


def test_clients_and_examples():
  task = tasks.create('digits', num_clients=20, alpha=0.3)
  split = task.datasets.train_data.partition
  assert split.sizes.tolist() == [71] * 20
  assert helpers.weights(task) == 13706
  test = helpers.test_batches(task)
  images = np.concatenate([b[0] for b in test])
  labels = np.concatenate([b[1] for b in test])
  assert images.shape == (359, 8, 8, 1) and images.dtype == np.float32
  assert images.min() == 0 and images.max() == 1
  # Equal shares: each label has 174 to 183 of the 1,797 digits.
  counts = np.bincount(labels, minlength=10)
  assert counts.min() >= 34 and counts.max() <= 37


def test_training_and_test_images_are_different_ones():
  task = tasks.create('digits')
  train = {a.tobytes() for a in task.datasets.train_data.arrays['pixels']}
  test = {i.tobytes() for b in helpers.test_batches(task) for i in b[0]}
  assert len(train) == 1438 and len(test) == 359
  assert not train & test


def test_alpha_decides_the_skew():
  def classes(alpha):
    data = tasks.create('digits', alpha=alpha).datasets.train_data
    counts = data.partition.label_counts(data.arrays['label'])
    return (counts > 0).sum(axis=1).mean()

  assert classes(0.05) < 4 < 8 < classes(100.0)


def test_more_clients_than_examples_is_an_error():
  with pytest.raises(tasks.PartitionError, match=r'1438.*got 2000'):
    tasks.create('digits', num_clients=2000)


def test_images_and_labels_are_scikit_learns():
  from sklearn import datasets  # pylint: disable=g-import-not-at-top

  digits = datasets.load_digits()
  images, labels = digits_task.load()
  assert images.dtype == np.float32 and labels.dtype == np.int32
  np.testing.assert_array_equal(images[..., 0] * 16, digits.images)
  np.testing.assert_array_equal(labels, digits.target)
