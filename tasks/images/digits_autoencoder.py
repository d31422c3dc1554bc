"""Autoencoder on scikit-learn's digits: a small `emnist_autoencoder`.

Deep, saturating and slow for plain SGD, like the autoencoder of Reddi et al.
(arXiv 2003.00295, Table 3), but without a download.
"""

from __future__ import annotations

from typing import Any

from tasks import catalogue
from tasks.images import digits
from tasks.lazy import assembly
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_WIDTHS = (64, 32, 8, 32, 64, 64)


@catalogue.task(
  'digits_autoencoder',
  summary='Compress handwritten digits to 8 numbers and back.',
  model='6 dense layers, 13,064 weights',
  clients='20 (--digits_autoencoder_num_clients), Dirichlet label skew',
)
class DigitsAutoencoder(digits.Digits):
  """Images [batch, 64] in [0, 1], which are their own targets."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    train, test, split = digits.divided(self)
    return assembly.partitioned_task(
      train=train,
      test=test,
      split=split,
      options=self.values,
      batch_size=10,
      eval_batch_size=128,
      to_model=_to_model,
      build_model=_build_model,
      loss=tf.keras.losses.MeanSquaredError,
      metrics=[tf.keras.metrics.MeanSquaredError],
    )


def _to_model(batch: Any) -> Any:
  pixels = tf.reshape(batch['pixels'], [-1, 64])
  return pixels, pixels


def _build_model() -> tf.keras.Model:
  model = tf.keras.Sequential([tf.keras.layers.InputLayer((64,))])
  for width in _WIDTHS:
    activation = 'linear' if width == min(_WIDTHS) else 'sigmoid'
    model.add(tf.keras.layers.Dense(width, activation=activation))
  return model
