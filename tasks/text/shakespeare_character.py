"""Next-character prediction on Shakespeare: arXiv 2003.00295, Table 5.

As in Reddi et al. A client is a speaking role of a play, whose speeches are
split into sequences of 80 characters; the model predicts each shifted by one.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.lazy import builders
from tasks.lazy import client_data
from tasks.lazy import lstm
from tasks.lazy import preprocessing
from tasks.lazy import sqlite_files
from tasks.lazy import text as text_models
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

# The 86 characters in the order of TFF's baseline, so that trained models are
# interchangeable.
CHARACTERS = (
  'dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#\'/37;?bfjnrvzBFJNRVZ"&*.26:\n'
  'aeimquyAEIMQUY]!%)-159\r'
)
# Token 0 is padding, 1 to 86 are characters.
UNKNOWN, BEGIN, END = 87, 88, 89
NUM_TOKENS = 90

# Size of the shuffle buffer in speeches.
_BUFFER = 50


@registry.task(
  'shakespeare_character',
  summary='Predict the next character of a role in Shakespeare.',
  model='2 LSTM layers, 820,522 weights',
  clients='715 roles, 16,068 speeches',
  files=('shakespeare.sqlite',),
  published=registry.Published('Reddi et al., arXiv 2003.00295', 1500, 10, 4),
  small_options=dict(sequence_length=10),
)
class ShakespeareCharacter(shared.Options):
  """Tokens int64 [batch, length], targets likewise."""

  sequence_length: parameters.Count = 80
  """Sequence length in characters."""

  padding: Literal['ignored', 'counted'] = 'ignored'
  """Whether the loss has padding 'ignored', or 'counted' as a token like
  others, as the released code of FedOpt does on clients. Metrics ignore it
  either way."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    train, test = _load(self.cache_dir, self.data, self.seed)
    to_sequences = _build_to_sequences(self.sequence_length)

    def train_pipeline(dataset: tf.data.Dataset, seed: Any) -> Any:
      dataset = preprocessing.shuffle_repeat(
        dataset, buffer_size=_BUFFER, epochs=self.epochs, seed=seed
      )
      if self.max_elements is not None:
        dataset = dataset.take(self.max_elements)
      dataset = dataset.map(to_sequences).unbatch()
      return dataset.batch(self.batch_size or 4).map(_shift)

    def eval_pipeline(dataset: tf.data.Dataset) -> Any:
      return dataset.map(to_sequences).unbatch().batch(32).map(_shift)

    return builders.task(
      train_data=train,
      test_data=test,
      train_preprocess_fn=preprocessing.seedable(
        train_pipeline,
        preprocessing.Recipe(
          batch_size=self.batch_size or 4,
          epochs=self.epochs,
          max_elements=self.max_elements,
          prepare_fn=functools.partial(
            _all_sequences, length=self.sequence_length
          ),
          many_rows=True,
          map_fn=_shift,
        ),
      ),
      eval_preprocess_fn=eval_pipeline,
      build_model=lambda: _build_model(self.sequence_length),
      loss=text_models.loss(self.padding),
      metrics=[text_models.NumTokens, text_models.TokenAccuracy],
    )


def _load(cache_dir: str | None, data: Any, seed: int) -> Any:
  if data == 'synthetic':
    return _synthetic(seed)
  path = sqlite_files.find(
    cache_dir,
    'shakespeare.sqlite',
    splits=['train', 'test'],
    features=['snippets'],
    loader='shakespeare',
  )
  train, test = tff.simulation.datasets.shakespeare.load_data(
    cache_dir=str(path.parent)
  )
  return (
    client_data.SqliteClientData(train, path, 'train'),
    builders.centralized(test, seed),
  )


def _synthetic(seed: int) -> Any:
  texts = synthetic.sentences(
    66, vocabulary=synthetic.words(30, seed=seed), seed=seed
  )
  lines = np.array([text.encode() for text in texts], object)
  split = partition.iid(60, sizes=[6] * 10, seed=seed)
  return (
    client_data.ArrayClientData(dict(snippets=lines[:60]), split),
    tf.data.Dataset.from_tensor_slices(dict(snippets=lines[60:])),
  )


def _tokens_of_bytes() -> np.ndarray:
  """Returns a table of each byte's token, int64 [256]."""
  tokens = np.full(256, UNKNOWN, np.int64)
  tokens[[ord(c) for c in CHARACTERS]] = 1 + np.arange(len(CHARACTERS))
  return tokens


def _all_sequences(examples: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
  """Splits speeches into rows of `length` + 1 tokens; also returns counts."""
  token_of_byte = _tokens_of_bytes()
  rows, counts = [], []
  for text in np.asarray(examples['snippets']):
    tokens = token_of_byte[np.frombuffer(text, np.uint8)]
    count = -(-(len(tokens) + 2) // (length + 1))
    padded = np.zeros([count * (length + 1)], np.int64)
    padded[0], padded[len(tokens) + 1] = BEGIN, END
    padded[1 : len(tokens) + 1] = tokens
    rows.append(padded.reshape(count, length + 1))
    counts.append(count)
  empty = np.zeros([0, length + 1], np.int64)
  return np.concatenate([empty, *rows]), np.array(counts, np.int64)


def _build_to_sequences(length: int) -> Any:
  """Builds the map from a speech to rows of `length` + 1 tokens, padded."""
  token_of_byte = _tokens_of_bytes()

  def to_sequences(example: Any) -> Any:
    text = tf.io.decode_raw(example['snippets'], tf.uint8)
    tokens = tf.gather(token_of_byte, tf.cast(text, tf.int32))
    begin, end = tf.constant([BEGIN], tf.int64), tf.constant([END], tf.int64)
    tokens = tf.concat([begin, tokens, end], 0)
    missing = -tf.shape(tokens)[0] % (length + 1)
    return tf.reshape(tf.pad(tokens, [[0, missing]]), [-1, length + 1])

  return to_sequences


def _shift(tokens: tf.Tensor) -> Any:
  return tokens[:, :-1], tokens[:, 1:]


def _build_model(sequence_length: int) -> tf.keras.Model:
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer((sequence_length,), dtype=tf.int64),
      layers.Embedding(NUM_TOKENS, 8),
      lstm.build(256, kernel_initializer='he_normal'),
      lstm.build(256, kernel_initializer='he_normal'),
      layers.Dense(NUM_TOKENS),
    ]
  )
