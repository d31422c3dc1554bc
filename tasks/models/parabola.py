"""Models whose output is their loss: a quadratic function of their weights."""

from typing import Any

import tensorflow as tf


class Parabola(tf.keras.layers.Layer):
  """Value of a parabola, and distance of x from its minimizer 0, [batch, 2]."""

  def __init__(self, start: float):
    super().__init__()
    self._start = start

  def build(self, input_shape: Any) -> None:
    self.x = self.add_weight(
      'x',
      [input_shape[-1] // 2],
      initializer=tf.keras.initializers.Constant(self._start),
    )

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    curvature, noise = tf.split(inputs, 2, axis=1)
    value = tf.reduce_sum(curvature * self.x**2 / 2 + noise * self.x, axis=1)
    distance = tf.fill(tf.shape(value), tf.norm(self.x))
    return tf.stack([value, distance], axis=1)


class Bowl(Parabola):
  """Value of a quadratic, and distance of x from its minimizer, [batch, 2].

  Inputs [batch, 2 d] are the minimizer and the noise added to the gradient.
  """

  def __init__(self, start: float, curvature: Any):
    super().__init__(start)
    self._curvature = curvature

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    minimum, noise = tf.split(inputs, 2, axis=1)
    away = self.x - minimum
    curvature = tf.constant(self._curvature, inputs.dtype)
    value = tf.reduce_sum(curvature * away**2 / 2 + noise * self.x, axis=1)
    return tf.stack([value, tf.norm(away, axis=1)], axis=1)


class Value(tf.keras.losses.Loss):
  """Loss: the model's value."""

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return y_pred[:, 0]


class Distance(tf.keras.metrics.Mean):
  """Metric: distance of the weights from the minimizer."""

  def __init__(self, name: str = 'distance', dtype: Any = None) -> None:
    super().__init__(name, dtype)

  def update_state(
    self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None
  ) -> Any:
    return super().update_state(y_pred[:, 1], sample_weight)
