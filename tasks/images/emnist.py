"""Tasks on EMNIST, one client per writer: Reddi et al., arXiv 2003.00295.

emnist_character    recognition of characters, Table 4
emnist_autoencoder  compression to 30 numbers, Table 3

As in TFF's files, pixels are float32 in [0, 1] on a white background of 1;
labels are 0-9 for digits, 10-35 for upper case, 36-61 for lower case.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Optional

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.lazy import builders
from tasks.lazy import client_data
from tasks.lazy import preprocessing
from tasks.lazy import sqlite_files
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

# Size of the shuffle buffer: that of the largest client in TFF's file.
LARGEST_CLIENT = 418


class Options(shared.Options):
  """Options of EMNIST tasks, with the defaults of Reddi et al."""

  only_digits: bool = False
  """Whether to use only the ten digits."""


def num_classes(only_digits: bool) -> int:
  return 10 if only_digits else 62


def create(
  options: Mapping[str, Any], *, to_model: preprocessing.MapFn, **model: Any
) -> tff.simulation.baselines.BaselineTask:
  """Creates a task with one client per writer.

  Args:
    options: The task's options.
    to_model: Maps a batch of examples to the model's input.
    **model: `build_model`, `loss` and `metrics` of `builders.task`.

  Raises:
    DataError: If emnist_all.sqlite is missing or invalid.
  """
  train, test = load(
    options['cache_dir'],
    only_digits=options['only_digits'],
    data=options['data'],
    seed=options['seed'],
  )
  return builders.task(
    train_data=train,
    test_data=test,
    train_preprocess_fn=preprocessing.build_train(
      batch_size=options['batch_size'] or 20,
      shuffle_buffer=LARGEST_CLIENT,
      epochs=options['epochs'],
      max_elements=options['max_elements'],
      map_fn=to_model,
    ),
    eval_preprocess_fn=preprocessing.build_eval(batch_size=64, map_fn=to_model),
    **model,
  )


def load(
  cache_dir: Optional[str], *, only_digits: bool, data: str, seed: int
) -> tuple[tff.simulation.datasets.ClientData, tf.data.Dataset]:
  """Loads training clients, and all test examples ordered by writer.

  Raises:
    DataError: If emnist_all.sqlite is missing or invalid.
  """
  if data == 'synthetic':
    return _synthetic(num_classes(only_digits), seed)
  prefix = 'digits_only' if only_digits else 'all'
  path = sqlite_files.find(
    cache_dir,
    'emnist_all.sqlite',
    splits=[f'{prefix}_train', f'{prefix}_test'],
    features=['pixels', 'label'],
    loader='emnist',
  )
  train, test = tff.simulation.datasets.emnist.load_data(
    only_digits=only_digits, cache_dir=str(path.parent)
  )
  train, test = (
    client_data.SqliteClientData(
      clients, path, split, num_classes=num_classes(only_digits)
    )
    for clients, split in ((train, f'{prefix}_train'), (test, f'{prefix}_test'))
  )
  return train, builders.centralized(test, seed)


def _synthetic(
  classes: int, seed: int
) -> tuple[tff.simulation.datasets.ClientData, tf.data.Dataset]:
  images, labels = synthetic.images(720, (28, 28, 1), classes, seed=seed)
  images = 1 - images[..., 0]
  split = partition.lda(labels[:600], alpha=1.0, sizes=[30] * 20, seed=seed)
  arrays = dict(label=labels[:600], pixels=images[:600])
  test = dict(label=labels[600:], pixels=images[600:])
  return (
    client_data.ArrayClientData(arrays, split),
    tf.data.Dataset.from_tensor_slices(test),
  )


@registry.task(
  'emnist_character',
  summary='Recognise handwritten characters, one client per writer.',
  model='CNN with dropout, 1,206,590 weights (62 classes)',
  clients='3,400 writers, 671,585 training examples',
  files=('emnist_all.sqlite',),
  published=registry.Published('Reddi et al., arXiv 2003.00295', 1500, 10, 20),
  small_options=dict(only_digits=True),
)
class EmnistCharacter(Options):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 61."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create(
      self.values,
      to_model=_with_channel,
      build_model=lambda: builders.build_cnn(
        num_classes(self.only_digits), (28, 28, 1)
      ),
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def _with_channel(batch: Any) -> Any:
  return tf.expand_dims(batch['pixels'], -1), batch['label']


_WIDTHS = (1000, 500, 250, 30, 250, 500, 1000, 784)
_REDUCTIONS = {
  'sum': 'sum',
  'mean': 'sum_over_batch_size',
}


@registry.task(
  'emnist_autoencoder',
  summary='Compress handwritten characters to 30 numbers and back.',
  model='8 dense layers, 2,837,314 weights',
  clients='3,400 writers, 671,585 training examples',
  files=('emnist_all.sqlite',),
  published=registry.Published('Reddi et al., arXiv 2003.00295', 3000, 10, 20),
  small_options=dict(only_digits=True),
)
class EmnistAutoencoder(Options):
  """Ink [batch, 784] in [0, 1], which is its own target."""

  bottleneck: Literal['sigmoid', 'linear'] = 'linear'
  """Activation of the layer of 30 units: 'linear' as in the released code, or
  'sigmoid' as Table 3 prints for all layers."""

  loss: Literal['sum', 'mean'] = 'sum'
  """Reduction over the batch of the squared error, which is a mean over the
  pixels: 'sum' as in the released code, which the published rates of 3 to 30
  need, or 'mean'. Metrics are means either way."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create(
      self.values,
      to_model=_ink,
      build_model=lambda: build_autoencoder(_WIDTHS, self.bottleneck),
      loss=functools.partial(
        tf.keras.losses.MeanSquaredError, reduction=_REDUCTIONS[self.loss]
      ),
      metrics=[
        tf.keras.metrics.MeanSquaredError,
        tf.keras.metrics.MeanAbsoluteError,
      ],
    )


def _ink(batch: Any) -> Any:
  # The files have a white background of 1; the model reconstructs ink.
  ink = 1 - tf.reshape(batch['pixels'], [-1, 784])
  return ink, ink


def build_autoencoder(widths: Sequence[int], bottleneck: str) -> tf.keras.Model:
  """Builds dense layers of sigmoids that end as wide as their input.

  Args:
    widths: Number of units of each layer.
    bottleneck: Activation of the narrowest layer.
  """
  model = tf.keras.Sequential([tf.keras.layers.InputLayer((widths[-1],))])
  for width in widths:
    activation = bottleneck if width == min(widths) else 'sigmoid'
    model.add(tf.keras.layers.Dense(width, activation=activation))
  return model
