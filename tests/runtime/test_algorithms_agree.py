"""Every method of this project gives the same rounds in each runtime. Slow."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_adaptive import algorithms
from tff_adaptive import runtime

_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 4], tf.float32),
  y=tf.TensorSpec([None, 1], tf.int64),
)


def _model_fn():
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([4]),
        # MOON needs a layer before the last; no two runs share random weights.
        tf.keras.layers.Dense(
          5,
          'tanh',
          kernel_initializer=tf.constant_initializer(np.linspace(-1, 1, 20)),
        ),
        tf.keras.layers.Dense(3, kernel_initializer='zeros'),
      ]
    ),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=_SPEC,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _clients():
  rng = np.random.default_rng(0)
  return [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=rng.normal(size=(n, 4)).astype(np.float32),
        y=rng.integers(0, 3, (n, 1)),
      )
    ).batch(4)
    for n in (11, 5, 8, 1)
  ]


def _two_rounds(name, context):
  with tff.framework.get_context_stack().install(context):
    process = algorithms.build(name, _model_fn)
    state = process.initialize()
    clients = _clients()
    rounds = []
    if algorithms.is_stateful(process):
      own = [process.initialize_client_state() for _ in clients]
      for _ in range(2):
        output = process.next(state, own, clients)
        state, own = output.state, output.client_states
        rounds.append((output.metrics, own))
    else:
      for _ in range(2):
        output = process.next(state, clients)
        state = output.state
        rounds.append(output.metrics)
    return process.get_model_weights(state), rounds


@pytest.fixture(name='native', scope='module')
def _native():
  context = runtime.create_native_context()
  yield context
  context.close()


@pytest.fixture(name='in_process', scope='module')
def _in_process():
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  yield context
  context.close()


@pytest.mark.slow
@pytest.mark.parametrize('name', algorithms.names())
def test_in_process_equals_native(name, in_process, native):
  ours = _two_rounds(name, in_process)
  theirs = _two_rounds(name, native)
  tree.assert_same_structure(ours, theirs)
  for a, b in zip(tree.flatten(ours), tree.flatten(theirs), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
