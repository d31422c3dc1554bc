"""Users' layers and losses in lockstep: the same numbers, or one at a time."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import algorithms
from tff_adaptive import models
from tff_adaptive import runtime

_SPEC = (tf.TensorSpec([None, 4]), tf.TensorSpec([None, 3]))
_KERAS_2 = tf.keras


class Divergence(keras.layers.Layer):
  """As of variational autoencoders."""

  def call(self, x):
    self.add_loss(keras.ops.mean(keras.ops.square(x)))
    return x


class Centred(_KERAS_2.layers.Layer):
  def call(self, x):
    return x - tf.reduce_mean(x, axis=0, keepdims=True)


class Averaged(_KERAS_2.layers.Layer):
  def call(self, x):
    return x / tf.cast(tf.shape(x)[0], tf.float32)


class Rooted(_KERAS_2.layers.Layer):
  """Has no value at most weights."""

  def build(self, shape):
    self.scale = self.add_weight('scale', shape[-1:], initializer='ones')

  def call(self, x):
    return tf.sqrt(self.scale) * (x - tf.reduce_mean(x, axis=0))


def activated():
  return _KERAS_2.layers.Activation(lambda x: tf.nn.softmax(x, axis=0))


class Rows(_KERAS_2.layers.Layer):
  """Reads a variable as only variables can be read."""

  def build(self, shape):
    self.table = self.add_weight('table', (2, shape[-1]))

  def call(self, x):
    return x + self.table.sparse_read(tf.cast(x[:, 0] > 0, tf.int32))


class Hidden(_KERAS_2.layers.Layer):
  """Has a variable that Keras does not list."""

  def __init__(self):
    super().__init__()
    object.__setattr__(self, 'unseen', [tf.Variable(3.0, trainable=False)])

  def call(self, x):
    return x * self.unseen[0]


class Noise(keras.layers.Layer):
  """Computes of each example by itself."""

  def __init__(self):
    super().__init__()
    self.seed = keras.random.SeedGenerator(1)

  def call(self, x):
    return x + keras.random.normal(keras.ops.shape(x), seed=self.seed)


class Weighted(_KERAS_2.losses.Loss):
  """Has weights of classes, in a variable."""

  def __init__(self):
    super().__init__()
    self._weights = tf.Variable([0.2, 1.0, 3.0], trainable=False)

  def call(self, labels, predictions):
    return tf.reduce_sum((labels - predictions) ** 2 * self._weights, axis=1)


def contrast(labels, predictions):
  """Of each example, against those of the others in its batch."""
  scores = tf.matmul(predictions, labels, transpose_b=True)
  return tf.reduce_logsumexp(scores, axis=1) - tf.linalg.diag_part(scores)


def _model_fn(layer, loss):
  library = keras if loss in ('mse', contrast) else _KERAS_2
  layers = library.layers

  def build():
    entrance = layers.InputLayer((4,)) if library is _KERAS_2 else None
    inner = [layers.Dense(5), layer(), layers.Dense(3)]
    return library.Sequential([entrance or library.Input((4,)), *inner])

  if library is keras:
    return models.model_fn(build, input_spec=_SPEC, loss=loss, metrics=[])
  return lambda: models.from_keras_model(build(), loss(), _SPEC, [])


_MIX = 'mix the examples of a batch'


@pytest.mark.parametrize(
  'layer, loss, reason',
  [
    (Divergence, 'mse', _MIX),
    (Centred, _KERAS_2.losses.MeanSquaredError, _MIX),
    (keras.layers.ReLU, contrast, _MIX),
    (Averaged, _KERAS_2.losses.MeanSquaredError, _MIX),
    (Rooted, _KERAS_2.losses.MeanSquaredError, _MIX),
    (activated, _KERAS_2.losses.MeanSquaredError, _MIX),
    (Rows, _KERAS_2.losses.MeanSquaredError, None),
    (Hidden, _KERAS_2.losses.MeanSquaredError, 'none of its weights'),
    (_KERAS_2.layers.ReLU, Weighted, 'none of its weights'),
    (Noise, 'mse', None),
  ],
)
def test_numbers_are_those_of_clients_alone(layer, loss, reason, caplog):
  caplog.set_level(logging.INFO, 'tff_adaptive.runtime')
  rng = np.random.default_rng(0)
  data = [
    tf.data.Dataset.from_tensor_slices(
      tuple(rng.normal(size=(n, k)).astype(np.float32) for k in (4, 3))
    ).batch(4)
    for n in (6, 5)
  ]
  process = algorithms.build(
    'fedavg', _model_fn(layer, loss), client_learning_rate=0.1
  )
  initial = process.initialize()
  found = []
  for choice in ('false', 'true'):
    runtime.set_in_process_context(vectorize_clients=choice)
    output = process.next(initial, data)
    found.append(
      [
        output.metrics['client_work']['train']['loss'],
        *process.get_model_weights(output.state).trainable,
      ]
    )
  for alone, together in zip(*found):
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
  if reason is None:
    assert 'one at a time' not in caplog.text
  else:
    assert reason in caplog.text
