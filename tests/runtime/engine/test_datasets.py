"""Datasets in the in-process runtime: order, kept batches, containers."""

import collections
import gc

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import runtime
from tff_adaptive.runtime import rows as rows_lib
from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime.engine import dataset_cache

# Lists and rows stand for datasets there; on a GPU, batches are copied anyway.
_HOST = ['CPU:0']


def test_dataset_in_other_containers_keeps_its_fields_apart(context):
  # Named tuples keep their order where mappings are sorted.
  example = collections.namedtuple('example', ['y', 'x'])
  declared = tff.SequenceType(
    collections.OrderedDict(y=np.float32, x=np.float32)
  )

  @tff.tensorflow.computation(declared)
  def sums(dataset):
    zero = (tf.constant(0.0), tf.constant(0.0))
    return dataset.reduce(zero, lambda s, e: (s[0] + e['x'], s[1] + e['y']))

  data = tf.data.Dataset.from_tensor_slices(
    example(y=np.float32([1, 2]), x=np.float32([10, 20]))
  )
  assert sums(data) == (30.0, 3.0)
  assert sums([collections.OrderedDict(y=1.0, x=10.0)]) == (10.0, 1.0)


def test_examples_of_several_vectors_are_no_batches(context):
  """Their first dimensions are none of rows, and may differ."""
  declared = tff.SequenceType(
    collections.OrderedDict(
      a=tff.TensorType(np.float32, [4]), b=tff.TensorType(np.float32, [2])
    )
  )

  @tff.tensorflow.computation(declared)
  def products(dataset):
    return dataset.reduce(
      tf.constant(0.0),
      lambda s, e: s + tf.reduce_sum(e['a']) * tf.reduce_sum(e['b']),
    )

  @tff.federated_computation(tff.FederatedType(declared, tff.CLIENTS))
  def total(datasets):
    return tff.federated_sum(tff.federated_map(products, datasets))

  a = np.arange(12, dtype=np.float32).reshape(3, 4)
  b = np.arange(6, dtype=np.float32).reshape(3, 2)
  data = tf.data.Dataset.from_tensor_slices(collections.OrderedDict(a=a, b=b))
  expected = float((a.sum(axis=1) * b.sum(axis=1)).sum())
  for given in (data, data, data, list(data)):
    assert total([given]) == expected


def test_fields_in_another_order_are_refused_whatever_came_before(context):
  example = collections.namedtuple('example', ['y', 'x'])
  declared = tff.SequenceType(
    tff.types.to_type(example(y=np.float32, x=np.float32))
  )

  @tff.tensorflow.computation(declared)
  def sums(dataset):
    zero = (tf.constant(0.0), tf.constant(0.0))
    return dataset.reduce(zero, lambda s, e: (s[0] + e.x, s[1] + e.y))

  def data(**fields):
    return tf.data.Dataset.from_tensors(collections.OrderedDict(fields))

  y, x = tf.constant(1.0), tf.constant(10.0)
  assert sums(data(y=y, x=x)) == (10.0, 1.0)
  # Fields are told apart by their places, which are other ones here.
  with pytest.raises(TypeError, match='Expected a dataset'):
    sums(data(x=x, y=y))


def test_shuffled_dataset_is_shuffled_anew_each_time(context):
  @tff.tensorflow.computation(tff.SequenceType(np.int64))
  def digits(dataset):
    return dataset.reduce(np.int64(0), lambda sum_, x: 10 * sum_ + x)

  data = tf.data.Dataset.range(9).shuffle(9, seed=5)
  orders = {int(digits(data)) for _ in range(5)}
  assert len(orders) == 5
  fixed = tf.data.Dataset.range(9).shuffle(
    9, seed=5, reshuffle_each_iteration=False
  )
  assert len({int(digits(fixed)) for _ in range(3)}) == 1


def _sum_by_iterator(dataset):
  total = tf.zeros([2])
  for batch in iter(dataset):
    total = total * 0.5 + tf.reduce_sum(batch['x'], axis=0)
    total += tf.cast(tf.shape(batch['y'])[0], tf.float32)
  return total


def _sum_by_reduction(dataset):
  return dataset.reduce(
    tf.zeros([2]),
    lambda total, batch: (
      total * 0.5
      + tf.reduce_sum(batch['x'], axis=0)
      + tf.cast(tf.shape(batch['y'])[0], tf.float32)
    ),
  )


def _sum_of_mapped(dataset):
  # Uses the dataset in a way for which no list can stand.
  return _sum_by_reduction(dataset.map(lambda batch: batch).take(2))


def _take_four(dataset):
  # The fourth is beyond the end of most: asking again changes nothing.
  iterator = iter(dataset)
  total = tf.zeros([2])
  for _ in range(4):
    batch = iterator.get_next_as_optional()
    if batch.has_value():
      total = total * 0.5 + tf.reduce_sum(batch.get_value()['x'], axis=0)
  return total


