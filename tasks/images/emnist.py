"""Shared parts of the EMNIST tasks: options, data and synthetic data.

As in TFF's files, pixels are float32 in [0, 1] on a white background of 1;
labels are 0-9 for digits, 10-35 for upper case, 36-61 for lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Optional

from tasks import partition
from tasks import shared
from tasks import synthetic
from tasks.lazy import assembly
from tasks.lazy import client_data
from tasks.lazy import preprocessing
from tasks.lazy import sqlite_files
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

# Size of the shuffle buffer: that of the largest client in TFF's file.
LARGEST_CLIENT = 418


class Options(shared.Options):
  """Options of EMNIST tasks, with the defaults of Reddi et al."""

  only_digits: bool = False
  """Whether to use only the ten digits."""

  cache_dir: Optional[str] = None
  """Folder with emnist_all.sqlite; by default ~/.tff."""

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 20."""

  seed: parameters.NonNegativeInt = 0
  """Seed for the order of test examples and for synthetic data."""


def num_classes(only_digits: bool) -> int:
  return 10 if only_digits else 62


def create(
  options: Mapping[str, Any], *, to_model: preprocessing.MapFn, **model: Any
) -> tff.simulation.baselines.BaselineTask:
  """Creates a task with one client per writer.

  Args:
    options: The task's options.
    to_model: Maps a batch of examples to the model's input.
    **model: `build_model`, `loss` and `metrics` of `assembly.task`.

  Raises:
    DataError: If emnist_all.sqlite is missing or invalid.
  """
  train, test = load(
    options['cache_dir'],
    only_digits=options['only_digits'],
    data=options['data'],
    seed=options['seed'],
  )
  return assembly.task(
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
  return train, assembly.centralized(test, seed)


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
