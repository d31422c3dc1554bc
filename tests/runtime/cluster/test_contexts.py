"""Clients spread over the machines of a Ray cluster, some of which die."""

import os
import signal
import socket
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.processes import test_lockstep
from tests.runtime import cases
from tests.runtime import computations
from tests.runtime import test_algorithms_agree as methods
from tests.runtime import test_equality
from tff_adaptive import algorithms
from tff_adaptive import cohorts
from tff_adaptive import runtime
from tff_adaptive.runtime.cluster import wire

_SEQUENCE = tff.SequenceType(np.int64)
_MACHINE = socket.gethostname()

pytestmark = pytest.mark.exhaustive


@pytest.fixture(name='context', scope='module')
def _context(ray_nodes):
  context = runtime.create_ray_context(ray_nodes.address)
  yield context
  context.close()


@pytest.fixture(name='in_process', scope='module')
def _in_process():
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  yield context
  context.close()


def _installed(context):
  return tff.framework.get_context_stack().install(context)


def test_shares_whose_clients_train_together(ray_nodes):
  """The first test, as the module's context takes all cores."""
  process = algorithms.build('delta_sgd', test_lockstep.model_fn(3))
  data = [test_lockstep.as_rows(arrays) for arrays in test_lockstep.clients()]

  def weights(context):
    with _installed(context):
      state = process.initialize()
      for _ in range(3):
        state = process.next(state, data).state
      return process.get_model_weights(state).trainable

  together = runtime.create_ray_context(
    ray_nodes.address, vectorize_clients='true'
  )
  found = weights(together)
  together.close()
  expected, alone = (
    weights(runtime.create_in_process_context(vectorize_clients=choice))
    for choice in ('true', 'false')
  )
  for a, b in zip(found, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
  # Rounding tells that they did not train one at a time.
  assert any((a != b).any() for a, b in zip(found, alone, strict=True))


@tff.tensorflow.computation(_SEQUENCE)
def _sum(dataset):
  return dataset.reduce(np.int64(0), lambda total, x: total + x)


@tff.federated_computation(tff.FederatedType(_SEQUENCE, tff.CLIENTS))
def _sums(datasets):
  sums = tff.federated_map(_sum, datasets)
  return tff.federated_sum(sums), sums


# Averaging as in other cases, but for what happens inside clients or sums.
_AVERAGING = (
  *(cases.fed_avg_iterator, cases.fed_avg_compressed, cases.fed_avg_private),
  *(cases.fed_prox, cases.fed_sgd),
)


@pytest.mark.parametrize(
  'case',
  tiers.exhaustive_but([], cases.ALL, slow=_AVERAGING),
  ids=lambda case: case.__name__,
)
def test_ray_equals_in_process(case, context, in_process):
  with _installed(in_process):
    expected = case()
  with _installed(context):
    found = case()
  test_equality.assert_equal(found, expected)


# A method of each kind: a second gradient, a pass over the data, a measurement,
# client states, layers that stay, a mix of optimizers.
_OF_A_KIND = (
  *('delta_sgd', 'mime', 'fedsps_global'),
  *('scaffold', 'fedbn', 'fedada2_blended'),
)


@pytest.mark.parametrize(
  'name',
  tiers.exhaustive_but(
    [],
    algorithms.names(),
    slow=[name for name in algorithms.names() if name not in _OF_A_KIND],
  ),
)
def test_every_method_agrees(name, context, in_process):
  methods.assert_same(
    methods.two_rounds(name, context), methods.two_rounds(name, in_process)
  )


def test_model_functions_that_cannot_be_pickled_train_one_at_a_time():
  lock = threading.Lock()
  base = test_lockstep.model_fn(2)

  def model_fn():
    with lock:
      return base()

  process = algorithms.build('fedavg', model_fn)
  proto = tff.framework.ConcreteComputation.get_proto(process.next)
  assert cohorts.forms_in(proto)
  wire.register_forms(wire.pickle_forms(proto))
  wire.register_forms(b'not a pickle')


def test_a_failing_client_is_named_with_its_machine(context):
  @tff.tensorflow.computation(np.int32)
  def divide(x):
    return 10 // x

  @tff.federated_computation(computations.INTS)
  def compute(values):
    return tff.federated_sum(tff.federated_map(divide, values))

  with _installed(context):
    with pytest.raises(
      runtime.ClientFailure, match=f'On {_MACHINE}: Client 3 of 4 failed'
    ) as failure:
      compute([1, 2, 3, 0])
    assert failure.value.client_index == 3
    with pytest.raises(TypeError, match=r'Client 2 of 4: .* got 1\.5'):
      compute([1, 2, 1.5, 1])
    with pytest.raises(ValueError, match='number of clients'):
      computations_of_two([1], [1, 2])
    assert compute([1, 2]) == 15


@tff.federated_computation(computations.INTS, computations.INTS)
def computations_of_two(left, right):
  return tff.federated_sum(left), tff.federated_sum(right)


class _Numbers(runtime.Reference):
  """Data that note in a file when they are loaded."""

  work = 1.0

  def __init__(self, notes, name, broken=False):
    self._notes = notes
    self.name = name
    self._broken = broken

  @property
  def source(self):
    return self._notes

  @property
  def key(self):
    return self.name

  @classmethod
  def load(cls, references):
    with open(references[0].source, 'a', encoding='utf-8') as notes:
      for reference in references:
        notes.write(f'{reference.name}\n')
    for place, reference in enumerate(references):
      if reference._broken:
        raise runtime.ClientFailure(f'{reference.name} is broken', place)
    return [[np.int64(len(r.name))] for r in references]


def _notes(path, count):
  """Waits for so many notes; returns all there are, sorted."""
  end = time.monotonic() + 30
  while time.monotonic() < end:
    notes = path.read_text(encoding='utf-8').split()
    if len(notes) >= count:
      break
    time.sleep(0.05)
  return sorted(notes)


def test_announced_data_are_loaded_once_and_before_their_call(
  context, tmp_path
):
  path = tmp_path / 'notes'
  first, second, third = (
    [_Numbers(path, f'{letter * size}') for size in (1, 2, 3)]
    for letter in 'abc'
  )
  with _installed(context):
    announce = runtime.data_announcer()
    # Those of the call itself are not loaded twice.
    announce(first)
    assert _sums(first)[0] == 6
    announce(second)
    assert _sums(third)[0] == 6
    announced = ['a', 'aa', 'aaa', 'b', 'bb', 'bbb', 'c', 'cc', 'ccc']
    assert _notes(path, 9) == announced
    total, each = _sums(second)
    assert (total, list(each)) == (6, [1, 2, 3])
    time.sleep(0.2)
    assert _notes(path, 9) == announced


def test_a_failure_to_load_announced_data_is_reported_by_their_call(
  context, tmp_path
):
  path = tmp_path / 'notes'
  whole = [_Numbers(path, name) for name in ('a', 'b')]
  broken = [_Numbers(path, 'c'), _Numbers(path, 'd', broken=True)]
  with _installed(context):
    runtime.data_announcer()(broken)
    assert _sums(whole)[0] == 2
    assert _notes(path, 4) == ['a', 'b', 'c', 'd']
    with pytest.raises(runtime.ClientFailure, match='d is broken') as failure:
      _sums(broken)
    assert failure.value.client_index == 1
    # The whole client was in memory, unless it shared an actor with the other.
    assert _notes(path, 5).count('d') == 2


def test_a_context_in_this_process_loads_nothing_in_advance(in_process):
  with _installed(in_process):
    assert runtime.data_announcer() is None


@pytest.mark.slow  # TensorFlow tries for ten seconds.
def test_out_of_memory_is_said_with_machine_client_and_flag(context):
  @tff.tensorflow.computation(np.int32)
  def take(gibibytes):
    return tf.reduce_sum(tf.zeros(tf.stack([gibibytes, 1 << 28])))

  @tff.federated_computation(computations.INTS)
  def fill(values):
    return tff.federated_sum(tff.federated_map(take, values))

  with (
    _installed(context),
    pytest.raises(
      runtime.ClientFailure,
      match=f'On {_MACHINE}: Client 1 of 2 ran out of memory.*'
      'max_concurrent_clients',
    ),
  ):
    fill([0, 1 << 20])


def _actors():
  return [
    process
    for process in psutil.process_iter(['cmdline'])
    if process.info['cmdline']
    and process.info['cmdline'][0].startswith('ray::Actor')
  ]


def _seconds_of(processes):
  return sum(sum(process.cpu_times()[:2]) for process in processes)


def _is_idle(processes):
  before = _seconds_of(processes)
  time.sleep(0.5)
  return _seconds_of(processes) - before < 0.2


@pytest.fixture(name='interruptible')
def _interruptible():
  """Workers of pytest-xdist ignore interrupts."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures('interruptible')
def test_an_interrupted_computation_ends_everywhere(context):
  endless = [tf.data.Dataset.range(5).repeat()] * 2
  ended = threading.Event()

  def interrupt():
    before = _seconds_of(_actors())
    while _seconds_of(_actors()) - before < 0.5:
      time.sleep(0.1)
    # Python may be where it can only print that it was interrupted.
    while not ended.is_set():
      os.kill(os.getpid(), signal.SIGINT)
      ended.wait(3)

  with _installed(context):
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
      try:
        _sums(endless)
      finally:
        ended.set()
    # An actor that goes on for five seconds is replaced.
    end = time.monotonic() + 20
    while not _is_idle(_actors()):
      assert time.monotonic() < end
    assert _sums([tf.data.Dataset.range(3)] * 3) == (9, [3, 3, 3])


@pytest.fixture(name='process', scope='module')
def _process():
  return algorithms.build('fedadam', methods.model_fn)


def _weights(context, process, happens=lambda: None):
  """The weights after ten rounds, in the fourth of which something happens."""
  with _installed(context):
    state = process.initialize()
    for number in range(10):
      if number == 3:
        threading.Timer(0.05, happens).start()
      clients = computations.clients((400, 300, 500, 350, 450) * 2)
      state = process.next(state, clients).state
    return process.get_model_weights(state).trainable


def _assert_same_bits(left, right):
  for a, b in zip(left, right, strict=True):
    np.testing.assert_array_equal(a, b)


def test_a_lost_actor_changes_no_bit(context, process):
  expected = _weights(context, process)
  _assert_same_bits(_weights(context, process, _actors()[0].kill), expected)


@pytest.mark.slow
def test_a_lost_machine_changes_no_bit_and_a_new_one_is_used(
  ray_nodes, context, process
):
  expected = _weights(context, process)
  _assert_same_bits(_weights(context, process, ray_nodes.kill), expected)
  assert len(context.runner.fleet.ready()) == 1
  ray_nodes.add()
  end = time.monotonic() + 60
  while len(context.runner.fleet.ready()) < 2 and time.monotonic() < end:
    with _installed(context):
      _sums([tf.data.Dataset.range(3)])
    time.sleep(0.5)
  assert len(context.runner.fleet.ready()) == 2
  _assert_same_bits(_weights(context, process), expected)
