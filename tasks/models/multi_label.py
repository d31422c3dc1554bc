"""Metrics of multi-label models that end in logits."""

from typing import Any

import tensorflow as tf


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
