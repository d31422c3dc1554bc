"""Shared parts of the Stack Overflow tasks: users and vocabularies.

A client is a user, an example a sentence of one of the user's posts.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np

from tasks import partition
from tasks import synthetic
from tasks.formats import data_errors
from tasks.lazy import assembly
from tasks.lazy import client_data
from tasks.lazy import preprocessing
from tasks.lazy import sqlite_files
from tasks.lazy import vocabulary
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

DATABASE = 'stackoverflow.sqlite'
# The paper's maximum number of sentences of a user (next-word task only), and
# size of the validation set.
MOST_SENTENCES = 1000
VALIDATION_SENTENCES = 10_000
# Size of the shuffle buffer: the maximum number of a user's sentences.
BUFFER = 1000
_LARGEST_BUFFER = 10_000

_FEATURES = ('creation_date', 'score', 'tags', 'title', 'tokens', 'type')


def find(cache_dir: Optional[str]) -> pathlib.Path:
  """Returns the path of the database after checking it.

  Raises:
    DataError: If it is missing or invalid.
  """
  return sqlite_files.find(
    cache_dir,
    DATABASE,
    splits=['train', 'test'],
    features=_FEATURES,
    loader='stackoverflow',
  )


def load(
  path: pathlib.Path, seed: int, num_users: Optional[int] = None
) -> tuple[tff.simulation.datasets.ClientData, tf.data.Dataset]:
  """Loads training clients, and test sentences ordered by user.

  Args:
    path: Path of the database.
    seed: Seed of the order of test users and of the choice of training users.
    num_users: Number of training users to draw; None for all.

  Raises:
    PartitionError: If there are fewer users.
  """
  train, _, test = tff.simulation.datasets.stackoverflow.load_data(
    cache_dir=str(path.parent)
  )
  ids = train.client_ids
  if num_users is not None:
    if num_users > len(ids):
      raise data_errors.PartitionError(
        f'`num_users` must be at most {len(ids)}, the training users of '
        f'{path}, got {num_users}.'
      )
    rng = np.random.default_rng([seed, 0x05E4])
    ids = [ids[i] for i in sorted(rng.permutation(len(ids))[:num_users])]
  return (
    client_data.SqliteClientData(train, path, 'train', client_ids=ids),
    assembly.centralized(test, seed),
  )


def most_frequent(
  kind: str,
  size: int,
  *,
  file: Optional[str],
  option: str,
  path: pathlib.Path,
  cache_dir: Optional[str],
) -> list[str]:
  """Returns the words or tags used by most users, most frequent first.

  Args:
    kind: 'word' or 'tag'.
    size: Number of words or tags.
    file: The user's file of counts, or None.
    option: Name of the user's option for `size`.
    path: Path of the database.
    cache_dir: Folder to search for a file of counts.

  Raises:
    DataError: As in `vocabulary.load`.
  """
  feature, separator = {'word': ('tokens', ' '), 'tag': ('tags', '|')}[kind]
  return vocabulary.load(
    path=file,
    cache_dir=cache_dir,
    name=f'stackoverflow.{kind}_count',
    size=size,
    option=option,
    database=path,
    split='train',
    words_of=_reader(feature, separator),
  )


def synthetic_names(prefix: str, size: int) -> list[str]:
  return [f'{prefix}{i}' for i in range(size)]


def load_synthetic(
  num_words: int, num_tags: int, seed: int
) -> tuple[tff.simulation.datasets.ClientData, tf.data.Dataset]:
  """Generates twenty users with a vocabulary of 60 words and 8 tags.

  A sentence's first words determine its tags, so that they can be learned.
  """
  used = synthetic_names('word', min(num_words, 60))
  tokens = synthetic.sentences(420, vocabulary=used, seed=seed)
  index = {word: i for i, word in enumerate(used)}
  topics = min(num_tags, 8)
  marks = [
    '|'.join(sorted({f'tag{index[w] % topics}' for w in line.split()[:2]}))
    for line in tokens
  ]
  titles = [' '.join(line.split()[:2]) for line in tokens]
  arrays = {
    name: np.array([text.encode() for text in texts], object)
    for name, texts in (
      ('creation_date', ['2014-01-01'] * 420),
      ('tags', marks),
      ('title', titles),
      ('tokens', tokens),
      ('type', ['question'] * 420),
    )
  }
  arrays['score'] = np.zeros(420, np.int64)
  arrays = {name: arrays[name] for name in _FEATURES}
  split = partition.iid(320, sizes=[16] * 20, seed=seed)
  return (
    client_data.ArrayClientData(
      {name: array[:320] for name, array in arrays.items()}, split
    ),
    tf.data.Dataset.from_tensor_slices(
      {name: array[320:] for name, array in arrays.items()}
    ),
  )


def build_train(
  *,
  subset: str,
  batch_size: int,
  epochs: int,
  max_elements: Optional[int],
  to_model: preprocessing.MapFn,
  features: Sequence[str],
  prepare_fn: preprocessing.MapFn,
  map_fn: Optional[preprocessing.MapFn] = None,
  ragged: bool = False,
) -> Callable[..., tf.data.Dataset]:
  """Builds training preprocessing, with either sense of "at most 1,000".

  Args:
    subset: 'first' for a user's first sentences in every round, as in the paper
      and its code; 'shuffled' for a random subset in each round, as in TFF's
      baseline.
    batch_size: Number of sentences in a batch.
    epochs: Number of passes in a round. With 'first' each pass has
      `max_elements` sentences; with 'shuffled' this limits the sum over passes.
    max_elements: Maximum number of sentences; None for no limit.
    to_model: Maps a batch of examples to the model's input.
    features: Names of the features that this takes, all strings.
    prepare_fn, map_fn, ragged: The same in two steps, see
      `preprocessing.Recipe`.
  """
  first = subset == 'first'

  def pipeline(dataset: tf.data.Dataset, seed: Any) -> Any:
    if first and max_elements is not None:
      dataset = dataset.take(max_elements)
    dataset = preprocessing.shuffle_repeat(
      dataset,
      buffer_size=_buffer(max_elements) if first else BUFFER,
      epochs=epochs,
      seed=seed,
    )
    if not first and max_elements is not None:
      dataset = dataset.take(max_elements)
    return dataset.batch(batch_size).map(to_model)

  recipe = preprocessing.Recipe(
    batch_size=batch_size,
    epochs=epochs,
    first=max_elements if first else None,
    max_elements=None if first else max_elements,
    prepare_fn=_compiled(prepare_fn, features),
    map_fn=map_fn,
    ragged=ragged,
  )
  return preprocessing.seedable(pipeline, recipe)


def _compiled(
  prepare_fn: preprocessing.MapFn, features: Sequence[str]
) -> preprocessing.MapFn:
  """Compiles a function of a user's stacked sentences.

  Its operations one by one take longer than reading the sentences.
  """
  spec = {name: tf.TensorSpec([None], tf.string) for name in features}
  compiled = preprocessing.traced_on_host(prepare_fn, [spec])
  return lambda examples: compiled({name: examples[name] for name in features})


def _buffer(max_elements: Optional[int]) -> int:
  """Returns the size of the shuffle buffer."""
  return min(max_elements or _LARGEST_BUFFER, _LARGEST_BUFFER)


def _reader(feature: str, separator: str) -> Callable[[bytes], Iterable[str]]:
  def words_of(serialized: bytes) -> Iterable[str]:
    example = tf.train.Example.FromString(serialized)
    text = example.features.feature[feature].bytes_list.value[0].decode()
    return filter(None, text.split(separator))

  return words_of
