"""CIFAR-10 over clients."""

import numpy as np
import pytest

import tasks
from tests.tasks import helpers
from tests.tasks import test_cifar


def _labels(task):
  data = task.datasets.train_data
  return data.partition.label_counts(data.arrays['label'], 10)


@pytest.fixture(name='real_task', scope='module')
def _real_task(real_data):
  return tasks.create('cifar10_image', cache_dir=str(real_data))


@pytest.mark.exhaustive
def test_the_papers_clients_on_real_images(real_task):
  counts = _labels(real_task)
  assert counts.shape == (500, 10)
  assert (counts.sum(axis=1) == 100).all()
  assert (counts.sum(axis=0) == 5000).all()
  assert (counts[:250] > 0).sum(axis=1).mean() < 5  # alpha = 0.1
  assert helpers.weights(real_task) == 11_181_642


@pytest.mark.exhaustive
def test_real_images(real_task):
  batches = helpers.client_batches(real_task)
  assert [len(b[1]) for b in batches] == [20] * 5
  assert batches[0][0].shape == (20, 24, 24, 3)
  labels = real_task.datasets.test_data.map(lambda e: e['label']).batch(10_000)
  labels = next(labels.as_numpy_iterator())
  assert np.bincount(labels).tolist() == [1000] * 10
  # Files are sorted by class; the test split is not.
  assert len(np.unique(labels[:100])) == 10


def test_the_binary_version_is_read(tmp_path):
  folder = tmp_path / 'cifar-10-batches-bin'
  folder.mkdir()
  rng = np.random.default_rng(0)
  for name in [f'data_batch_{i}' for i in range(1, 6)] + ['test_batch']:
    images = rng.integers(0, 256, [20, 32, 32, 3], np.uint8)
    test_cifar.write_binary(
      folder / f'{name}.bin', images, np.arange(20, dtype=np.uint8) % 10
    )
  task = tasks.create('cifar10_image', cache_dir=str(tmp_path), num_clients=5)
  assert _labels(task).sum(axis=0).tolist() == [10] * 10
  (folder / 'data_batch_3.bin').unlink()
  with pytest.raises(tasks.DataError, match=r'data_batch_3.bin'):
    tasks.create('cifar10_image', cache_dir=str(tmp_path))


def test_crops_beyond_the_image_are_refused():
  with pytest.raises(ValueError, match='at most 32, got 40'):
    tasks.create('cifar10_image', data='synthetic', crop_size=40)
