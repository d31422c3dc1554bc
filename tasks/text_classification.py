"""What the text classification tasks share: files, tokens and clients.

Kim et al., arXiv 2306.11201, Section 4: 60 clients of 500 texts by Dirichlet
label skew, batches of 16, DistilBERT.
"""

import csv
import functools
import pathlib
import sys
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tasks import assembly
from tasks import client_data
from tasks import distilbert
from tasks import errors
from tasks import preprocessing
from tasks import splits
from tasks import sqlite_files
from tasks import synthetic
from tasks import wordpiece

_EXAMPLES_PER_CLIENT = 500


def create(
  *,
  folder: str,
  num_classes: int,
  partition: str,
  num_clients: int,
  examples_per_client: Optional[int],
  smallest_client: Optional[int],
  alpha: float,
  classes_per_client: int,
  max_length: int,
  vocab_size: int,
  blocks: int,
  width: int,
  weights_dir: Optional[str],
  cache_dir: Optional[str],
  data: str,
  epochs: int,
  batch_size: Optional[int],
  max_elements: Optional[int],
  seed: int,
) -> tff.simulation.baselines.BaselineTask:
  """A task on train.csv and test.csv in a folder; see the tasks' own pages.

  Raises:
    DataError: If a file is missing or not what it should be.
    PartitionError: If the examples cannot be partitioned so.
    ValueError: If `width` is no multiple of 64, the width of an attention head.
  """
  if width % 64:
    raise ValueError(
      f'`width` must be a multiple of 64, the width of an attention head, got '
      f'{width}.'
    )
  if data == 'synthetic':
    texts, labels, test_texts, test_labels = _synthetic(num_classes, seed)
  else:
    place = sqlite_files.cache_folder(cache_dir) / folder
    get = f'Put train.csv and test.csv of the data set into {place}.'
    texts, labels = read_csv(place / 'train.csv', num_classes, get)
    test_texts, test_labels = read_csv(place / 'test.csv', num_classes, get)
  if weights_dir is None:
    logging.info('No weights_dir was given: the model is trained from scratch.')
    vocabulary = wordpiece.count_vocabulary(texts, vocab_size)
  else:
    vocabulary = wordpiece.read_vocabulary(
      pathlib.Path(weights_dir) / 'vocab.txt'
    )
    vocab_size = len(vocabulary)
  tokenizer = wordpiece.Tokenizer(vocabulary)
  order = np.random.default_rng([seed, 0x7E87]).permutation(len(test_labels))
  arrays = dict(label=labels, tokens=tokenizer(texts, max_length))
  test = dict(label=test_labels, tokens=tokenizer(test_texts, max_length))
  if examples_per_client is None and partition != 'classes':
    examples_per_client = min(
      _EXAMPLES_PER_CLIENT, max(len(labels) // num_clients, 1)
    )
  split = splits.build(
    partition,
    labels,
    num_clients=num_clients,
    examples_per_client=examples_per_client,
    smallest_client=smallest_client,
    alpha=alpha,
    classes_per_client=classes_per_client,
    seed=seed,
    stand_in=data == 'synthetic',
  )
  size = distilbert.Size(blocks, width, width // 64, 4 * width)
  return assembly.task(
    train_data=client_data.ArrayClientData(arrays, split),
    test_data=tf.data.Dataset.from_tensor_slices(
      {name: array[order] for name, array in test.items()}
    ),
    train_preprocess_fn=preprocessing.build_train(
      batch_size=batch_size or 16,
      shuffle_buffer=int(split.sizes.max()),
      epochs=epochs,
      max_elements=max_elements,
      map_fn=_to_model,
    ),
    eval_preprocess_fn=preprocessing.build_eval(
      batch_size=64, map_fn=_to_model
    ),
    build_model=lambda: distilbert.build(
      num_classes=num_classes,
      vocab_size=vocab_size,
      max_length=max_length,
      size=size,
      weights_dir=weights_dir,
    ),
    loss=functools.partial(
      tf.keras.losses.SparseCategoricalCrossentropy, from_logits=True
    ),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
  )


def read_csv(
  path: pathlib.Path, num_classes: int, get: str
) -> tuple[list[str], np.ndarray]:
  """Texts, and labels int32 from 0.

  A row is a label from 1 and one or more texts (a title and a body, say), which
  are joined. A header is left out.

  Raises:
    DataError: If the file is missing or empty, or a row has another form or a
      label out of range; naming the line.
  """
  texts, labels = [], []
  csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
  try:
    with open(path, newline='', encoding='utf-8') as file:
      reader = csv.reader(file, strict=True)
      for number, row in enumerate(reader):
        if number == 0 and row and not row[0].strip().isdigit():
          continue
        if not row:
          continue
        if len(row) < 2 or not row[0].strip().isdigit():
          raise errors.DataError(
            f'{path}, line {reader.line_num}: a label and a text were '
            f'expected, got {",".join(row)[:60]!r}. {get}'
          )
        label = int(row[0])
        if not 1 <= label <= num_classes:
          raise errors.DataError(
            f'{path}, line {reader.line_num}: a label from 1 to {num_classes}'
            f' was expected, got {label}. {get}'
          )
        labels.append(label - 1)
        texts.append(' '.join(part.replace('\\', ' ') for part in row[1:]))
  except FileNotFoundError as e:
    raise errors.DataError(f'There is no file {path}. {get}') from e
  except UnicodeDecodeError as e:
    raise errors.DataError(f'{path} is no UTF-8 text. {get}') from e
  except csv.Error as e:
    raise errors.DataError(
      f'{path} is no whole CSV file, at line {reader.line_num}: {e}. {get}'
    ) from e
  if not labels:
    raise errors.DataError(f'{path} is empty. {get}')
  return texts, np.array(labels, np.int32)


def _synthetic(num_classes, seed):
  """Each class has words of its own among common ones."""
  rng = np.random.default_rng([seed, 0x7E87])
  vocabulary = synthetic.words(50 + 10 * num_classes, seed=seed)
  labels = rng.permutation(np.arange(500) % num_classes).astype(np.int32)
  texts = []
  for label in labels:
    own = vocabulary[50 + 10 * label : 60 + 10 * label]
    common = vocabulary[:50]
    texts.append(
      ' '.join([*rng.choice(own, 6), *rng.choice(common, rng.integers(4, 20))])
    )
  return texts[:400], labels[:400], texts[400:], labels[400:]


def _to_model(batch):
  return batch['tokens'], batch['label']
