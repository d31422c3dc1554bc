"""The in-process runtime: threads, devices, memory, errors, asyncio."""

import asyncio
import collections
import gc
import threading
import time
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.runtime import computations
from tff_adaptive import runtime
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime.engine import resources


def test_results_do_not_depend_on_the_number_of_threads():
  values = list(np.random.default_rng(0).normal(size=40).astype(np.float32))
  results = []
  for threads in (1, 2, 7):
    context = runtime.create_in_process_context(max_concurrent_clients=threads)
    with tff.framework.get_context_stack().install(context):
      results.append(computations.mapped_and_summed(values))
    context.close()
  # Bit by bit: floating-point sums depend on their order.
  for other in results[1:]:
    np.testing.assert_array_equal(results[0][0], other[0])
    assert results[0][1].tobytes() == other[1].tobytes()


def test_sum_runs_in_the_order_of_the_clients(context):
  # 1e8 swallows what is added to it, so each order has its own result.
  values = [np.float32(v) for v in (1, 1e8, -1e8, 1)]

  @tff.federated_computation(computations.FLOATS)
  def total(values):
    return tff.federated_sum(values)

  expected = np.float32(0)
  for value in values:
    expected += value
  assert total(values) == expected == 1
  assert total([values[0], values[3], values[1], values[2]]) == 0


def test_the_longest_clients_begin_first_and_sums_keep_the_order(monkeypatch):
  begun = []
  submit = resources.Resources.submit

  def noted(self, function, *index, **beside):
    begun.extend(index)
    return submit(self, function, *index, **beside)

  monkeypatch.setattr(resources.Resources, 'submit', noted)

  @tff.tensorflow.computation(tff.SequenceType((np.float32, [None])))
  def add_up(batches):
    return batches.reduce(
      0.0, lambda total, batch: total + tf.math.reduce_sum(batch)
    )

  @tff.federated_computation(
    tff.FederatedType(add_up.type_signature.parameter, tff.CLIENTS)
  )
  def total(batches):
    return tff.federated_sum(tff.federated_map(add_up, batches))

  # 1e8 swallows what is added to it, so each order has its own result.
  clients = [[1.0], [1e8] + [0.0] * 4, [-1e8] + [0.0] * 2, [1.0] + [0.0] * 7]
  batches = [[tf.constant([x]) for x in client] for client in clients]
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  with tff.framework.get_context_stack().install(context):
    assert total(batches) == 1
    assert total([batches[i] for i in (0, 3, 1, 2)]) == 0
  context.close()
  assert begun == [3, 1, 2, 0, 1, 2, 3, 0]


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

  @tff.federated_computation(computations.INTS)
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
    return computations.call_python(wait, x)

  @tff.federated_computation(computations.FLOATS)
  def compute(values):
    return tff.federated_map(meet, values)

  # With one client at a time the barrier would break.
  assert compute([1.0, 2.0]) == [1.0, 2.0]


def test_seeded_stateful_randomness_does_not_depend_on_threads():
  def draw(threads):
    @tff.tensorflow.computation(np.float32)
    def noise(x):
      return x + tf.random.normal([], seed=3)

    @tff.federated_computation(computations.FLOATS)
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

  @tff.federated_computation(computations.FLOATS)
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


def test_closed_context_says_so():
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  context.close()
  with (
    tff.framework.get_context_stack().install(context),
    pytest.raises(runtime.RuntimeFailure, match='is closed'),
  ):
    computations.mapped_and_summed([1.0, 2.0])


def test_empty_cohort(context):
  assert computations.mapped_and_summed([])[0] == []


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
    return (tff.sequence_sum(numbers), tff.sequence_reduce(picked, zero(), add))

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

  @tff.federated_computation(computations.INTS)
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

    return computations.call_python(sleep, x)

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
    return computations.mapped_and_summed([1.0])

  mapped, mean = asyncio.run(notebook_cell())
  assert mapped[0] == mean


def test_only_what_the_runtime_returned_goes_back_without_a_copy(context):
  @tff.tensorflow.computation(tff.TensorType(np.float32, [16]))
  def unchanged(x):
    return tf.identity(x)

  mine = np.ones([16], np.float32)
  returned = unchanged(mine)
  mine[:] = 2
  np.testing.assert_array_equal(returned, np.ones(16))
  with pytest.raises(ValueError, match='read-only'):
    returned[0] = 3
  if not tf.config.list_physical_devices('GPU'):  # It computes there.
    assert np.shares_memory(unchanged(returned), returned)
  earlier = []
  for _ in range(5):
    earlier.append(weakref.ref(returned))
    returned = unchanged(returned)
  gc.collect()
  assert not any(known() is not None for known in earlier)
  theirs = np.zeros([16], np.float32)
  unwritable = np.asarray(memoryview(theirs).toreadonly())
  result = unchanged(unwritable)
  theirs[:] = 4
  np.testing.assert_array_equal(result, np.zeros(16))
  part = np.broadcast_to(np.float32(1), [16])  # Read-only, but not its own.
  assert not np.shares_memory(unchanged(part), part)


def test_what_has_no_inputs_is_computed_once_unless_it_is_random(context):
  calls = []

  @tff.tensorflow.computation
  def drawn():
    return tf.random.uniform([])

  @tff.tensorflow.computation
  def zeros():
    return tf.zeros([3])

  assert drawn() != drawn()
  run = tff_functions.FastFunction.__call__
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      tff_functions.FastFunction,
      '__call__',
      lambda self, *args: calls.append(self) or run(self, *args),
    )
    for _ in range(3):
      np.testing.assert_array_equal(zeros(), np.zeros(3))
  assert len(calls) == 1
