"""Losses and metrics of next-token prediction, where token 0 is padding.

Padding is excluded, optionally except in the loss. It is found in the labels,
not by Keras' mask, which is lost silently if a layer does not propagate it.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tensorflow as tf

PADDING = 0


class NextTokenLoss(tf.keras.losses.Loss):
  """Mean cross-entropy from logits, over tokens that are not padding.

  Labels are integers [batch, length], logits [batch, length, tokens]. The loss
  of a batch of padding only is 0.
  """

  from_logits = True

  def __init__(self, name: str = 'next_token_loss'):
    super().__init__(reduction=tf.keras.losses.Reduction.NONE, name=name)

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    y_true = tf.cast(y_true, tf.int64)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred)
    counted = tf.cast(tf.not_equal(y_true, PADDING), losses.dtype)
    return tf.math.divide_no_nan(
      tf.reduce_sum(losses * counted), tf.reduce_sum(counted)
    )


class PaddedNextTokenLoss(tf.keras.losses.Loss):
  """Mean cross-entropy from logits, over all tokens, including padding.

  The loss that clients of the released FedOpt code minimize: its models mask
  padding, but TFF computes the loss where Keras has lost the mask. A masked
  recurrent layer repeats its last output at masked steps, so the logits of the
  first padded position are used for all later ones.

  Labels and logits as in `NextTokenLoss`; padding is at the end.
  """

  from_logits = True

  def __init__(self, name: str = 'padded_next_token_loss'):
    super().__init__(reduction=tf.keras.losses.Reduction.NONE, name=name)

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    y_true = tf.cast(y_true, tf.int64)
    length = tf.math.count_nonzero(
      tf.not_equal(y_true, PADDING), axis=1, keepdims=True, dtype=tf.int32
    )
    places = tf.minimum(tf.range(tf.shape(y_true)[1])[tf.newaxis], length)
    held = tf.gather(y_pred, places, batch_dims=1)
    return tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, held)
    )


def loss(padding: str) -> Callable[[], tf.keras.losses.Loss]:
  """Returns the loss with padding 'ignored' or 'counted'."""
  return NextTokenLoss if padding == 'ignored' else PaddedNextTokenLoss


def _for_tokens(weights: Any, tokens: tf.Tensor) -> tf.Tensor:
  """Returns weights of sentences, [batch], or of tokens, that broadcast."""
  weights = tf.convert_to_tensor(weights)
  if weights.shape.rank == 1 and tokens.shape.rank == 2:
    return weights[:, tf.newaxis]
  return weights


class NumTokens(tf.keras.metrics.Metric):
  """Number of tokens that are not padding."""

  def __init__(self, name: str = 'num_tokens', dtype: Any = tf.int64):
    super().__init__(name, dtype)
    self._sum = self.add_weight(name='sum', initializer='zeros', dtype=dtype)

  def update_state(
    self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None
  ) -> None:
    del y_pred
    counted = tf.cast(tf.not_equal(y_true, PADDING), self._sum.dtype)
    if sample_weight is not None:
      counted *= tf.cast(_for_tokens(sample_weight, y_true), counted.dtype)
    self._sum.assign_add(tf.reduce_sum(counted))

  def result(self) -> Any:
    return self._sum.read_value()


class TokenAccuracy(tf.keras.metrics.SparseCategoricalAccuracy):
  """Fraction of tokens predicted correctly, except some labels.

  Args:
    left_out: Labels to exclude in addition to padding.
    name: Name of the metric.
  """

  def __init__(
    self,
    left_out: Sequence[int] = (),
    name: str = 'accuracy',
    dtype: Optional[tf.DType] = None,
  ):
    super().__init__(name, dtype)
    self._left_out = (PADDING, *left_out)

  def update_state(
    self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None
  ) -> Any:
    counted = tf.ones_like(y_true, tf.bool)
    for token in self._left_out:
      counted &= tf.not_equal(y_true, tf.cast(token, y_true.dtype))
    weights = tf.cast(counted, self.dtype)
    if sample_weight is not None:
      weights *= tf.cast(_for_tokens(sample_weight, y_true), self.dtype)
    return super().update_state(y_true, y_pred, weights)

  def get_config(self) -> Any:
    return dict(super().get_config(), left_out=self._left_out[1:])
