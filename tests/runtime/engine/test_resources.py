"""What clients run on: devices, and as many at once as memory holds."""

import pytest
import tensorflow as tf

from tests import programs
from tff_adaptive import runtime
from tff_adaptive.runtime import machine
from tff_adaptive.runtime.engine import resources

# Logical devices are fixed once TensorFlow starts: for a process of its own.
_SPREADING = """
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
  client = context.engine.compile(compute)[0].phases[0].client
  inner = client.function(False)
  call = type(inner).__call__
  def spy(self, arguments, device, cancellation, call=call, inner=inner):
    outputs = call(self, arguments, device, cancellation)
    if self is inner:
      used[outputs[0].device.rpartition('device:')[2]] += 1
    return outputs
  type(inner).__call__ = spy
  results.append(compute(data, 2.0))
  type(inner).__call__ = call
  print(dict(used))
assert results[0] == results[1], results
"""

_TOGETHER = """
import collections
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices('CPU')[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
from tests.processes import test_lockstep as lockstep
from tff_adaptive import algorithms
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime.engine import resources

used = collections.Counter()
part = b'clients_'
call = tff_functions.FastFunction.__call__
def spy(self, arguments, device, cancellation):
  outputs = call(self, arguments, device, cancellation)
  if part in self._name:
    used[outputs[0].device.rpartition('device:')[2]] += 1
  return outputs
tff_functions.FastFunction.__call__ = spy
process = algorithms.build('fedadam', lockstep.model_fn(2))
sizes = (7, 31, 12, 9, 26, 3, 18, 40, 5)
data = [lockstep.as_rows(own) for own in lockstep.clients(sizes)]
found = []
for devices in (('CPU:0',), ('CPU:1', '/device:CPU:2')):
  found.append(lockstep._run(
      process, 'true', data, 3, devices=devices, max_concurrent_clients=2))
  print(dict(used))
  used.clear()
for a, b in zip(*found, strict=True):
  np.testing.assert_array_equal(a, b)
# GPUs add up their own clients before the sums meet.
resources.Resources.on_gpu = True
part = b'of_group_'
summed = lockstep._run(
    process, 'true', data, 3, devices=('CPU:1', 'CPU:2'), jit_compile='false')
assert used == {'CPU:1': 3, 'CPU:2': 3}, used
for a, b in zip(summed, found[0], strict=True):
  np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
"""


def test_unknown_device_is_refused_with_the_known_ones():
  with pytest.raises(ValueError, match=r"no device 'GPU:7'.*CPU:0"):
    runtime.create_in_process_context(devices=['GPU:7'])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'program, on_one, on_two',
  [(_SPREADING, 7, (4, 3)), (_TOGETHER, 3, (3, 3))],
  ids=['alone', 'together'],
)
def test_clients_are_spread_over_the_devices(tmp_path, program, on_one, on_two):
  script = tmp_path / 'program.py'  # AutoGraph needs a file.
  script.write_text(program)
  root = programs.ROOT
  done = programs.run(script, cwd=root, timeout=120, PYTHONPATH=root)
  assert f"{{'CPU:0': {on_one}}}" in done.stdout
  for place, count in enumerate(on_two, start=1):
    assert f"'CPU:{place}': {count}" in done.stdout


def test_default_concurrency_shrinks_for_models_that_fill_the_memory():
  automatic = resources.Resources()
  assert automatic.threads_for(10**6) == automatic.max_concurrent_clients
  assert automatic.threads_for(10**15) == 1
  automatic.close()
  fixed = resources.Resources(max_concurrent_clients=3)
  assert fixed.threads_for(10**15) == 3
  fixed.close()


@pytest.mark.parametrize(
  'devices, cores, clients',
  [
    (['/device:CPU:0'], 6, 6),
    (['/device:GPU:0'], 16, 4),
    (['/device:GPU:0'], 2, 2),
    (['/device:GPU:0', '/device:GPU:1'], 16, 8),
  ],
)
def test_four_clients_a_gpu_if_there_are_cores_to_launch_from(
  devices, cores, clients, monkeypatch
):
  monkeypatch.setattr(machine, 'cores', lambda: list(range(cores)))
  assert resources._default_concurrency(devices) == clients


@pytest.mark.parametrize('precision', ['tf32', 'float32'])
def test_products_on_a_gpu_have_the_precision_that_was_asked(
  monkeypatch, precision
):
  monkeypatch.setattr(resources.Resources, 'on_gpu', True)
  before = tf.config.experimental.tensor_float_32_execution_enabled()
  try:
    resources.Resources(matmul_precision=precision)
    enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    assert enabled == (precision == 'tf32')
  finally:
    tf.config.experimental.enable_tensor_float_32_execution(before)


def test_other_precisions_are_refused():
  with pytest.raises(ValueError, match="'float32' or 'tf32', got 'half'"):
    runtime.create_in_process_context(matmul_precision='half')
