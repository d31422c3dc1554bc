"""A dense layer for inputs that are mostly zeros."""

import tensorflow as tf


class BagOfWordsDense(tf.keras.layers.Dense):
  """A dense layer that multiplies by the words that occur in the batch only.

  The kernel's other rows would be multiplied by zeros, and their gradient is
  zero: outputs and gradients are those of `tf.keras.layers.Dense` but for
  rounding, since the same numbers are added in another order. With rows that
  are not finite they differ: zero times infinity is not a number, and here the
  row is left out.
  """

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    words = tf.where(tf.reduce_any(tf.not_equal(inputs, 0), axis=0))[:, 0]
    # Reading the variable as a whole does not copy it. Gathering from the
    # variable itself would make each later reading a copy.
    rows = tf.gather(tf.convert_to_tensor(self.kernel), words)
    outputs = tf.matmul(tf.gather(inputs, words, axis=1), rows)
    if self.use_bias:
      outputs = tf.nn.bias_add(outputs, self.bias)
    return self.activation(outputs)
