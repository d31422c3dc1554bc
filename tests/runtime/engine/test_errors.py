"""What the in-process runtime refuses, and how it tells what failed."""

import numpy as np
import pytest
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.python.core.impl.computation import computation_impl
from tensorflow_federated.python.core.impl.context_stack import (
  context_stack_impl,
)
from tensorflow_federated.python.core.impl.types import type_serialization

from tests.runtime import computations
from tff_adaptive import runtime


def test_failing_client_is_named(context):
  @tff.tensorflow.computation(np.int32)
  def divide(x):
    return 10 // x

  @tff.federated_computation(computations.INTS)
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
    return computations.call_python(fail, x)

  @tff.federated_computation(computations.FLOATS)
  def compute(values):
    return tff.federated_map(huge, values)

  with pytest.raises(
    runtime.ClientFailure, match=r'ran out of memory.*max_concurrent'
  ):
    compute([1.0])


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
    computations.mapped_and_summed([1.0, 'word'])


def test_cohorts_of_different_size_are_refused(context):
  @tff.federated_computation(computations.FLOATS, computations.FLOATS)
  def compute(a, b):
    return tff.federated_mean(a, b)

  with pytest.raises(ValueError, match=r'\[2, 3\]'):
    compute([1.0, 2.0], [1.0, 2.0, 3.0])


def test_what_cannot_run_is_named(context):
  # As tff.jax.computation makes one; jax itself is not installed.
  spec = tff.FunctionType(np.float32, np.float32)
  binding = computation_pb2.Xla.Binding(
    tensor=computation_pb2.Xla.TensorBinding(index=0)
  )
  xla_double = computation_impl.ConcreteComputation(
    computation_proto=computation_pb2.Computation(
      type=type_serialization.serialize_type(spec),
      xla=computation_pb2.Xla(parameter=binding, result=binding),
    ),
    context_stack=context_stack_impl.context_stack,
    annotated_type=spec,
  )
  with pytest.raises(runtime.UnsupportedComputationError, match='xla'):
    xla_double(1.0)
