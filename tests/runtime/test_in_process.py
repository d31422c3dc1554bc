"""The in-process runtime: threads, devices, memory, errors, asyncio."""

import asyncio
import collections
import gc
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_adaptive import runtime
from tff_adaptive.runtime import _tff
from tff_adaptive.runtime import resources
from tff_adaptive.runtime import values
from tff_adaptive.runtime import worker

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
_INTS = tff.FederatedType(np.int32, tff.CLIENTS)


_graphs = []


def _call_python(function, x):
  """Calls `function` when the graph under construction runs."""
  # TensorFlow forgets the function together with the graph it was made in.
  _graphs.append(tf.compat.v1.get_default_graph())
  return tf.ensure_shape(tf.numpy_function(function, [x], tf.float32), [])


@pytest.fixture(name='context')
def _context():
  context = runtime.create_in_process_context(max_concurrent_clients=4)
  with tff.framework.get_context_stack().install(context):
    yield context
  context.close()


@tff.tensorflow.computation(np.float32)
def _sine_many_times(x):
  variable = tf.Variable(0.0)
  variable.assign(x)

  @tf.function
  def loop():
    for _ in tf.range(20):
      variable.assign(tf.sin(variable * 3.1) + 0.1 * x)
    return variable.read_value()

  return loop()


@tff.federated_computation(_FLOATS)
def _mapped_and_summed(values):
  mapped = tff.federated_map(_sine_many_times, values)
  return mapped, tff.federated_mean(mapped)


def test_results_do_not_depend_on_the_number_of_threads():
  values = list(np.random.default_rng(0).normal(size=40).astype(np.float32))
  results = []
  for threads in (1, 2, 7):
    context = runtime.create_in_process_context(max_concurrent_clients=threads)
    with tff.framework.get_context_stack().install(context):
      results.append(_mapped_and_summed(values))
    context.close()
  # Bit by bit: floating-point sums depend on their order.
  for other in results[1:]:
    np.testing.assert_array_equal(results[0][0], other[0])
    assert results[0][1].tobytes() == other[1].tobytes()


def test_sum_runs_in_the_order_of_the_clients(context):
  # 1e8 swallows what is added to it, so each order has its own result.
  values = [np.float32(v) for v in (1, 1e8, -1e8, 1)]

  @tff.federated_computation(_FLOATS)
  def total(values):
    return tff.federated_sum(values)

  expected = np.float32(0)
  for value in values:
    expected += value
  assert total(values) == expected == 1
  assert total([values[0], values[3], values[1], values[2]]) == 0


