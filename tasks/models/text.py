"""Losses and metrics of models of text; a layer for bags of words.

In the prediction of next tokens, token 0 is padding. It is excluded, optionally
except in the loss, and found in the labels, not by Keras' mask, which is lost
silently if a layer does not propagate it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Optional

import tensorflow as tf

PADDING = 0


class _BatchLoss(tf.keras.losses.Loss):
  """A loss from logits whose `call` returns the value of a whole batch."""

  from_logits = True

  def __init__(self) -> None:
    super().__init__(reduction=tf.keras.losses.Reduction.NONE)


class NextTokenLoss(_BatchLoss):
  """Mean cross-entropy from logits, over tokens that are not padding.

  Labels are integers [batch, length], logits [batch, length, tokens]. The loss
  of a batch of padding only is 0.
  """

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    y_true = tf.cast(y_true, tf.int64)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred)
    return _mean_of(losses, tf.not_equal(y_true, PADDING))


def _mean_of(losses: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
  """Returns the mean of the counted losses, 0 if none are."""
  weights = tf.cast(counted, losses.dtype)
  return tf.math.divide_no_nan(
    tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
  )


class PaddedNextTokenLoss(_BatchLoss):
  """Mean cross-entropy from logits, over all tokens, including padding.

  The loss that clients of the released FedOpt code minimize: its models mask
  padding, but TFF computes the loss where Keras has lost the mask. A masked
  recurrent layer repeats its last output at masked steps, so the logits of the
  first padded position are used for all later ones.

  Labels and logits as in `NextTokenLoss`; padding is at the end.
  """

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


class SingleTagLoss(_BatchLoss):
  """Mean softmax cross-entropy from logits, over sentences with a known tag.

  Labels are integers [batch], logits [batch, tags]; labels not below the number
  of tags are unknown. The loss of a batch without known tags is 0.
  """

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    known = _is_known(y_true, y_pred)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.where(known, y_true, 0), y_pred
    )
    return _mean_of(losses, known)


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
