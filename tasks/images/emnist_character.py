"""Character recognition on EMNIST: Reddi et al., arXiv 2003.00295, Table 4."""

from __future__ import annotations

from typing import Any

from tasks import catalogue
from tasks.images import emnist
from tasks.lazy import assembly
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


@catalogue.task(
  'emnist_character',
  summary='Recognise handwritten characters, one client per writer.',
  model='CNN with dropout, 1,206,590 weights (62 classes)',
  clients='3,400 writers, 671,585 training examples',
  files=('emnist_all.sqlite',),
  published=catalogue.Published('Reddi et al., arXiv 2003.00295', 1500, 10, 20),
  small_options=dict(only_digits=True),
)
class EmnistCharacter(emnist.Options):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 61."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return emnist.create(
      self.values,
      to_model=_to_model,
      build_model=lambda: build_model(emnist.num_classes(self.only_digits)),
      loss=assembly.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def build_model(num_classes: int) -> tf.keras.Model:
  """Builds the paper's CNN with dropout (1,206,590 weights for 62 classes)."""
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer((28, 28, 1)),
      layers.Conv2D(32, 3, activation='relu'),
      layers.Conv2D(64, 3, activation='relu'),
      layers.MaxPool2D(),
      layers.Dropout(0.25),
      layers.Flatten(),
      layers.Dense(128, activation='relu'),
      layers.Dropout(0.5),
      layers.Dense(num_classes),
    ]
  )


def _to_model(batch: Any) -> Any:
  return tf.expand_dims(batch['pixels'], -1), batch['label']
