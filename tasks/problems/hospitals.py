"""Breast cancer in eight hospitals, on scikit-learn's table.

569 tumors with 30 measurements (Street, Wolberg and Mangasarian, UCI 1995).
Hospitals have tumors of different sizes: they are sorted by mean radius plus
noise and divided into equal parts. A fifth of each part is for testing.
"""

from __future__ import annotations

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.formats import data_files
from tasks.lazy import builders
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_FEATURES, _HOSPITALS = 30, 8
_TEST_SHARE = 0.2


@registry.task(
  'hospitals',
  summary='Malignant or benign, 30 measurements, in hospitals that differ.',
  model='dense, one hidden layer of 16 units, 530 weights',
  clients='8, by the size of tumours',
  num_clients=8,
)
class Hospitals(shared.Options):
  """Standardized measurements [batch, 30]; labels 0 (malignant) or 1."""

  mixing: parameters.NonNegative = 3.0
  """Standard deviation in mm of the noise added to mean radii before tumours
  are sorted by them; 0 for hospitals with one size each.
  """

  def create(self) -> tff.simulation.baselines.BaselineTask:
    if self.data == 'synthetic':
      pixels, ten = synthetic.images(200, (5, 6, 1), 2, seed=self.seed)
      x, y = pixels.reshape(-1, _FEATURES), ten
    else:
      x, y = load()
    rng = np.random.default_rng([self.seed, 0x405])
    order = np.argsort(x[:, 0] + rng.normal(0, self.mixing, len(x)))
    parts = np.array_split(order, _HOSPITALS)
    held = [
      rng.permutation(part)[: max(round(_TEST_SHARE * len(part)), 1)]
      for part in parts
    ]
    test = rng.permutation(np.concatenate(held))
    train = [np.setdiff1d(part, out) for part, out in zip(parts, held)]
    rows = np.concatenate(train)
    x = (x - x[rows].mean(axis=0)) / x[rows].std(axis=0)
    x = x.astype(np.float32)
    return builders.partitioned_task(
      train=dict(x=x[rows], label=y[rows]),
      test=dict(x=x[test], label=y[test]),
      split=partition.in_order([len(part) for part in train], 'hospital'),
      options=self.values,
      batch_size=10,
      eval_batch_size=128,
      to_model=lambda batch: (batch['x'], batch['label']),
      build_model=_build_model,
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
      classes=('malignant', 'benign'),
      fitted=()
      if self.data == 'synthetic'
      else ('means and deviations of the measurements',),
    )


def load() -> tuple[np.ndarray, np.ndarray]:
  """Returns the measurements, [569, 30], and labels, int32 [569].

  Raises:
    DataError: If scikit-learn, which has the file, is not installed.
  """
  rows = np.loadtxt(
    data_files.of_sklearn('breast_cancer.csv', 'hospitals'),
    delimiter=',',
    skiprows=1,
  )
  return rows[:, :-1], rows[:, -1].astype(np.int32)


def _build_model() -> tf.keras.Model:
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((_FEATURES,)),
      tf.keras.layers.Dense(16, activation='relu'),
      tf.keras.layers.Dense(2),
    ]
  )