def test_variables_of_concurrent_clients_do_not_mix(context):
  @tff.tensorflow.computation(np.int32)
  def count_up(n):
    total = tf.Variable(0)

    @tf.function
    def loop():
      for i in tf.range(n):
        total.assign_add(i)
      return total.read_value()

    return loop()

  @tff.federated_computation(_INTS)
  def compute(values):
    return tff.federated_map(count_up, values)

  sizes = [2000 - 37 * i for i in range(40)]
  assert compute(sizes) == [n * (n - 1) // 2 for n in sizes]


def test_tables_of_concurrent_clients_do_not_mix(context):
  @tff.tensorflow.computation(np.int64)
  def look_up(client):
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    insert = table.insert(tf.range(100, dtype=tf.int64), tf.fill([100], client))
    with tf.control_dependencies([insert]):
      found = table.lookup(tf.range(101, dtype=tf.int64))
    return tf.reduce_sum(found)

  @tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
  def compute(values):
    return tff.federated_map(look_up, values)

  assert compute(list(range(30))) == [100 * i - 1 for i in range(30)]


def test_clients_run_at_the_same_time(context):
  del context
  barrier = threading.Barrier(2, timeout=20)

  def wait(x):
    barrier.wait()
    return x

  @tff.tensorflow.computation(np.float32)
  def meet(x):
    return _call_python(wait, x)

  @tff.federated_computation(_FLOATS)
  def compute(values):
    return tff.federated_map(meet, values)

  # With one client at a time the barrier would break.
  assert compute([1.0, 2.0]) == [1.0, 2.0]


def test_seeded_stateful_randomness_does_not_depend_on_threads():
  def draw(threads):
    @tff.tensorflow.computation(np.float32)
    def noise(x):
      return x + tf.random.normal([], seed=3)

    @tff.federated_computation(_FLOATS)
    def compute(values):
      return tff.federated_map(noise, values)

    context = runtime.create_in_process_context(max_concurrent_clients=threads)
    with tff.framework.get_context_stack().install(context):
      result = compute([0.0] * 20)
    context.close()
    return result

  assert draw(1) == draw(4)


def test_unseeded_randomness_differs_between_clients(context):
  @tff.tensorflow.computation
  def noise():
    return tf.random.normal([])

  @tff.federated_computation()
  def compute():
    return tff.federated_eval(noise, tff.SERVER)

  assert compute() != compute()


def test_intermediate_values_of_a_large_cohort_are_not_kept(context):
  del context
  elements = 1_000_000  # 4 MB a client; 300 clients would hold 1.2 GB

  @tff.tensorflow.computation(np.float32)
  def expand(x):
    return tf.fill([elements], x)

  @tff.federated_computation(_FLOATS)
  def compute(values):
    return tff.federated_sum(tff.federated_map(expand, values))

  compute([1.0] * 4)
  before = _peak_bytes()
  result = compute([1.0] * 300)
  assert result.shape == (elements,) and result[0] == 300.0
  assert _peak_bytes() - before < 300e6


def _peak_bytes() -> int:
  with open('/proc/self/status', encoding='ascii') as file:
    for line in file:
      if line.startswith('VmHWM:'):
        return int(line.split()[1]) * 1024
  raise AssertionError('no VmHWM')


def test_memory_is_flat_over_invocations(context):
  del context
  values = [float(i) for i in range(10)]
  pid = int(pathlib.Path('/proc/self').resolve().name)
  for _ in range(100):
    _mapped_and_summed(values)
  gc.collect()
  before = worker.resident_bytes(pid)
  for _ in range(400):
    _mapped_and_summed(values)
  gc.collect()
  assert worker.resident_bytes(pid) - before < 20e6


def test_forgotten_computations_are_freed(context):
  @tff.tensorflow.computation(np.float32)
  def double(x):
    return 2 * x

  double(1.0)
  assert len(context.engine._by_id) == 1
  del double
  gc.collect()
  assert not context.engine._by_id


# Arguments and results.


def test_python_containers_come_back_as_declared(context):
  point = collections.namedtuple('point', ['y', 'x'])
  spec = point(
    y=tff.TensorType(np.int32),
    x=collections.OrderedDict(b=tff.TensorType(np.float32, [None])),
  )

  @tff.tensorflow.computation(tff.to_type(spec))
  def same(value):
    return point(y=value.y, x=value.x)

  value = point(y=3, x=collections.OrderedDict(b=np.ones(2, np.float32)))
  result = same(value)
  tree.assert_same_structure(result, value)
  assert isinstance(result, point) and result.y == 3
  np.testing.assert_array_equal(result.x['b'], [1.0, 1.0])


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


@pytest.mark.parametrize(
  'loop, listed',
  [
    (_sum_by_iterator, True),
    (_sum_by_reduction, True),
    (_sum_of_mapped, False),
  ],
  ids=['iterator', 'reduction', 'mapped'],
)
def test_kept_batches_give_the_same_results(loop, listed):
  element = collections.OrderedDict(
    y=tff.TensorType(np.str_, [None]), x=tff.TensorType(np.float32, [None, 2])
  )

  @tff.tensorflow.computation(tff.SequenceType(element))
  def client(dataset):
    return tf.function(loop)(dataset)

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(element), tff.CLIENTS)
  )
  def compute(data):
    return tff.federated_map(client, data)

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
  kept = runtime.create_in_process_context(max_concurrent_clients=2)
  plain = runtime.create_in_process_context(dataset_cache_bytes=0)
  with tff.framework.get_context_stack().install(plain):
    expected = compute(data)
    np.testing.assert_array_equal(expected, compute(data))
  with tff.framework.get_context_stack().install(kept):
    for _ in range(3):
      np.testing.assert_array_equal(compute(data), expected)
  functions = kept.engine.compile(compute)[0].passes[0].client._functions
  assert set(functions) == ({False, True} if listed else {False})
  before = kept.engine._datasets._room[0]
  data.clear()
  gc.collect()
  if listed:
    assert kept.engine._datasets._room[0] > before
  kept.close()
  plain.close()


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
  assert _tff.yields_the_same_each_time(variant) == same


def test_no_more_batches_are_kept_than_allowed():
  cache = values.DatasetCache(100)
  large = tf.data.Dataset.from_tensors(np.zeros(90, np.float32))
  small = tf.data.Dataset.from_tensors(np.zeros(20, np.float32))
  for dataset, kept in ((large, False), (small, True)):
    spec = tff.SequenceType(
      tff.TensorType(np.float32, dataset.element_spec.shape)
    )
    assert not hasattr(cache.variant(dataset, spec), 'tff_adaptive_batches')
    again = cache.variant(dataset, spec)
    assert hasattr(again, 'tff_adaptive_batches') == kept


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


def test_closed_context_says_so():
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  context.close()
  with (
    tff.framework.get_context_stack().install(context),
    pytest.raises(runtime.RuntimeFailure, match='was closed'),
  ):
    _mapped_and_summed([1.0, 2.0])


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


