"""The layer against Keras's own."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tf_keras.src.layers.rnn import lstm as keras_lstm

from tasks.models import lstm


def _pair(units=6, inputs=4):
  tf.keras.utils.set_random_seed(0)
  keras = tf.keras.layers.LSTM(units, return_sequences=True)
  ours = lstm.LoopedLSTM(units, return_sequences=True)
  for layer in (keras, ours):
    layer.build((None, None, inputs))
  rng = np.random.default_rng(0)
  weights = [rng.normal(size=w.shape) for w in keras.get_weights()]
  keras.set_weights(weights)
  ours.set_weights(weights)
  return keras, ours


@pytest.mark.parametrize('batch, steps', [(3, 7), (1, 1), (5, 2)])
def test_outputs_and_gradients_are_kerass(batch, steps):
  x = tf.constant(
    np.random.default_rng(1).normal(size=[batch, steps, 4]), tf.float32
  )
  weight = tf.range(6.0)
  found = []
  for layer in _pair():
    with tf.GradientTape() as tape:
      tape.watch(x)
      # Every step and unit counts differently.
      y = layer(x)
      loss = tf.reduce_sum(y * weight * tf.range(1.0, steps + 1)[:, None])
    found.append([y, *tape.gradient(loss, [x, *layer.trainable_weights])])
  for theirs, ours in zip(*found, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_batch_may_be_empty():
  _, ours = _pair()
  assert ours(tf.zeros([0, 5, 4])).shape == [0, 5, 6]


def test_weights_have_kerass_names_and_start():
  found = []
  for kind in (tf.keras.layers.LSTM, lstm.LoopedLSTM):
    tf.keras.utils.set_random_seed(5)
    layer = kind(6, return_sequences=True, kernel_initializer='he_normal')
    layer.build((None, None, 4))
    found.append([w.numpy() for w in layer.trainable_weights])
  for theirs, ours in zip(*found, strict=True):
    np.testing.assert_array_equal(theirs, ours)


def test_masks_are_refused_and_not_ignored():
  _, ours = _pair()
  with pytest.raises(ValueError, match='neither a mask'):
    ours(tf.zeros([2, 3, 4]), mask=tf.ones([2, 3], tf.bool))


def test_tff_can_serialise_it_with_its_gradient():
  # TFF builds models inside graphs of its own, not in functions.
  @tff.tensorflow.computation
  def loss_and_gradient():
    layer = lstm.LoopedLSTM(3, return_sequences=True)
    layer.build((None, None, 2))
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(layer(tf.ones([2, 4, 2])))
    return loss, tape.gradient(loss, layer.trainable_weights)[1]

  assert str(loss_and_gradient.type_signature.result[1]) == 'float32[3,12]'


def test_cudnn_is_given_what_keras_gives_it(monkeypatch):
  """Without a GPU, the arguments of cuDNN's op are compared."""
  given = []

  def record(**arguments):
    given.append(arguments)
    batch, steps, _ = arguments['input'].shape
    nothing = tf.zeros([batch, 1, 6])
    return tf.zeros([batch, steps, 6]), nothing, nothing, None, None

  for names in (tf.raw_ops, keras_lstm.tf.raw_ops):
    monkeypatch.setattr(names, 'CudnnRNNV3', record)
  keras, _ = _pair()
  ours = lstm.CudnnLSTM(6, return_sequences=True)
  ours.build((None, None, 4))
  ours.set_weights(keras.get_weights())
  x = tf.constant(np.random.default_rng(1).normal(size=[3, 7, 4]), tf.float32)
  ours(x)
  cell = keras.cell
  keras_lstm.gpu_lstm(
    *(x, tf.zeros([3, 6]), tf.zeros([3, 6])),
    *(cell.kernel, cell.recurrent_kernel, cell.bias),
    mask=None,
    time_major=False,
    go_backwards=False,
    sequence_lengths=None,
    return_sequences=True,
  )
  mine, theirs = given
  assert set(mine) == set(theirs)
  for name, value in theirs.items():
    np.testing.assert_array_equal(mine[name], value, err_msg=name)