def _computation(loop, batch_type=None):
  """A loop over each client's batches, of any size or of one."""
  element = collections.OrderedDict(
    y=tff.TensorType(np.str_, [batch_type]),
    x=tff.TensorType(np.float32, [batch_type, 2]),
  )

  @tff.tensorflow.computation(tff.SequenceType(element))
  def client(dataset):
    return tf.function(loop)(dataset)

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(element), tff.CLIENTS)
  )
  def compute(data):
    return tff.federated_map(client, data)

  return compute


_LOOPS = pytest.mark.parametrize(
  'loop, listed',
  [
    (_sum_by_iterator, True),
    (_take_four, True),
    (_sum_by_reduction, True),
    (_sum_of_mapped, False),
  ],
  ids=['iterator', 'optionals', 'reduction', 'mapped'],
)


@_LOOPS
def test_kept_batches_give_the_same_results(loop, listed):
  compute = _computation(loop)
  rng = np.random.default_rng(0)
  data = [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        y=np.array([f'word {i}' for i in range(n)]),
        x=rng.normal(size=(n, 2)).astype(np.float32),
      )
    ).batch(3)
    for n in (7, 1, 6)
  ]
  data.append(data[0].take(0))
  kept = runtime.create_in_process_context(
    max_concurrent_clients=2, devices=_HOST
  )
  plain = runtime.create_in_process_context(dataset_cache_bytes=0)
  with tff.framework.get_context_stack().install(plain):
    expected = compute(data)
    np.testing.assert_array_equal(expected, compute(data))
  with tff.framework.get_context_stack().install(kept):
    for _ in range(3):
      np.testing.assert_array_equal(compute(data), expected)
  functions = kept.engine.compile(compute)[0].phases[0].client._functions
  assert set(functions) == ({False, True} if listed else {False})
  before = kept.engine.datasets.free_bytes
  data.clear()
  gc.collect()
  if listed:
    assert kept.engine.datasets.free_bytes > before
  kept.close()
  plain.close()


@_LOOPS
@pytest.mark.parametrize('batch_type', [None, 3], ids=['any', 'fixed'])
def test_rows_give_the_same_results_as_their_batches(loop, listed, batch_type):
  compute = _computation(loop, batch_type)
  rng = np.random.default_rng(0)
  sizes = (7, 1, 6, 0) if batch_type is None else (6, 3, 9)
  clients = [
    rows_lib.RowBatches(
      collections.OrderedDict(
        y=tf.constant([f'word {i}' for i in range(n)], tf.string),
        x=tf.constant(rng.normal(size=(n, 2)), tf.float32),
      ),
      3,
    )
    for n in sizes
  ]
  context = runtime.create_in_process_context(
    max_concurrent_clients=2, devices=_HOST
  )
  with tff.framework.get_context_stack().install(context):
    found = compute(clients)
    expected = compute([list(rows) for rows in clients])
    np.testing.assert_array_equal(found, expected)
    if batch_type is None:
      datasets = [rows.dataset() for rows in clients]
      np.testing.assert_array_equal(compute(datasets), expected)
  functions = context.engine.compile(compute)[0].phases[0].client._functions
  assert (True in functions) == listed
  context.close()


@_LOOPS
def test_clients_may_share_their_rows(loop, listed):
  compute = _computation(loop, None)
  every = collections.OrderedDict(
    y=tf.constant([f'word {i}' for i in range(20)], tf.string),
    x=tf.constant(np.random.default_rng(0).normal(size=(20, 2)), tf.float32),
  )
  # Sizes 7, 1, 0 and 6; the last rows are nobody's.
  shared = [
    rows_lib.RowBatches(every, 3, begin, end)
    for begin, end in ((0, 7), (7, 8), (8, 8), (9, 15))
  ]
  context = runtime.create_in_process_context(
    max_concurrent_clients=2, devices=_HOST
  )
  with tff.framework.get_context_stack().install(context):
    found = compute(shared)
    np.testing.assert_array_equal(
      found, compute([list(rows) for rows in shared])
    )
    np.testing.assert_array_equal(
      found, compute([rows.dataset() for rows in shared])
    )
  functions = context.engine.compile(compute)[0].phases[0].client._functions
  assert (True in functions) == listed
  context.close()


