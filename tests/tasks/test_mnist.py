"""The tasks on MNIST and Fashion-MNIST."""

import numpy as np
import pytest

import tasks
from tasks.images import mnist
from tests.tasks import helpers
from tests.tasks.formats import test_idx
from tff_adaptive import parameters


def _counts(task):
  data = task.datasets.train_data
  return data.partition.label_counts(data.arrays['label'], 10)


@pytest.mark.parametrize(
  'units, pooling', [('tanh', 'AveragePooling2D'), ('relu', 'MaxPooling2D')]
)
def test_units_of_lenet(units, pooling):
  assert tasks.parameters_of('mnist_lenet')['units'].default == 'tanh'
  layers = mnist.build_lenet(units).layers
  found = [layer.activation.__name__ for layer in layers if layer.weights]
  assert found == [units] * 4 + ['linear']
  names = [type(layer).__name__ for layer in layers]
  assert names.count(pooling) == 2
  task = tasks.create('mnist_lenet', data='synthetic', units=units)
  assert helpers.weights(task) == 61_706


@pytest.mark.parametrize(
  'name', ['mnist_logistic', 'mnist_character', 'fmnist']
)
def test_standardized_pixels(name):
  """As PyTorch programs have them; nothing else changes."""
  plain, scaled = (
    helpers.client_batches(tasks.create(name, data='synthetic', pixels=pixels))
    for pixels in ('unit', 'standardized')
  )
  for (x, y), (standard, labels) in zip(plain, scaled, strict=True):
    np.testing.assert_allclose(standard, (x - 0.1307) / 0.3081, atol=1e-5)
    np.testing.assert_array_equal(y, labels)


def test_the_papers_clients_on_real_digits(real_data):
  counts = _counts(tasks.create('mnist_character', cache_dir=str(real_data)))
  assert counts.shape == (100, 10) and (counts.sum(axis=1) == 500).all()
  assert 2 < (counts > 0).sum(axis=1).mean() < 6  # alpha = 0.1
  task = tasks.create(
    'mnist_character', cache_dir=str(real_data), smallest_client=100, alpha=0.01
  )
  sizes = task.datasets.train_data.partition.sizes
  assert 100 <= sizes.min() < 150 and 450 < sizes.max() <= 500


def test_real_writers(real_data):
  task = tasks.create(
    'mnist_character', cache_dir=str(real_data), partition='writers'
  )
  data = task.datasets.train_data
  sizes = data.partition.sizes
  assert len(sizes) == 539 and sizes.sum() == 60_000
  assert (sizes.min(), np.median(sizes), sizes.max()) == (19, 116, 131)
  assert data.client_ids[0] == 'writer_0'


def test_the_number_of_writers_is_not_asked_for():
  writers = mnist.MnistCharacter(partition='writers', data='synthetic')
  assert writers.check_data(()) is None
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    mnist.MnistCharacter(partition='writers', num_clients=539).check()


def test_writers_have_a_stand_in():
  task = tasks.create('mnist_character', data='synthetic', partition='writers')
  sizes = task.datasets.train_data.partition.sizes
  assert sizes.tolist() == [25] * 20


def test_real_test_digits(real_data):
  task = tasks.create('mnist_logistic', cache_dir=str(real_data))
  images, labels = (
    np.concatenate(parts)
    for parts in zip(*helpers.test_batches(task), strict=True)
  )
  assert images.shape == (10_000, 28, 28, 1) and images.dtype == np.float32
  assert np.bincount(labels).tolist() == [
    980,
    1135,
    1032,
    1010,
    982,
    892,
    958,
    1028,
    974,
    1009,
  ]
  assert images.min() == 0 and images.max() == 1
  assert images.mean() == pytest.approx(0.1325, abs=1e-3)
  # A decoded example: a one is a narrow stroke, a zero has a hole.
  one, zero = (images[labels == label].mean(axis=0) for label in (1, 0))
  assert one[14, 14, 0] > 0.7 and zero[14, 14, 0] < 0.1


def test_two_real_labels_a_client(real_data):
  counts = _counts(tasks.create('mnist_lenet', cache_dir=str(real_data)))
  assert counts.shape == (100, 10)
  assert ((counts > 0).sum(axis=1) == 2).all()
  sizes = counts.sum(axis=1)
  assert len(set(sizes)) == 1 and 540 <= sizes[0] <= 600


def test_fashion_files_are_read(tmp_path):
  folder = tmp_path / 'fashion_mnist'
  folder.mkdir()
  images, labels = test_idx.write_pair(folder, 'train', 400)
  test_idx.write_pair(folder, 't10k', 50, seed=1)
  task = tasks.create(
    'fmnist',
    cache_dir=str(tmp_path),
    num_clients=4,
    examples_per_client=100,
    partition='iid',
  )
  arrays = task.datasets.train_data.arrays
  np.testing.assert_array_equal(arrays['pixels'], images)
  np.testing.assert_array_equal(arrays['label'], labels)
  x, y = helpers.client_batches(task)[0]
  rows = task.datasets.train_data.partition.indices[0]
  known = {images[i].tobytes(): labels[i] for i in rows}
  for image, label in zip(x, y, strict=True):
    assert known[np.uint8(np.round(255 * image)).tobytes()] == label
  with pytest.raises(tasks.PartitionError, match='need 50000 examples'):
    tasks.create('fmnist', cache_dir=str(tmp_path))


@pytest.mark.parametrize(
  'text, message',
  [
    ('index,hsf_series,writer_id\n0,0,7\n1,0,\n', 'no whole list of writers'),
    ('index,hsf_series,writer_id\n1,0,7\n', 'images 0 to 2 in order'),
    ('a,b\n1,2\n', 'no whole list of writers.*writer_id'),
    ('index,hsf_series,writer_id\n0,0,7\n', 'in order, got 1 rows'),
    ('', 'no whole list of writers'),
  ],
)
def test_damaged_lists_of_writers_are_named(tmp_path, text, message):
  path = tmp_path / 'train-writers.csv'
  path.write_text(text)
  with pytest.raises(tasks.DataError, match=message):
    mnist.read_writers(path, 3)
  path.write_bytes(b'\xff\xfe')
  with pytest.raises(tasks.DataError, match='no whole list of writers'):
    mnist.read_writers(path, 3)
  path.unlink()
  with pytest.raises(tasks.DataError, match='no file'):
    mnist.read_writers(path, 3)
