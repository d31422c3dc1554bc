"""Handwritten digits of scikit-learn, partitioned by label skew.

1,797 digits of 8 x 8 pixels (Alpaydin and Kaynak, UCI 1998). A fifth is held
out for testing; the rest is divided over clients of equal size by Dirichlet
label skew. The task needs no download: small enough for a first try, real
enough to show the effects of client drift.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.formats import data_files
from tasks.images import emnist
from tasks.lazy import builders
from tasks.partitioners import splits
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_TEST_SHARE = 0.2


@registry.task(
  'digits',
  summary='Handwritten digits of scikit-learn, 8 x 8, by label skew.',
  model='CNN, 2 convolutions and 2 dense layers, 13,706 weights',
  clients='20 (--digits_num_clients), Dirichlet label skew',
)
class Digits(shared.Divided):
  """Images [batch, 8, 8, 1] in [0, 1], labels 0 to 9."""

  later: ClassVar[frozenset[str]] = shared.Divided.later | {
    'partition',
    'examples_per_client',
    'smallest_client',
    'classes_per_client',
  }

  num_clients: parameters.Count = 20
  """Number of clients; by default of equal size."""

  alpha: parameters.Positive = 0.3
  """Concentration of the Dirichlet distribution over labels from which each
  client draws its own; small means few labels a client."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    train, test, split = divided(self)
    return builders.partitioned_task(
      train=train,
      test=test,
      split=split,
      options=self.values,
      batch_size=10,
      eval_batch_size=64,
      to_model=lambda batch: (batch['pixels'], batch['label']),
      build_model=_build_model,
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def divided(
  options: Digits,
) -> tuple[dict[str, Any], dict[str, Any], partition.Partition]:
  """Returns training and test examples, arrays by name, and the partition."""
  if options.data == 'synthetic':
    images, labels = synthetic.images(400, (8, 8, 1), 10, seed=options.seed)
  else:
    images, labels = load()
  train, test = _split(labels, options.seed)
  # Enough synthetic digits for all clients.
  split = splits.build(labels[train], {**options.values, 'data': 'native'})
  return (
    dict(label=labels[train], pixels=images[train]),
    dict(label=labels[test], pixels=images[test]),
    split,
  )


def load() -> tuple[np.ndarray, np.ndarray]:
  """Returns all images, [1797, 8, 8, 1] in [0, 1], and their labels.

  Raises:
    DataError: If scikit-learn, which has the file, is not installed.
  """
  path = data_files.of_sklearn('digits.csv.gz', 'digits')
  # A row is 64 pixels from 0 to 16 and a label.
  rows = np.loadtxt(path, delimiter=',', dtype=np.int32)
  images = (rows[:, :-1].reshape(-1, 8, 8, 1) / 16.0).astype(np.float32)
  return images, rows[:, -1]


def _split(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Draws indices for training and testing, stratified by label."""
  rng = np.random.default_rng([seed, 0xD161])
  train, test = [], []
  for label in np.unique(labels):
    rows = rng.permutation(np.flatnonzero(labels == label))
    cut = round(len(rows) * _TEST_SHARE)
    test.append(rows[:cut])
    train.append(rows[cut:])
  return (
    rng.permutation(np.concatenate(train)),
    rng.permutation(np.concatenate(test)),
  )


def _build_model() -> tf.keras.Model:
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer((8, 8, 1)),
      layers.Conv2D(16, 3, activation='relu', padding='same'),
      layers.MaxPool2D(),
      layers.Conv2D(32, 3, activation='relu', padding='same'),
      layers.MaxPool2D(),
      layers.Flatten(),
      layers.Dense(64, activation='relu'),
      layers.Dense(10),
    ]
  )


_WIDTHS = (64, 32, 8, 32, 64, 64)


@registry.task(
  'digits_autoencoder',
  summary='Compress handwritten digits to 8 numbers and back.',
  model='6 dense layers, 13,064 weights',
  clients='20 (--digits_autoencoder_num_clients), Dirichlet label skew',
)
class DigitsAutoencoder(Digits):
  """Images [batch, 64] in [0, 1], which are their own targets."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    train, test, split = divided(self)
    return builders.partitioned_task(
      train=train,
      test=test,
      split=split,
      options=self.values,
      batch_size=10,
      eval_batch_size=128,
      to_model=_flat,
      build_model=lambda: emnist.build_autoencoder(_WIDTHS, 'linear'),
      loss=tf.keras.losses.MeanSquaredError,
      metrics=[tf.keras.metrics.MeanSquaredError],
    )


def _flat(batch: Any) -> Any:
  pixels = tf.reshape(batch['pixels'], [-1, 64])
  return pixels, pixels
