"""Layer, losses and metrics of models that predict tags from words."""

from typing import Any
from typing import Optional

import tensorflow as tf


class SingleTagLoss(tf.keras.losses.Loss):
  """Mean softmax cross-entropy from logits, over sentences with a known tag.

  Labels are integers [batch], logits [batch, tags]; labels not below the number
  of tags are unknown. The loss of a batch without known tags is 0.
  """

  from_logits = True

  def __init__(self, name: str = 'single_tag_loss'):
    super().__init__(reduction=tf.keras.losses.Reduction.NONE, name=name)

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    known = _is_known(y_true, y_pred)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.where(known, y_true, 0), y_pred
    )
    counted = tf.cast(known, losses.dtype)
    return tf.math.divide_no_nan(
      tf.reduce_sum(losses * counted), tf.reduce_sum(counted)
    )


class SingleTagAccuracy(tf.keras.metrics.SparseCategoricalAccuracy):
  """Top-1 accuracy from logits, over sentences with a known tag."""

  def __init__(self, name: str = 'accuracy', dtype: Optional[tf.DType] = None):
    super().__init__(name, dtype)

  def update_state(
    self, y_true: Any, y_pred: Any, sample_weight: Any = None
  ) -> Any:
    known = _is_known(y_true, y_pred)
    weights = tf.cast(known, self.dtype)
    if sample_weight is not None:
      weights *= tf.cast(sample_weight, self.dtype)
    return super().update_state(tf.where(known, y_true, 0), y_pred, weights)


def _is_known(tags: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  return tags < tf.shape(logits, tags.dtype)[-1]


class _OfLogits:
  """Mixin that applies a Keras metric of probabilities to logits."""

  def update_state(
    self, y_true: Any, y_pred: Any, sample_weight: Any = None
  ) -> None:
    super().update_state(  # type: ignore[misc]
      y_true, tf.sigmoid(y_pred), sample_weight
    )


class Recall(_OfLogits, tf.keras.metrics.Recall):
  """Recall from logits."""


class Precision(_OfLogits, tf.keras.metrics.Precision):
  """Precision from logits."""


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
