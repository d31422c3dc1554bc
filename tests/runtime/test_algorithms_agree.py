"""Every method of this project gives the same rounds in each runtime."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests import tiers
from tests.runtime import computations
from tff_adaptive import algorithms
from tff_adaptive import runtime


def model_fn():
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
        # What FedBN keeps on clients.
        tf.keras.layers.LayerNormalization(),
        tf.keras.layers.Dense(3, kernel_initializer='zeros'),
      ]
    ),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=computations.SPEC,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


@functools.lru_cache(1)
def process_of(name):
  """A method's process, composed once for the runtimes that are compared."""
  return algorithms.build(name, model_fn)


def two_rounds(name, context):
  with tff.framework.get_context_stack().install(context):
    process = process_of(name)
    state = process.initialize()
    clients = computations.clients()
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


@pytest.fixture(name='in_process', scope='module')
def _in_process():
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  yield context
  context.close()


@pytest.fixture(name='native', scope='module')
def _native():
  context = runtime.create_native_context()
  yield context
  context.close()


@pytest.fixture(name='expected', scope='module')
def _expected(in_process):
  return functools.cache(lambda name: two_rounds(name, in_process))


def assert_same(ours, theirs):
  tree.assert_same_structure(ours, theirs)
  for a, b in zip(tree.flatten(ours), tree.flatten(theirs), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  'name', tiers.exhaustive_but(['mime'], algorithms.names())
)
def test_a_clients_batches_are_kept(name, in_process):
  """No method's graph needs a tf.data iterator, which takes longer to make
  than a small client's steps.
  """
  executable, _ = in_process.engine.compile(process_of(name).next)
  functions = [phase.client for phase in executable.phases]
  datasets = {
    leaf
    for function in functions
    for leaf in function.inputs
    if leaf.spec.dtype == tf.variant
  }
  assert datasets
  for function in functions:
    assert datasets.intersection(function.inputs) == function.replaceable


@pytest.mark.slow
@pytest.mark.parametrize('name', algorithms.names())
def test_every_method_agrees(name, expected, native):
  assert_same(two_rounds(name, native), expected(name))
