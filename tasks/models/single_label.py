"""Loss and metric of single-label models with unlabeled examples."""

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
    del sample_weight
    known = _is_known(y_true, y_pred)
    return super().update_state(
      tf.where(known, y_true, 0), y_pred, tf.cast(known, self.dtype)
    )


def _is_known(tags: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  return tags < tf.shape(logits, tags.dtype)[-1]