def test_empty_cohort(context):
  assert _mapped_and_summed([])[0] == []


def test_no_argument_and_default_number_of_clients():
  @tff.tensorflow.computation
  def one():
    return tf.constant(1)

  @tff.federated_computation()
  def compute():
    return tff.federated_sum(tff.federated_eval(one, tff.CLIENTS))

  context = runtime.create_in_process_context(default_num_clients=5)
  with tff.framework.get_context_stack().install(context):
    assert compute() == 5
  context.close()


# Intrinsics that TFF's own runtime refuses.


def test_secure_sums(context):
  vector = tff.FederatedType(tff.TensorType(np.int32, [2]), tff.CLIENTS)

  @tff.federated_computation(vector)
  def compute(values):
    return (
      tff.federated_secure_sum(values, 100),
      tff.federated_secure_sum_bitwidth(values, 8),
    )

  values = [np.array([1, 2], np.int32), np.array([30, 40], np.int32)]
  for result in compute(values):
    np.testing.assert_array_equal(result, [31, 42])
  with pytest.raises(runtime.ClientFailure, match='larger than the maximum'):
    compute([np.array([1, 101], np.int32)])


def test_secure_aggregator_is_close_to_the_plain_mean(context):
  factory = tff.aggregators.SecureSumFactory(10.0, -10.0)
  process = factory.create(tff.TensorType(np.float32, [3]))
  values = list(np.random.default_rng(0).normal(size=(5, 3)).astype('f'))
  output = process.next(process.initialize(), values)
  np.testing.assert_allclose(output.result, np.sum(values, 0), atol=1e-5)


def test_sequence_intrinsics(context):
  @tff.tensorflow.computation(np.int32)
  def square(x):
    return collections.OrderedDict(b=x * x, a=tf.cast(x, tf.float32))

  @tff.tensorflow.computation(square.type_signature.result)
  def pick(element):
    return element['a'] + 10.0 * tf.cast(element['b'], tf.float32)

  @tff.tensorflow.computation
  def zero():
    return tf.constant(0.0)

  @tff.tensorflow.computation(np.float32, np.float32)
  def add(a, b):
    return a + b

  @tff.federated_computation(tff.SequenceType(np.int32))
  def compute(numbers):
    picked = tff.sequence_map(pick, tff.sequence_map(square, numbers))
    return (
      tff.sequence_sum(numbers),
      tff.sequence_reduce(picked, zero(), add),
    )

  assert compute([1, 2, 3]) == (6, 6.0 + 140.0)


# Asynchronous use.


def test_async_context_serves_the_program_platform():
  context = runtime.create_in_process_context(asynchronous=True)
  platform = tff.program.NativeFederatedContext(context)

  async def program():
    first = _mapped_sum([1, 2, 3])
    second = _mapped_sum([4])
    return await asyncio.gather(
      tff.program.materialize_value(first),
      tff.program.materialize_value(second),
    )

  @tff.tensorflow.computation(np.int32)
  def square(x):
    return x * x

  @tff.federated_computation(_INTS)
  def _mapped_sum(values):
    return tff.federated_sum(tff.federated_map(square, values))

  with tff.framework.get_context_stack().install(platform):
    assert asyncio.run(program()) == [14, 16]
  context.close()


def test_event_loop_stays_free_during_a_computation():
  context = runtime.create_in_process_context(asynchronous=True)

  @tff.tensorflow.computation(np.float32)
  def slow(x):
    def sleep(x):
      time.sleep(0.5)
      return x

    return _call_python(sleep, x)

  async def program():
    task = asyncio.create_task(context.invoke(slow, 1.0))
    ticks = 0
    while not task.done():
      await asyncio.sleep(0.02)
      ticks += 1
    return ticks, await task

  ticks, result = asyncio.run(program())
  assert result == 1.0
  assert ticks >= 5
  context.close()


def test_works_inside_a_running_event_loop(context):
  del context

  async def notebook_cell():
    return _mapped_and_summed([1.0])

  mapped, mean = asyncio.run(notebook_cell())
  assert mapped[0] == mean


# Errors.


def test_failing_client_is_named(context):
  @tff.tensorflow.computation(np.int32)
  def divide(x):
    return 10 // x

  @tff.federated_computation(_INTS)
  def compute(values):
    return tff.federated_map(divide, values)

  with pytest.raises(runtime.ClientFailure, match='Client 2 of 4') as error:
    compute([1, 2, 0, 5])
  assert error.value.client_index == 2
  assert compute([1, 2, 5]) == [10, 5, 2]  # Nothing is left behind.


