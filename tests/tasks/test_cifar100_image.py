"""CIFAR-100 over clients, on files generated in the formats it has."""

import numpy as np
import pytest

import tasks
from tests.tasks import helpers
from tests.tasks import test_cifar


def _arrays(count, seed):
  rng = np.random.default_rng(seed)
  fine = (np.arange(count) % 100).astype(np.int64)
  images = rng.integers(0, 256, [count, 32, 32, 3], np.uint8)
  return images, fine // 5, fine


@pytest.fixture(name='sqlite_dir', scope='module')
def _sqlite_dir(tmp_path_factory):
  """cifar100.sqlite with 4 training clients of 50, 2 test clients of 20."""
  folder = tmp_path_factory.mktemp('cifar100')
  splits = {}
  for split, clients, size in (('train', 4, 50), ('test', 2, 20)):
    images, coarse, fine = _arrays(clients * size, seed=clients)
    examples = [
      dict(image=i.astype(np.int64), coarse_label=c, label=f)
      for i, c, f in zip(images, coarse, fine, strict=True)
    ]
    splits[split] = {
      str(i): examples[i * size : (i + 1) * size] for i in range(clients)
    }
  helpers.write_sqlite(folder / 'cifar100.sqlite', splits)
  return folder


def test_a_client_is_read_whole(sqlite_dir):
  task = tasks.create('cifar100_image', cache_dir=str(sqlite_dir))
  data = task.datasets.train_data
  images, coarse, fine = _arrays(200, seed=4)
  stacked = data.stacked('1')
  assert {k: v.dtype for k, v in stacked.items()} == {
    k: spec.dtype for k, spec in data.element_type_structure.items()
  }
  np.testing.assert_array_equal(stacked['image'], images[50:100])
  np.testing.assert_array_equal(stacked['label'], fine[50:100])
  np.testing.assert_array_equal(stacked['coarse_label'], coarse[50:100])


@pytest.mark.parametrize('kind', ['pam', 'lda', 'iid', 'classes'])
def test_other_partitions_of_tffs_file(sqlite_dir, kind):
  task = tasks.create(
    'cifar100_image',
    cache_dir=str(sqlite_dir),
    partition=kind,
    num_clients=8,
    examples_per_client=20,
    **({'classes_per_client': 10} if kind == 'classes' else {}),
  )
  data = task.datasets.train_data
  assert data.partition.sizes.tolist() == [20] * 8
  counts = data.partition.label_counts(data.arrays['label'], 100)
  assert counts.sum(axis=0).max() <= 2  # As many as there are of a label.


def test_a_wrong_label_is_found_when_clients_are_made(tmp_path):
  images, coarse, fine = _arrays(2, 0)
  clients = {
    'a': [
      dict(image=i.astype(np.int64), coarse_label=c, label=y)
      for i, c, y in zip(images, coarse, [fine[0], 100], strict=True)
    ]
  }
  helpers.write_sqlite(
    tmp_path / 'cifar100.sqlite', dict(train=clients, test=clients)
  )
  with pytest.raises(
    tasks.DataError, match='example 1: a label from 0 to 99 was expected, got'
  ):
    tasks.create(
      'cifar100_image', cache_dir=str(tmp_path), partition='iid', num_clients=1
    )


def test_the_binary_version_is_read(tmp_path):
  folder = tmp_path / 'cifar-100-binary'
  folder.mkdir()
  for name, count in (('train', 200), ('test', 100)):
    images, coarse, fine = _arrays(count, seed=count)
    test_cifar.write_binary(
      folder / f'{name}.bin', images, np.uint8(coarse), np.uint8(fine)
    )
  task = tasks.create(
    'cifar100_image', cache_dir=str(tmp_path), partition='pam', num_clients=10
  )
  arrays = task.datasets.train_data.arrays
  np.testing.assert_array_equal(arrays['coarse_label'], arrays['label'] // 5)
  assert np.bincount(arrays['label']).tolist() == [2] * 100


@pytest.mark.exhaustive
def test_a_vision_transformer_can_be_trained():
  task = tasks.create(
    'cifar100_image', data='synthetic', model='vit_s', crop_size=32
  )
  block = 4 * (384 * 384 + 384) + 2 * 384 * 1536 + 1536 + 384 + 4 * 384
  ends = (48 + 1) * 384 + (1 + 65) * 384 + 2 * 384 + (384 + 1) * 100
  assert helpers.weights(task) == 12 * block + ends
  # As published transformers were trained, not standardised.
  images, _ = helpers.client_batches(task)[0]
  assert -1 <= images.min() < -0.5 and 0.5 < images.max() <= 1


def test_weights_are_for_the_transformer():
  with pytest.raises(ValueError, match="needs `model` to be 'vit_s'"):
    tasks.create('cifar100_image', data='synthetic', weights_dir='somewhere')


def test_the_transformer_takes_whole_patches():
  with pytest.raises(ValueError, match=r"multiple of 4 where.*'vit_s', got 30"):
    tasks.create(
      'cifar100_image', data='synthetic', model='vit_s', crop_size=30
    )
