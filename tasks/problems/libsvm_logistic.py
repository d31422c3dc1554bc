"""Logistic regression on LIBSVM data: Mukherjee et al., arXiv 2307.06306.

A convex problem with two classes. Of a file's two labels (-1 and 1, 0 and 1, 1
and 2) the larger is the positive class.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence
from typing import Any, Literal, Optional

import numpy as np

from tasks import registry
from tasks import shared
from tasks.formats import data_files
from tasks.lazy import builders
from tasks.partitioners import splits
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

# Number of features of each data set, and whether it has a test split.
_SETS = {
  'a9a': (123, True),
  'w8a': (300, False),
  'ijcnn1': (22, True),
  'mushrooms': (112, False),
  'phishing': (68, False),
}
_TEST_SHARE = 0.2


@registry.task(
  'libsvm_logistic',
  summary='Logistic regression on a9a, w8a, ijcnn1, mushrooms, phishing.',
  model='logistic regression, 301 weights for w8a',
  clients='100 of equal size (--libsvm_logistic_num_clients)',
  files=('libsvm/w8a',),
  published=registry.Published(
    'Mukherjee et al., arXiv 2307.06306', 500, 10, 20
  ),
)
class LibsvmLogistic(shared.Divided):
  """Features [batch, features], labels 0.0 or 1.0 [batch, 1]."""

  dataset: Literal['a9a', 'w8a', 'ijcnn1', 'mushrooms', 'phishing'] = 'w8a'
  """Which one."""

  partition: shared.Rule = 'iid'

  num_clients: parameters.Count = 100

  classes_per_client: parameters.Count = 1

  l2: parameters.NonNegative = 0.0
  """Weight of the squared norm of the coefficients in the training loss."""

  def check_data(self, files: Sequence[str]) -> Optional[int]:
    return super().check_data([f'libsvm/{self.dataset}'])

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    num_features, has_test = _SETS[self.dataset]
    if self.data == 'synthetic':
      features, labels = _synthetic(num_features, self.seed)
      has_test = False
    else:
      folder = data_files.cache_folder(self.cache_dir) / 'libsvm'
      get = f'Put {self.dataset} of the LIBSVM data collection into {folder}.'
      features, labels = read(
        folder / self.dataset, num_features=num_features, get=get
      )
      if has_test:
        test = read(
          folder / f'{self.dataset}.t', num_features=num_features, get=get
        )
    order = np.random.default_rng([self.seed, 0x115B]).permutation(len(labels))
    if not has_test:
      cut = round(len(order) * _TEST_SHARE)
      test = features[order[:cut]], labels[order[:cut]]
      order = order[cut:]
    features, labels = features[order], labels[order]
    return builders.partitioned_task(
      train=dict(features=features, label=labels),
      test=dict(features=test[0], label=test[1]),
      split=splits.build(labels.astype(np.int64), options),
      options=options,
      batch_size=20,
      eval_batch_size=1000,
      to_model=_to_model,
      build_model=lambda: _build_model(num_features, self.l2),
      # From logits: from probabilities the loss could not fall below 1e-7, and
      # Polyak steps depend on small values.
      loss=functools.partial(
        tf.keras.losses.BinaryCrossentropy, from_logits=True
      ),
      metrics=[
        functools.partial(
          tf.keras.metrics.BinaryAccuracy,
          name='binary_accuracy',
          threshold=0.0,
        )
      ],
    )


def _synthetic(num_features: int, seed: int) -> Any:
  """Generates sparse features like the real ones, with 10 % label noise."""
  rng = np.random.default_rng([seed, 0x51B5])
  features = (rng.random([500, num_features]) < 0.15).astype(np.float32)
  score = features @ rng.normal(size=num_features)
  labels = score > np.median(score)
  return features, (labels ^ (rng.random(500) < 0.1)).astype(np.float32)


def _to_model(batch: Any) -> Any:
  return batch['features'], tf.expand_dims(batch['label'], -1)


def _build_model(num_features: int, l2: float) -> tf.keras.Model:
  regularizer = tf.keras.regularizers.L2(l2) if l2 else None
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((num_features,)),
      tf.keras.layers.Dense(
        1,
        kernel_initializer='zeros',
        kernel_regularizer=regularizer,
      ),
    ]
  )


def read(
  path: pathlib.Path, *, num_features: int, get: str
) -> tuple[np.ndarray, np.ndarray]:
  """Reads a file of two classes.

  Args:
    path: The file: lines `label index:value ...`, indices from 1, ascending.
    num_features: Number of features; the largest valid index.
    get: Advice for the error message how to get the file.

  Returns:
    Features float32 [examples, num_features], and labels float32 [examples]: 1
    for the larger of the file's two labels, 0 for the smaller.

  Raises:
    DataError: If the file is missing, has a line of another form, or does not
      have exactly two labels.
  """
  # It takes a second to import.
  from sklearn import datasets  # pylint: disable=g-import-not-at-top

  what = (
    'file of a label and pairs index:value a line, with ascending indices from '
    f'1 to {num_features}'
  )
  with data_files.reading(path, what, get), open(path, 'rb') as file:
    sparse, labels = datasets.load_svmlight_file(
      file, n_features=num_features, dtype=np.float32, zero_based=False
    )
  kinds = np.unique(labels)
  if len(kinds) != 2 or not np.isfinite(kinds).all():
    found = ', '.join(f'{kind:g}' for kind in kinds[:5])
    raise data_files.DataError(
      f'{path} must have two different labels, got {len(kinds)}: {found}. {get}'
    )
  features = sparse.toarray()
  if not np.isfinite(features).all():
    raise data_files.DataError(f'{path} has a value that is not finite. {get}')
  return features, (labels == kinds[1]).astype(np.float32)
