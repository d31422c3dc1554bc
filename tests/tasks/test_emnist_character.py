"""Character recognition on EMNIST."""

import re

import numpy as np
import pytest

import tasks
from tests.tasks import helpers
from tff_adaptive import errors
from tff_adaptive.lab.training.data import datasets as data


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'only_digits, clients, train, test, classes',
  [(False, 160, 16_869, 2_982, 62), (True, 300, 29_500, 4_021, 10)],
)
def test_real_writers(real_data, only_digits, clients, train, test, classes):
  task = tasks.create(
    'emnist_character', cache_dir=str(real_data), only_digits=only_digits
  )
  data = task.datasets.train_data
  assert len(data.client_ids) == clients
  labels = np.concatenate([b[1] for b in helpers.test_batches(task)])
  assert len(labels) == test
  assert labels.min() == 0 and labels.max() == classes - 1
  assert len(np.unique(labels)) == classes
  total = data.create_tf_dataset_from_all_clients(seed=0).batch(1000)
  assert sum(len(b['label']) for b in total) == train


def test_a_real_example_is_ink_on_white(real_data):
  task = tasks.create('emnist_character', cache_dir=str(real_data))
  batches = helpers.client_batches(task)
  assert all(len(b[1]) == 20 for b in batches[:-1])
  images = np.concatenate([b[0] for b in batches])
  assert images.shape[1:] == (28, 28, 1) and images.dtype == np.float32
  assert images.min() == 0 and images.max() == 1
  assert (images[:, 0, 0] == 1).mean() > 0.99
  assert 0.7 < images.mean() < 0.95
  again = helpers.client_batches(task)
  for a, b in zip(batches, again, strict=True):
    np.testing.assert_array_equal(a[0], b[0])


@pytest.mark.parametrize(
  'wrong, message',
  [
    (
      dict(label=62),
      'client b of .*sqlite, example 1: a label from 0 to 61 was expected, got '
      '62',
    ),
    (dict(label=-1), 'example 1: a label from 0 to 61 was expected, got -1'),
    (dict(pixels=np.ones(9, np.float32)), 'Key: pixels'),
    (dict(label=b'3'), 'Key: label'),
  ],
)
def test_a_wrong_example_is_found_when_it_is_read(tmp_path, wrong, message):
  right = dict(pixels=np.ones([28, 28], np.float32), label=3)
  clients = dict(a=[right], b=[right, dict(right, **wrong)])
  helpers.write_sqlite(
    tmp_path / 'emnist_all.sqlite', dict(all_train=clients, all_test=clients)
  )
  task = tasks.create('emnist_character', cache_dir=str(tmp_path))
  clients = data.ClientDatasets(task.datasets, seed=0)
  assert len(list(clients.for_client('a', 1))) == 1
  place = re.escape(f"The data of client 'b' in {tmp_path}")
  with pytest.raises(errors.RunError, match=f'{place}.*{message}'):
    clients.for_client('b', 1)
  with pytest.raises(errors.RunError, match=f'The test split.*{message}'):
    data.test_split(task.datasets)
