"""Clients' batches: repeatable, read once, traced once."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive import errors
from tff_adaptive.lab.training.data import datasets as data


def batches(dataset):
  return [{k: v.numpy().tolist() for k, v in b.items()} for b in dataset]


def test_same_batches_whatever_came_before():
  datasets = helpers.task().datasets
  one = data.ClientDatasets(datasets, seed=5)
  two = data.ClientDatasets(datasets, seed=5)
  ids = one.client_ids
  forward = {c: batches(one.for_client(c, 2)) for c in ids}
  two.for_round(1, ids)
  tf.random.set_seed(99)
  backward = {c: batches(two.for_client(c, 2)) for c in reversed(ids)}
  assert forward == backward


def test_seed_round_and_client_change_the_batches():
  datasets = helpers.task().datasets
  clients = data.ClientDatasets(datasets, seed=5)
  other = data.ClientDatasets(datasets, seed=6)
  assert batches(clients.for_client('client_1', 1)) != batches(
    clients.for_client('client_1', 2)
  )
  assert batches(clients.for_client('client_1', 1)) != batches(
    other.for_client('client_1', 1)
  )


def test_batches_are_those_of_the_task():
  task = helpers.task(train_preprocess_fn=helpers.batch)
  clients = data.ClientDatasets(task.datasets, seed=0)
  expected = helpers.batch(
    task.datasets.train_data.create_tf_dataset_for_client('client_2')
  )
  assert batches(clients.for_client('client_2', 1)) == batches(expected)


def test_reading_is_traced_and_done_once():
  reads = []
  inner = helpers.task().datasets.train_data

  def create(client_id):
    reads.append(client_id)
    size = tf.strings.to_number(tf.strings.substr(client_id, 7, 1), tf.int64)
    dataset = tf.data.Dataset.range(size + 1)
    return dataset.map(
      lambda i: collections.OrderedDict(
        x=tf.fill([helpers.FEATURES], tf.cast(i, tf.float32)),
        y=tf.cast(size, tf.int32),
      )
    )

  clients_data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
    inner.client_ids, create
  )
  task = helpers.task(
    train_data=clients_data, train_preprocess_fn=helpers.batch
  )
  clients = data.ClientDatasets(task.datasets, seed=0)
  reads.clear()
  for r in range(3):
    for i, dataset in enumerate(
      clients.for_round(r, clients.client_ids).batches
    ):
      elements = [e['y'] for e in dataset.as_numpy_iterator()]
      assert np.concatenate(elements).tolist() == [i] * (i + 1)
  assert len(reads) == 1


def test_cache_keeps_to_its_budget():
  datasets = helpers.task(sizes=(10, 10, 10, 10)).datasets
  client_bytes = 10 * 4 * (helpers.FEATURES + 1)
  clients = data.ClientDatasets(
    datasets, seed=0, cache_bytes=2 * client_bytes + 1
  )
  free = data.ClientDatasets(datasets, seed=0)
  nothing = data.ClientDatasets(datasets, seed=0, cache_bytes=0)
  for c in [*clients.client_ids, *clients.client_ids]:
    expected = batches(free.for_client(c, 1))
    assert batches(clients.for_client(c, 1)) == expected
    assert batches(nothing.for_client(c, 1)) == expected
    assert clients.cache.currsize <= 2 * client_bytes
  assert clients.cache.currsize == 2 * client_bytes
  assert free.cache.currsize == 4 * client_bytes
  assert nothing.cache.currsize == 0


def test_preprocessing_that_knows_no_seed_is_repeatable_too():
  def foreign(dataset):
    return (
      dataset.shuffle(50)
      .map(
        lambda e: collections.OrderedDict(
          x=e['x'] + tf.random.normal([helpers.FEATURES]), y=e['y']
        )
      )
      .batch(4)
    )

  datasets = helpers.task(train_preprocess_fn=foreign).datasets
  one = data.ClientDatasets(datasets, seed=5)
  two = data.ClientDatasets(datasets, seed=5)
  two.for_round(1, ['client_3', 'client_0'])
  tf.random.normal([3])
  first = batches(one.for_client('client_1', 4))
  assert first == batches(two.for_client('client_1', 4))
  assert first != batches(two.for_client('client_1', 5))


def _strings_task(elements):
  """Clients with sentences; `elements` maps an id to its sentences."""
  ids = list(elements)

  def create(client_id):
    position = tf.argmax(tf.equal(client_id, ids))
    rows = tf.ragged.constant(list(elements.values()), dtype=tf.string)
    return tf.data.Dataset.from_tensor_slices(rows[position])

  return tff.simulation.datasets.ClientData.from_clients_and_tf_fn(ids, create)


def test_strings_and_a_client_without_examples():
  train = _strings_task({'a': ['to be', 'or not'], 'b': [], 'c': ['to']})

  def preprocess(dataset, seed=None):
    del seed
    return dataset.map(tf.strings.length).batch(2)

  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train, train, train_preprocess_fn=preprocess
  )
  clients = data.ClientDatasets(datasets, seed=0)
  lengths = [
    [b.tolist() for b in clients.for_client(c, 1).as_numpy_iterator()]
    for c in 'abc'
  ]
  assert lengths == [[[5, 6]], [], [[2]]]
  assert clients.cache.currsize == 13


def test_examples_of_varying_shape():
  def create(client_id):
    count = tf.strings.length(client_id)
    return tf.data.Dataset.range(1, tf.cast(count, tf.int64) + 1).map(
      lambda i: tf.range(i)
    )

  train = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
    ['a', 'bcd'], create
  )
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train, train, train_preprocess_fn=lambda d, seed=None: d.padded_batch(3)
  )
  clients = data.ClientDatasets(datasets, seed=0)
  (batch,) = clients.for_client('bcd', 1).as_numpy_iterator()
  assert batch.tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 2]]
  assert clients.cache.currsize == 0


def test_client_that_cannot_be_read():
  def create(client_id):
    return tf.data.Dataset.from_tensors(client_id).map(
      lambda c: tf.ensure_shape(tf.strings.to_number(c), [])
    )

  train = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
    ['1', 'bad'], create
  )
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train, train, train_preprocess_fn=lambda d, seed=None: d.batch(1)
  )
  clients = data.ClientDatasets(datasets, seed=0)
  clients.for_client('1', 1)
  with pytest.raises(errors.RunError, match="client 'bad' cannot be read"):
    clients.for_client('bad', 1)


def test_test_split_is_the_same_sample_every_time():
  train = helpers.client_data((6, 9))
  test = helpers.client_data((7, 7, 7))
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train, test, None, helpers.batch, helpers.batch
  )
  first = batches(data.test_split(datasets, num_examples=10))
  assert first == batches(data.test_split(datasets, num_examples=10))
  assert sum(len(b['y']) for b in first) == 10
  everything = batches(data.test_split(datasets))
  assert sum(len(b['y']) for b in everything) == 21
  assert everything[:2] == first[:2]
  # Batches that do not fit are read again each time, and are the same.
  streamed = data.test_split(datasets, num_examples=10, cache_bytes=100)
  assert isinstance(streamed, tf.data.Dataset)
  assert batches(streamed) == first == batches(streamed)


def test_test_split_without_examples():
  datasets = helpers.task().datasets
  empty = datasets.train_data.create_tf_dataset_for_client('client_0').take(0)
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    datasets.train_data, empty, None, helpers.batch, helpers.batch
  )
  with pytest.raises(errors.RunError, match='test split has no examples'):
    data.test_split(datasets)