def test_rows_are_cut_like_a_list():
  rows = rows_lib.RowBatches(dict(x=tf.range(7)), 3)
  assert len(rows) == 3
  assert [b['x'].numpy().tolist() for b in rows] == [[0, 1, 2], [3, 4, 5], [6]]
  assert rows[-1]['x'].numpy().tolist() == [6]
  assert [b['x'].numpy().tolist() for b in rows[1:]] == [[3, 4, 5], [6]]
  with pytest.raises(IndexError):
    rows[3]
  found = [b['x'].tolist() for b in rows.dataset().as_numpy_iterator()]
  assert found == [[0, 1, 2], [3, 4, 5], [6]]
  part = rows_lib.RowBatches(dict(x=tf.range(7)), 3, 1, 5)
  assert [b['x'].numpy().tolist() for b in part] == [[1, 2, 3], [4]]
  assert part.own_rows()['x'].numpy().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
  'dataset, same',
  [
    (lambda: tf.data.Dataset.range(5).batch(2).map(tf.square), True),
    (lambda: tf.data.Dataset.range(5).shuffle(5, seed=1), False),
    (lambda: tf.data.Dataset.range(5).repeat(), False),
    (
      lambda: tf.data.Dataset.range(5).map(
        lambda x: x + tf.random.uniform([], 0, 9, tf.int64)
      ),
      False,
    ),
    (
      lambda: tf.data.Dataset.from_generator(
        lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int64)
      ),
      False,
    ),
    (lambda: tf.data.TextLineDataset(['a file']), False),
  ],
  ids=['map', 'shuffle', 'endless', 'random', 'generator', 'file'],
)
def test_only_datasets_that_cannot_change_are_kept(dataset, same):
  variant = tf.data.experimental.to_variant(dataset())
  assert tff_datasets.yields_the_same_each_time(variant) == same


def test_endless_datasets_are_not_read_ahead():
  numbers = tf.data.Dataset.range(3).repeat().batch(2)
  variant = tf.data.experimental.to_variant(numbers)
  element_type = tff.TensorType(np.int64, [None])
  assert dataset_cache._read_rows(variant, element_type, lambda: None) is None


def test_datasets_whose_end_is_unknown_are_read_until_cancelled():
  numbers = tf.data.Dataset.range(3).repeat().filter(lambda x: x > 0).batch(2)
  variant = tf.data.experimental.to_variant(numbers)
  cancellation = tff_functions.Cancellation()
  looks = iter([cancellation.check] * 5 + [cancellation.cancel])

  def check():
    next(looks, cancellation.check)()

  with pytest.raises(runtime.RuntimeFailure, match='was cancelled'):
    dataset_cache._read_rows(variant, tff.TensorType(np.int64, [None]), check)


def test_empty_batches_are_batches():
  cache = dataset_cache.DatasetCache(1 << 20)
  spec = tff.SequenceType(tff.TensorType(np.float32, [None]))
  full, empty = tf.ones([2]), tf.zeros([0])
  assert cache.client_data([full, full], spec).known_rows is not None
  assert cache.client_data([full, empty], spec).known_rows is None


def test_single_numbers_and_what_is_not_of_clients_are_not_kept():
  cache = dataset_cache.DatasetCache(1 << 20)
  numbers = tf.data.Dataset.range(9)
  batches = numbers.batch(3)
  of_batches = tff.SequenceType(tff.TensorType(np.int64, [None]))
  for _ in range(2):
    cache.client_data(numbers, tff.SequenceType(np.int64))
    cache.variant(batches, of_batches)
  assert cache.free_bytes == 1 << 20


def test_no_more_batches_are_kept_than_allowed():
  cache = dataset_cache.DatasetCache(500)  # 256 of them are a tensor's own.
  large = tf.data.Dataset.from_tensors(np.zeros(90, np.float32))
  small = tf.data.Dataset.from_tensors(np.zeros(20, np.float32))
  for dataset, kept in ((large, False), (small, True)):
    spec = tff.SequenceType(
      tff.TensorType(np.float32, dataset.element_spec.shape)
    )
    first = cache.client_data(dataset, spec)
    assert first.known_rows is None
    again = cache.client_data(dataset, spec)
    assert (again.known_rows is not None) == kept


def test_dataset_object_of_several_clients_does_not_depend_on_threads():
  @tff.tensorflow.computation(tff.SequenceType(np.int64))
  def digits(dataset):
    return dataset.reduce(np.int64(0), lambda sum_, x: 10 * sum_ + x)

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.int64), tff.CLIENTS)
  )
  def compute(data):
    return tff.federated_map(digits, data)

  results = []
  for threads in (1, 4):
    context = runtime.create_in_process_context(max_concurrent_clients=threads)
    data = tf.data.Dataset.range(9).shuffle(9, seed=5)
    with tff.framework.get_context_stack().install(context):
      results.append([compute([data] * 12) for _ in range(2)])
    context.close()
  assert results[0] == results[1]
  assert len(set(results[0][0])) == 12


def test_infinite_dataset_may_be_left_early(context):
  @tff.tensorflow.computation(tff.SequenceType(np.int64))
  @tf.function
  def first_three(dataset):
    total = tf.constant(0, tf.int64)
    for i in dataset:
      total += i
      if i >= 3:
        break
    return total

  data = tf.data.Dataset.range(5).repeat()
  assert [first_three(data) for _ in range(4)] == [6] * 4