def test_client_out_of_memory_says_what_to_lower(context):
  def fail(x):
    raise MemoryError('no room')  # TensorFlow makes it RESOURCE_EXHAUSTED.

  @tff.tensorflow.computation(np.float32)
  def huge(x):
    return _call_python(fail, x)

  @tff.federated_computation(_FLOATS)
  def compute(values):
    return tff.federated_map(huge, values)

  with pytest.raises(
    runtime.ClientFailure, match=r'ran out of memory.*max_concurrent'
  ):
    compute([1.0])


def test_unknown_device_is_refused_with_the_known_ones():
  with pytest.raises(ValueError, match=r"no device 'GPU:7'.*CPU:0"):
    runtime.create_in_process_context(devices=['GPU:7'])


@pytest.mark.parametrize(
  'arguments',
  [
    {'max_concurrent_clients': 0},
    {'default_num_clients': -1},
    {'devices': []},
    {'devices': 'CPU:0'},
  ],
)
def test_arguments_out_of_range_are_refused(arguments):
  with pytest.raises(ValueError, match=next(iter(arguments))):
    runtime.create_in_process_context(**arguments)


def test_wrong_values_are_refused(context):
  @tff.tensorflow.computation(tff.TensorType(np.float32, [2]))
  def same(x):
    return x

  for value in ([1.0], np.ones(3, np.float32), np.ones(2, np.float64), 'word'):
    with pytest.raises(TypeError):
      same(value)
  with pytest.raises(TypeError, match='Client 1'):
    _mapped_and_summed([1.0, 'word'])


def test_cohorts_of_different_size_are_refused(context):
  @tff.federated_computation(_FLOATS, _FLOATS)
  def compute(a, b):
    return tff.federated_mean(a, b)

  with pytest.raises(ValueError, match=r'\[2, 3\]'):
    compute([1.0, 2.0], [1.0, 2.0, 3.0])


def test_what_cannot_run_is_named(context):
  @tff.jax.computation(np.float32)
  def jax_double(x):
    return x + x

  with pytest.raises(runtime.UnsupportedComputationError, match='xla'):
    jax_double(1.0)


def test_import_of_the_package_loads_neither_tensorflow_nor_the_rest():
  program = (
    'import sys, tff_adaptive.runtime;'
    'heavy = {"tensorflow", "tensorflow_federated", "tff_adaptive.algorithms",'
    ' "tff_adaptive.optimizers", "tff_adaptive.experiment"};'
    'sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules)'
    ' else 0)'
  )
  subprocess.run([sys.executable, '-c', program], cwd=_ROOT, check=True)


def test_clients_are_spread_over_the_devices(tmp_path):
  # In a process of its own: logical devices are fixed once TensorFlow starts.
  program = """
import collections
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices('CPU')[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
import tensorflow_federated as tff
from tff_adaptive import runtime

@tff.tensorflow.computation(tff.SequenceType(np.float32), np.float32)
def work(dataset, x):
  variable = tf.Variable(x)
  @tf.function
  def loop():
    for element in dataset:
      variable.assign_add(element)
    return variable.read_value()
  return loop(), x

@tff.tensorflow.computation(work.type_signature.result)
def first(pair):
  return pair[0]

@tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.float32), tff.CLIENTS),
    tff.FederatedType(np.float32, tff.SERVER))
def compute(data, x):
  mapped = tff.federated_map(work, (data, tff.federated_broadcast(x)))
  return mapped, tff.federated_sum(tff.federated_map(first, mapped))

data = [[float(i), 1.0] for i in range(7)]
results = []
for devices in (['CPU:0'], ['CPU:1', '/device:CPU:2']):
  context = runtime.set_in_process_context(
      devices=devices, max_concurrent_clients=2)
  used = collections.Counter()
  inner = context.engine.compile(compute)[0].passes[0].client._function(False)
  call = type(inner).__call__
  def spy(self, arguments, device='', call=call, inner=inner):
    outputs = call(self, arguments, device)
    if self is inner:
      used[outputs[0].device.rpartition('device:')[2]] += 1
    return outputs
  type(inner).__call__ = spy
  results.append(compute(data, 2.0))
  type(inner).__call__ = call
  print(dict(used))
assert results[0] == results[1], results
"""
  script = tmp_path / 'program.py'  # AutoGraph needs a file.
  script.write_text(program)
  done = subprocess.run(
    [sys.executable, str(script)],
    cwd=_ROOT,
    env={**os.environ, 'PYTHONPATH': str(_ROOT)},
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert "{'CPU:0': 7}" in done.stdout
  assert "'CPU:1': 4" in done.stdout and "'CPU:2': 3" in done.stdout


def test_default_concurrency_shrinks_for_models_that_fill_the_memory():
  automatic = resources.Resources()
  assert automatic.threads_for(10**6) == automatic.max_concurrent_clients
  assert automatic.threads_for(10**15) == 1
  automatic.close()
  fixed = resources.Resources(max_concurrent_clients=3)
  assert fixed.threads_for(10**15) == 3
  fixed.close()
