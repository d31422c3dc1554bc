"""Memory over thousands of rounds. Slow: minutes."""

import collections
import gc

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import runtime


def _process():
  spec = collections.OrderedDict(
    x=tf.TensorSpec([None, 4], tf.float32), y=tf.TensorSpec([None, 1], tf.int64)
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [tf.keras.layers.InputLayer([4]), tf.keras.layers.Dense(3)]
      ),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=spec,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )

  return tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    server_optimizer_fn=tff.learning.optimizers.build_adam(0.01),
  )


def _clients(round_number):
  """Datasets that are new in each round and shuffle, as in training."""
  rng = np.random.default_rng(round_number)
  return [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=rng.normal(size=(6, 4)).astype(np.float32),
        y=rng.integers(0, 3, (6, 1)),
      )
    )
    .shuffle(6)
    .batch(4)
    for _ in range(3)
  ]


def _train(context, rounds):
  """Trains; returns this process's memory after each tenth of the rounds."""
  sizes = {}
  with tff.framework.get_context_stack().install(context):
    process = _process()
    state = process.initialize()
    for r in range(1, rounds + 1):
      state = process.next(state, _clients(r)).state
      if r == 100 or r % (rounds // 10) == 0:
        gc.collect()
        sizes[r] = psutil.Process().memory_info().rss
  return sizes


@pytest.mark.slow
def test_memory_of_the_in_process_runtime_is_flat():
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  sizes = _train(context, 2000)
  context.close()
  print({r: size >> 20 for r, size in sizes.items()})
  assert sizes[2000] < 1.05 * sizes[100], sizes
