"""Small computations, and what they are made of."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
INTS = tff.FederatedType(np.int32, tff.CLIENTS)
# Examples of four numbers and one of three labels.
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 4], tf.float32), y=tf.TensorSpec([None, 1], tf.int64)
)


def clients(sizes=(11, 5, 8, 1)):
  """Clients' batches of examples as `SPEC` has them."""
  rng = np.random.default_rng(0)
  return [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=rng.normal(size=(n, 4)).astype(np.float32),
        y=rng.integers(0, 3, (n, 1)),
      )
    ).batch(4)
    for n in sizes
  ]


_graphs = []


def call_python(function, x):
  """Calls `function` when the graph under construction runs."""
  # TensorFlow forgets the function together with the graph it was made in.
  _graphs.append(tf.compat.v1.get_default_graph())
  return tf.ensure_shape(tf.numpy_function(function, [x], tf.float32), [])


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


@tff.federated_computation(FLOATS)
def mapped_and_summed(values):
  mapped = tff.federated_map(_sine_many_times, values)
  return mapped, tff.federated_mean(mapped)
