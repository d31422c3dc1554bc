"""Client data in memory and by list, against TFF's contract."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import client_data
from tasks import partition


@pytest.fixture(name='data')
def _data():
  arrays = dict(
    label=np.arange(10, dtype=np.int32),
    pixels=np.arange(40, dtype=np.float32).reshape(10, 2, 2),
  )
  return client_data.ArrayClientData(
    arrays, partition.by_group([0, 1, 0, 1, 2, 0, 1, 1, 2, 0], prefix='c')
  )


def _labels(dataset):
  return [int(e['label']) for e in dataset.as_numpy_iterator()]


def test_a_client_gets_its_own_examples(data):
  assert data.client_ids == ['c0', 'c1', 'c2']
  assert _labels(data.create_tf_dataset_for_client('c1')) == [1, 3, 6, 7]
  example = next(iter(data.create_tf_dataset_for_client('c2')))
  np.testing.assert_array_equal(example['pixels'], [[16, 17], [18, 19]])


def test_the_structure_is_that_of_the_data_sets(data):
  dataset = data.create_tf_dataset_for_client('c0')
  assert dataset.element_spec == data.element_type_structure
  traced = data.serializable_dataset_fn(tf.constant('c0'))
  assert traced.element_spec == data.element_type_structure


def test_unknown_clients_are_named(data):
  with pytest.raises(ValueError, match=r"no client 'c9'; there are 3.*'c0'"):
    data.create_tf_dataset_for_client('c9')


def test_the_traceable_function_gives_the_same_data(data):
  @tf.function
  def total(client_id):
    result = tf.constant(0, tf.int32)
    for example in data.serializable_dataset_fn(client_id):
      result = 10 * result + example['label']
    return result

  assert int(total('c1')) == 1367
  assert int(total('c2')) == 48
  with pytest.raises(tf.errors.InvalidArgumentError, match='Unknown client'):
    total('c9')


def test_listed_client_data_is_the_same_data(data):
  listed = client_data.ListedClientData(data)
  assert listed.client_ids == data.client_ids
  assert listed.element_type_structure == data.element_type_structure
  assert _labels(listed.create_tf_dataset_for_client('c1')) == [1, 3, 6, 7]
  with pytest.raises(ValueError, match="no client 'c9'"):
    listed.create_tf_dataset_for_client('c9')


def test_listed_client_data_does_not_search_the_list():
  class Ids(list):
    def __contains__(self, item):
      raise AssertionError('searched the list of ids')

  class Many(tff.simulation.datasets.ClientData):
    client_ids = Ids(str(i) for i in range(100))
    element_type_structure = tf.TensorSpec([], tf.int64)

    @property
    def serializable_dataset_fn(self):
      return lambda i: tf.data.Dataset.range(3)

  listed = client_data.ListedClientData(Many())
  assert len(list(listed.create_tf_dataset_for_client('42'))) == 3


@pytest.mark.parametrize(
  'task, options',
  [
    ('emnist_character', {'only_digits': True}),
    ('shakespeare_character', {}),
    ('stackoverflow_tag', {'vocab_size': 1000, 'num_tags': 100}),
  ],
)
def test_whole_clients_are_those_of_tff(real_data, task, options):
  data = tasks.create(
    task, cache_dir=str(real_data), **options
  ).datasets.train_data
  for client_id in data.client_ids[:3]:
    one_by_one = list(
      data.create_tf_dataset_for_client(client_id).as_numpy_iterator()
    )
    stacked = data.stacked(client_id)
    assert list(stacked) == list(data.element_type_structure)
    for name, spec in data.element_type_structure.items():
      assert stacked[name].dtype == spec.dtype
      np.testing.assert_array_equal(
        stacked[name].numpy(), np.stack([e[name] for e in one_by_one])
      )


def test_a_part_of_the_clients_is_read_whole_too(real_data):
  data = tasks.create('shakespeare_character', cache_dir=str(real_data))
  data = data.datasets.train_data
  name = data.client_ids[5]
  part = client_data.subset(data, [name])
  assert part.client_ids == [name]
  np.testing.assert_array_equal(
    part.stacked(name)['snippets'], data.stacked(name)['snippets']
  )


def test_all_clients_together(data):
  everything = _labels(data.create_tf_dataset_from_all_clients(seed=1))
  assert sorted(everything) == list(range(10))
  assert everything == _labels(data.create_tf_dataset_from_all_clients(seed=1))
