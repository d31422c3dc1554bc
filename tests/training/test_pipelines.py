"""Pipelines of `tf.data` that are read as recipes on arrays."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.lab.training.data import batches
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.data import pipelines


def _double(example):
  value = tf.cast(example['x'], tf.float32)
  if value > 3.0:  # AutoGraph's.
    value += 0.5
  return 2.0 * value, example['y']


def _clients(preprocess_fn, sizes=(7, 0, 12)):
  train = tff.simulation.datasets.TestClientData(
    {
      f'c{n}': collections.OrderedDict(
        x=np.arange(n, dtype=np.int64), y=np.arange(n, dtype=np.int32) % 3
      )
      for n in sizes
      if n
    }
  )
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train, train, train_preprocess_fn=preprocess_fn
  )
  found = batches.training_clients(
    datasets, seed=4, cache_bytes=2**20, as_lists=True
  )
  return found, datasets


def _arrays(found):
  return [[np.asarray(x) for x in batch] for batch in found]


_ORDERED = {
  'mapped': lambda d: d.map(_double).batch(5),
  'several times': lambda d: d.repeat(3).map(_double).batch(4),
  'the first': lambda d: d.take(4).map(_double).repeat(2).batch(3),
  'no more than': lambda d: d.repeat().take(17).map(_double).batch(5),
  'as many as there are': lambda d: d.shuffle(1).take(-1).map(_double).batch(4),
  'all': lambda d: (
    d.map(_double, num_parallel_calls=2).batch(4).prefetch(tf.data.AUTOTUNE)
  ),
}


@pytest.mark.parametrize('name', _ORDERED)
def test_batches_are_those_of_the_pipeline(name):
  clients, datasets = _clients(_ORDERED[name])
  assert isinstance(clients, batches.ClientBatches)
  for client in clients.client_ids:
    raw = datasets.train_data.create_tf_dataset_for_client(client)
    expected = _arrays(_ORDERED[name](raw))
    found = _arrays(clients.for_client(client, 1))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
      for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_each_pass_of_each_round_has_an_order_of_its_own():
  clients, _ = _clients(
    lambda d: d.shuffle(20).repeat(2).map(_double).batch(12)
  )
  one, other = (_arrays(clients.for_client('c12', n)) for n in (1, 2))
  for passes in (one, other):
    assert len(passes) == 2
    for values, _ in passes:
      assert sorted(values) == sorted(one[0][0])
  orders = [values.tolist() for passes in (one, other) for values, _ in passes]
  assert len({tuple(order) for order in orders}) == 4
  again = _arrays(clients.for_client('c12', 1))
  assert [values.tolist() for values, _ in again] == orders[:2]


def test_a_small_buffer_shuffles_nearby_examples():
  recipe, _ = pipelines.read(
    lambda d: d.shuffle(3).batch(5), {'x': tf.TensorSpec([], tf.int64)}
  )
  orders = np.stack([recipe.order(10, [0, n]) for n in range(300)])
  assert all(sorted(order) == [*range(10)] for order in orders)
  # The first is one of the first three, the second one of the first four, ...
  for place in range(10):
    assert {*orders[:, place]} == {*range(min(10, place + 3))} - (
      {0} if place == 10 else set()
    )


def _noisy(example):
  return tf.cast(example['x'], tf.float32) + tf.random.uniform([]), example['y']


@pytest.mark.parametrize(
  'preprocess_fn, reason',
  [
    (lambda d: d.map(_noisy).batch(2), 'draws random numbers'),
    (lambda d: d.filter(lambda e: e['x'] > 1).batch(2), 'it uses `filter`'),
    (lambda d: d.batch(2).map(_double), 'map follows batch_size'),
    (lambda d: d.repeat(2).shuffle(9).batch(2), 'shuffle follows epochs'),
    (lambda d: d.batch(2, drop_remainder=True), 'drops the remainder'),
    (lambda d: d.repeat().batch(2), 'repeats without end'),
    (lambda d: d.map(_double), 'it has no batches'),
    (
      lambda d: d.shuffle(5, reshuffle_each_iteration=False).batch(2),
      'shuffle keeps its order',
    ),
    (lambda d: tf.data.Dataset.zip((d, d)).batch(2), ''),
  ],
)
def test_others_stay_pipelines_and_say_why(preprocess_fn, reason, caplog):
  clients, _ = _clients(preprocess_fn)
  assert type(clients) is data.ClientDatasets
  assert 'some 10 ms for each client and round' in caplog.text
  assert reason in caplog.text
