"""Several server states at once."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import runtime


@tff.tensorflow.computation(tff.TensorType(np.float32, [2]))
def _squared(state):
  return {'squares': state * state, 'zero': tf.zeros([], tf.int32)}


@pytest.fixture(autouse=True)
def context_fixture():
  runtime.set_in_process_context()
  yield
  runtime.set_in_process_context()


def test_a_computation_of_the_state_alone():
  states = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
  ensemble = runtime.create_ensemble(_squared)
  found = ensemble([tf.constant(states)])
  np.testing.assert_array_equal(found.value['squares'], states**2)
  np.testing.assert_array_equal(found.value['zero'], [0, 0, 0])
  assert ensemble.leaves_of(0, states[0])[0].tolist() == [1, 2]


def test_other_clients_cannot_be_vectorized():
  """Those of a computation that is not this package's."""
  data = tff.SequenceType(tff.TensorType(np.float32, [None]))

  @tff.tensorflow.computation(data)
  def total(examples):
    return examples.reduce(0.0, lambda x, batch: x + tf.reduce_sum(batch))

  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(data, tff.CLIENTS),
  )
  def add(state, examples):
    del state
    return tff.federated_sum(tff.federated_map(total, examples))

  ensemble = runtime.create_ensemble(add)
  batches = [np.ones([2], np.float32)]
  with pytest.raises(runtime.CannotVectorize, match='not one of this package'):
    ensemble([tf.zeros([3])], data=[batches, batches])


def test_another_context_is_named():
  runtime.set_in_process_context(asynchronous=True)
  with pytest.raises(runtime.CannotVectorize, match='another runtime'):
    runtime.create_ensemble(_squared)
