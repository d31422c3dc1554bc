"""Autoencoder on EMNIST: Reddi et al., arXiv 2003.00295, Table 3.

The defaults are the released code's, whose loss is summed over the batch and
whose bottleneck is linear (docs/released_code/reddi2021.md).
"""

from __future__ import annotations

import functools
from typing import Any
from typing import Literal

from tasks import catalogue
from tasks.images import emnist
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_WIDTHS = (1000, 500, 250, 30, 250, 500, 1000, 784)
_REDUCTIONS = {
  'sum': 'sum',
  'mean': 'sum_over_batch_size',
}


@catalogue.task(
  'emnist_autoencoder',
  summary='Compress handwritten characters to 30 numbers and back.',
  model='8 dense layers, 2,837,314 weights',
  clients='3,400 writers, 671,585 training examples',
  files=('emnist_all.sqlite',),
  published=catalogue.Published('Reddi et al., arXiv 2003.00295', 3000, 10, 20),
  small_options=dict(only_digits=True),
)
class EmnistAutoencoder(emnist.Options):
  """Ink [batch, 784] in [0, 1], which is its own target."""

  bottleneck: Literal['sigmoid', 'linear'] = 'linear'
  """Activation of the layer of 30 units: 'linear' as in the released code, or
  'sigmoid' as Table 3 prints for all layers."""

  loss: Literal['sum', 'mean'] = 'sum'
  """Reduction over the batch of the squared error, which is a mean over the
  pixels: 'sum' as in the released code, which the published rates of 3 to 30
  need, or 'mean'. Metrics are means either way."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return emnist.create(
      self.values,
      to_model=_to_model,
      build_model=lambda: _build_model(self.bottleneck),
      loss=functools.partial(
        tf.keras.losses.MeanSquaredError, reduction=_REDUCTIONS[self.loss]
      ),
      metrics=[
        tf.keras.metrics.MeanSquaredError,
        tf.keras.metrics.MeanAbsoluteError,
      ],
    )


def _to_model(batch: Any) -> Any:
  # The files have a white background of 1; the model reconstructs ink.
  ink = 1 - tf.reshape(batch['pixels'], [-1, 784])
  return ink, ink


def _build_model(bottleneck: str) -> tf.keras.Model:
  model = tf.keras.Sequential([tf.keras.layers.InputLayer((784,))])
  for width in _WIDTHS:
    activation = bottleneck if width == min(_WIDTHS) else 'sigmoid'
    model.add(tf.keras.layers.Dense(width, activation=activation))
  return model
