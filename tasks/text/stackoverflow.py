"""Tasks on Stack Overflow: Reddi et al., arXiv 2003.00295, Section C.4.

stackoverflow_word  prediction of the next word by an LSTM. A sentence is cut or
                    padded to 20 words. Tokens: 0 padding, 1 to V the
                    vocabulary, V + 1 any other word, V + 2 begin, V + 3 end of
                    the sentence (if shorter than 20 words).
stackoverflow_tag   one-vs-rest logistic regression from the words of a sentence
                    and of its post's title to the post's tags. Lee et al.
                    (FedAda2, arXiv 2410.18117) predict a single tag by softmax.

A client is a user, an example a sentence of one of the user's posts.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Optional

import numpy as np
from absl import logging

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.formats import data_files
from tasks.lazy import builders
from tasks.lazy import client_data
from tasks.lazy import lstm
from tasks.lazy import preprocessing
from tasks.lazy import sqlite_files
from tasks.lazy import text as text_models
from tff_adaptive import parameters
from tff_adaptive.lazy import pandas
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
      raise data_files.PartitionError(
        f'`num_users` must be at most {len(ids)}, the training users of '
        f'{path}, got {num_users}.'
      )
    rng = np.random.default_rng([seed, 0x05E4])
    ids = [ids[i] for i in sorted(rng.permutation(len(ids))[:num_users])]
  return (
    client_data.SqliteClientData(train, path, 'train', client_ids=ids),
    builders.centralized(test, seed),
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
    DataError: As in `load_vocabulary`.
  """
  feature, separator = {'word': ('tokens', ' '), 'tag': ('tags', '|')}[kind]
  return load_vocabulary(
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
  features: Sequence[str],
  prepare_fn: preprocessing.MapFn,
  **maps: Any,
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
    features: Names of the features that this takes, all strings.
    prepare_fn: Maps a batch of examples to the model's input, or to rows.
    **maps: `map_fn` and `ragged` of `preprocessing.Recipe`.
  """
  first = subset == 'first'
  most = min(max_elements or _LARGEST_BUFFER, _LARGEST_BUFFER)
  return preprocessing.build_train(
    batch_size=batch_size,
    shuffle_buffer=most if first else BUFFER,
    epochs=epochs,
    first=max_elements if first else None,
    max_elements=None if first else max_elements,
    prepare_fn=_compiled(prepare_fn, features),
    **maps,
  )


def _compiled(
  prepare_fn: preprocessing.MapFn, features: Sequence[str]
) -> preprocessing.MapFn:
  """Compiles a function of a user's stacked sentences.

  Its operations one by one take longer than reading the sentences.
  """
  spec = {name: tf.TensorSpec([None], tf.string) for name in features}
  compiled = preprocessing.traced_on_host(prepare_fn, [spec])
  return lambda examples: compiled({name: examples[name] for name in features})


def _reader(feature: str, separator: str) -> Callable[[bytes], Iterable[str]]:
  def words_of(serialized: bytes) -> Iterable[str]:
    example = tf.train.Example.FromString(serialized)
    text = example.features.feature[feature].bytes_list.value[0].decode()
    return filter(None, text.split(separator))

  return words_of


@registry.task(
  'stackoverflow_word',
  summary='Predict the next word of a sentence on Stack Overflow.',
  model='LSTM, 4,050,748 weights',
  clients='342,477 users, 135,818,730 sentences',
  files=('stackoverflow.sqlite',),
  published=registry.Published('Reddi et al., arXiv 2003.00295', 1500, 50, 16),
  small_options=dict(vocab_size=60, sequence_length=6),
)
class StackoverflowWord(shared.Options):
  """Tokens int64 [batch, 20], targets likewise."""

  vocab_size: parameters.Count = 10_000
  """Vocabulary size, in most frequent words."""

  sequence_length: parameters.Count = 20
  """Number of words used of each sentence."""

  count_file: Optional[str] = None
  """File of lines with a word and its count; by default
  stackoverflow.word_count in `cache_dir` or its folder datasets. If that does
  not exist, words are counted in the training data and the counts saved.
  """

  subset: Literal['first', 'shuffled'] = 'first'
  """Which sentences of a user with too many: the 'first', always the same (the
  paper), or 'shuffled', others in every round (TFF's baseline)."""

  padding: Literal['ignored', 'counted'] = 'ignored'
  """Whether the loss has padding 'ignored', or 'counted' as a token like
  others, as the released code of FedOpt does on clients. Metrics ignore it
  either way."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    if self.data == 'synthetic':
      words = synthetic_names('word', self.vocab_size)
      train, test = load_synthetic(self.vocab_size, 8, self.seed)
    else:
      path = find(self.cache_dir)
      words = most_frequent(
        'word',
        self.vocab_size,
        file=self.count_file,
        option='vocab_size',
        path=path,
        cache_dir=self.cache_dir,
      )
      train, test = load(path, self.seed)
    to_model = _build_to_tokens(words, self.sequence_length)
    unknown, end = self.vocab_size + 1, self.vocab_size + 3
    return builders.task(
      train_data=train,
      test_data=test,
      validation_data=test.take(VALIDATION_SENTENCES),
      train_preprocess_fn=build_train(
        subset=self.subset,
        batch_size=self.batch_size or 16,
        epochs=self.epochs,
        max_elements=self.max_elements or MOST_SENTENCES,
        features=['tokens'],
        prepare_fn=to_model,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=64, map_fn=to_model
      ),
      build_model=lambda: _build_model(
        self.vocab_size + 4, self.sequence_length
      ),
      loss=text_models.loss(self.padding),
      metrics=[
        # The paper's metric first: words of the vocabulary only.
        functools.partial(
          text_models.TokenAccuracy,
          left_out=[unknown, end],
          name='accuracy_without_special_tokens',
        ),
        functools.partial(
          text_models.TokenAccuracy,
          left_out=[unknown],
          name='accuracy_without_unknown_words',
        ),
        text_models.TokenAccuracy,
        text_models.NumTokens,
      ],
    )


def _build_to_tokens(words: list[str], length: int) -> Any:
  word_ids = WordIds(words)
  begin, end = len(words) + 2, len(words) + 3

  def to_model(batch: Any) -> Any:
    split = tf.strings.split(batch['tokens'], ' ')[:, :length]
    ids = split.with_flat_values(word_ids(split.flat_values) + 1)
    count = ids.row_lengths()
    tokens = ids.to_tensor(text_models.PADDING, shape=[None, length])
    # Out of range, so that truncated sentences get no end token.
    targets = tokens + end * tf.one_hot(count, length, dtype=tf.int64)
    first = tf.fill([tf.shape(tokens)[0], 1], tf.constant(begin, tf.int64))
    return tf.concat([first, targets[:, :-1]], axis=1), targets

  return to_model


def _build_model(num_tokens: int, sequence_length: int) -> tf.keras.Model:
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer((sequence_length,), dtype=tf.int64),
      layers.Embedding(num_tokens, 96),
      lstm.build(670),
      layers.Dense(96),
      layers.Dense(num_tokens),
    ]
  )


@registry.task(
  'stackoverflow_tag',
  summary='Predict the tags of a post on Stack Overflow.',
  model='logistic regression, 5,000,500 weights',
  clients='342,477 users, 135,818,730 sentences',
  files=('stackoverflow.sqlite',),
  published=registry.Published('Reddi et al., arXiv 2003.00295', 1500, 10, 100),
  small_options=dict(vocab_size=60, num_tags=8),
)
class StackoverflowTag(shared.Options):
  """Word frequencies [batch, 10000], tags 0 or 1 [batch, 500].

  The loss is the mean over tags and the *sum* over the batch, as in the paper's
  code, which is why its best client learning rate is 100. With
  `labels='single'` tags are int64 [batch], and the loss is a mean.
  """

  vocab_size: parameters.Count = 10_000
  """Vocabulary size, in most frequent words."""

  num_tags: parameters.Count = 500
  """Number of tags to predict, the most frequent ones."""

  count_file: Optional[str] = None
  """JSON file with the count of every tag; by default stackoverflow.tag_count
  in `cache_dir` or its folder datasets. If that does not exist, tags are
  counted in the training data and the counts saved.
  """

  word_count_file: Optional[str] = None
  """The same for words, stackoverflow.word_count, with lines of a word and its
  count."""

  labels: Literal['multiple', 'single'] = 'multiple'
  """'multiple' for every tag of a post, each a sigmoid of its own, and recall
  at 5; 'single' for the first of its tags that is among `num_tags`, under a
  softmax, and accuracy. A sentence with none of them then counts in neither
  loss nor accuracy. The code of Lee et al. has a single tag in prepared files
  and does not say which."""

  num_users: Optional[parameters.Count] = None
  """Number of training users to sample by `seed`; by default all. Lee et al.
  (FedAda2, arXiv 2410.18117) have 400.
  """

  subset: Literal['first', 'shuffled'] = 'first'
  """Which sentences of a user with more than `max_elements`: the 'first',
  always the same, or 'shuffled', others in every round (TFF's baseline)."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    if self.data == 'synthetic':
      words = synthetic_names('word', self.vocab_size)
      tags = synthetic_names('tag', self.num_tags)
      train, test = load_synthetic(self.vocab_size, self.num_tags, self.seed)
    else:
      path = find(self.cache_dir)
      place: dict[str, Any] = dict(path=path, cache_dir=self.cache_dir)
      words = most_frequent(
        'word',
        self.vocab_size,
        file=self.word_count_file,
        option='vocab_size',
        **place,
      )
      tags = most_frequent(
        'tag', self.num_tags, file=self.count_file, option='num_tags', **place
      )
      train, test = load(path, self.seed, self.num_users)
    to_model = _build_to_labels(words, tags, self.labels)
    return builders.task(
      train_data=train,
      test_data=test,
      validation_data=test.take(VALIDATION_SENTENCES),
      train_preprocess_fn=build_train(
        subset=self.subset,
        batch_size=self.batch_size or 100,
        epochs=self.epochs,
        max_elements=self.max_elements,
        features=['tokens', 'title', 'tags'],
        prepare_fn=_build_to_ids(words, tags),
        map_fn=_build_to_shares(words, tags, self.labels),
        ragged=True,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=100, map_fn=to_model
      ),
      build_model=lambda: build_model(self.vocab_size, self.num_tags),
      loss=functools.partial(
        tf.keras.losses.BinaryCrossentropy,
        from_logits=True,
        reduction=tf.keras.losses.Reduction.SUM,
      )
      if self.labels == 'multiple'
      else text_models.SingleTagLoss,
      metrics=[
        functools.partial(text_models.Recall, top_k=5, name='recall_at_5'),
        functools.partial(text_models.Precision, name='precision'),
      ]
      if self.labels == 'multiple'
      else [text_models.SingleTagAccuracy],
    )


def build_model(num_words: int, num_tags: int) -> tf.keras.Model:
  """Builds a dense layer to logits; 5,000,500 weights at the defaults.

  Loss and metrics apply the sigmoids or the softmax. At the paper's rates
  logits reach -100 in a step, where a sigmoid in the model, which TFF calls
  separately from the loss, would have a zero gradient.
  """
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((num_words,)),
      text_models.BagOfWordsDense(num_tags, name='dense'),
    ]
  )


def _build_to_labels(
  words: list[str], tags: list[str], labels: str = 'multiple'
) -> Any:
  """Builds the map from sentences to word frequencies and tags, in one step."""
  to_ids = _build_to_ids(words, tags)
  to_shares = _build_to_shares(words, tags, labels)
  return lambda batch: to_shares(to_ids(batch))


def _build_to_ids(words: list[str], tags: list[str]) -> Any:
  """Builds the map from sentences to ids of their words and tags.

  Rows are int32 [batch, max words] and [batch, max tags] without unknown ones,
  padded with the size of the vocabulary.
  """
  word_ids, tag_ids = WordIds(words), WordIds(tags)

  def to_ids(batch: Any) -> Any:
    text = tf.strings.join([batch['tokens'], batch['title']], separator=' ')
    return dict(
      words=_known_ids(text, '', word_ids, len(words)),
      tags=_known_ids(batch['tags'], '|', tag_ids, len(tags)),
    )

  return to_ids


def _known_ids(
  texts: tf.Tensor, separator: str, ids: Any, size: int
) -> tf.Tensor:
  """Returns ids of the known words of each text, padded with `size`."""
  split = tf.raw_ops.StringSplitV2(input=texts, sep=separator)
  found = tf.cast(ids(split.values), tf.int32)
  known = found < size
  lengths = tf.math.unsorted_segment_sum(
    tf.cast(known, tf.int64), split.indices[:, 0], split.shape[0]
  )
  ragged = tf.RaggedTensor.from_row_lengths(
    tf.boolean_mask(found, known), lengths, validate=False
  )
  return ragged.to_tensor(size)


def _build_to_shares(words: list[str], tags: list[str], labels: str) -> Any:
  """Builds the map from ids to word frequencies, and to labels.

  Labels are 0 or 1 for every tag, float32; or the id of the first known tag,
  int64, `num_tags` for a post without one.
  """

  def to_shares(rows: Any) -> Any:
    counts = _count(rows['words'], len(words))
    total = tf.reduce_sum(counts, axis=1, keepdims=True)
    shares = tf.math.divide_no_nan(counts, total)
    if labels == 'single':
      # A batch without known tags has no column.
      padded = tf.pad(rows['tags'], [[0, 0], [0, 1]], constant_values=len(tags))
      return shares, tf.cast(padded[:, 0], tf.int64)
    return shares, tf.minimum(_count(rows['tags'], len(tags)), 1.0)

  return to_shares


def _count(ids: tf.Tensor, size: int) -> tf.Tensor:
  """Counts occurrences of `size` words in each row, float32 [batch, size]."""
  rows = tf.shape(ids)[0]
  # Padding is counted in an extra column, which is removed.
  places = tf.range(rows)[:, tf.newaxis] * (size + 1) + ids
  counts = tf.math.unsorted_segment_sum(
    tf.ones_like(places, tf.float32), places, rows * (size + 1)
  )
  return tf.reshape(counts, [-1, size + 1])[:, :size]


# Maximum number of words counted at once; beyond it the rarest are dropped.
_MOST_WORDS = 4_000_000


class WordIds:
  """Maps words to their index in a list, and others to the list's size.

  Words are compared by 62-bit fingerprints in a sorted array. Unlike a lookup
  table this is a constant: the graph of a data set needs no initialization and
  no resource, wherever it is copied.
  """

  def __init__(self, words: Sequence[str]):
    """Raises `ValueError` if words occur twice (or share a fingerprint)."""
    fingerprints = _fingerprint(tf.constant(list(words), tf.string)).numpy()
    order = np.argsort(fingerprints)
    self._sorted = fingerprints[order]
    self._order = order.astype(np.int64)
    self._size = len(words)
    if (np.diff(self._sorted) == 0).any():
      raise ValueError('The words of a vocabulary must be distinct.')

  def __call__(self, words: tf.Tensor) -> tf.Tensor:
    """Maps a vector of words to ids int64 from 0; unknown words are `size`."""
    fingerprints = _fingerprint(words)
    # As `tf.searchsorted`, without its dozen operations for any rank: each
    # operation costs time in every iterator.
    place = tf.raw_ops.LowerBound(
      sorted_inputs=self._sorted[np.newaxis],
      values=fingerprints[tf.newaxis],
      out_type=tf.int64,
    )[0]
    place = tf.minimum(place, self._size - 1)
    found = tf.equal(tf.gather(self._sorted, place), fingerprints)
    return tf.where(
      found,
      tf.gather(self._order, place),
      tf.constant(self._size, tf.int64),
    )


def load_vocabulary(
  *,
  path: Optional[str],
  cache_dir: Optional[str],
  name: str,
  size: int,
  option: str,
  database: pathlib.Path,
  split: str,
  words_of: Callable[[bytes], Iterable[str]],
) -> list[str]:
  """Loads the `size` most frequent words or tags.

  Args:
    path: The user's file of counts, or None.
    cache_dir: Folder to search otherwise, and then its folder `datasets`, where
      TFF saves the file. None for ~/.tff.
    name: Name of the file.
    size: Number of words.
    option: Name of the user's option for `size`.
    database: Data set to count if there is no file; the counts are saved in its
      folder.
    split: Split of the database.
    words_of: Returns the words of one serialized example.

  Returns:
    The words, most frequent first.

  Raises:
    DataError: If the file is missing, invalid, or has fewer words.
  """
  folder = data_files.cache_folder(cache_dir)
  if path is not None:
    found = pathlib.Path(path)
    if not found.is_file():
      raise data_files.DataError(
        f'There is no file {path}, which was named as the list of counts.'
      )
  else:
    places = [folder / name, folder / 'datasets' / name]
    found = next((p for p in places if p.is_file()), places[0])
  if not found.is_file():
    logging.info('Counting %s for %s (only once).', database, found)
    _write_counts(found, count_by_client(database, split, words_of))
  words = read_counts(found)
  if len(words) < size:
    raise data_files.DataError(
      f'{found} has {len(words)} entries, but `{option}` is {size}; ask for '
      f'at most {len(words)} or name a longer list.'
    )
  return words[:size]


def read_counts(path: pathlib.Path) -> list[str]:
  """Reads the words of a counts file, most frequent first.

  The file has lines of a word and a number, or one JSON object from words to
  numbers: TFF's formats of words and of tags.

  Raises:
    DataError: If it has neither format.
  """
  what = 'list of lines of a word and its count, or of one JSON object'
  with data_files.reading(path, what), open(path, encoding='utf-8') as file:
    if file.read(1) == '{':
      counts = pandas.Series(json.loads('{' + file.read())).astype('int64')
    else:
      frame = pandas.read_csv(
        path,
        sep=r'\s+',
        names=['word', 'count', 'more'],
        dtype={'word': str, 'count': 'int64', 'more': str},
        quoting=csv.QUOTE_NONE,
        na_filter=False,
      )
      if not frame['more'].isin(['', np.nan]).all() or not len(frame):
        raise ValueError('there are no lines of two columns')
      counts = frame.set_index('word')['count']
      if not counts.index.is_unique:
        twice = counts.index[counts.index.duplicated()][0]
        raise ValueError(f'{twice!r} occurs twice')
  # Stable: equal counts keep the order of the file.
  ordered: list[str] = counts.sort_values(
    ascending=False, kind='stable'
  ).index.tolist()
  return ordered


def count_by_client(
  database: pathlib.Path,
  split: str,
  words_of: Callable[[bytes], Iterable[str]],
  most_words: int = _MOST_WORDS,
) -> dict[str, int]:
  """Counts the clients that use each word, most frequent first.

  Memory is bounded by one client and `most_words` counters: beyond that, words
  with the smallest counts are dropped, so that a word's count can be too small
  by its count when it was dropped. This does not affect words that are frequent
  enough for a vocabulary.

  Args:
    database: A TFF data set in SQLite.
    split: Split to count.
    words_of: Returns the words of one serialized example.
    most_words: Maximum number of words counted at once.

  Raises:
    DataError: If an example is damaged.
  """
  counts: dict[str, int] = {}
  dropped = 0
  for examples in sqlite_files.examples_by_client(database, split):
    try:
      seen = {word for example in examples for word in words_of(example)}
    # The exception's class depends on the installed protobuf.
    except Exception as e:  # pylint: disable=broad-exception-caught
      raise data_files.DataError(
        f'{database}: a client of split {split!r} has an example that is no '
        f'tf.train.Example with UTF-8 text ({e}).'
      ) from e
    for word in seen:
      counts[word] = counts.get(word, 0) + 1
    while len(counts) > most_words:
      dropped += 1
      counts = {word: n for word, n in counts.items() if n > dropped}
  return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _fingerprint(words: tf.Tensor) -> tf.Tensor:
  return tf.strings.to_hash_bucket_fast(words, 2**62)


def _write_counts(path: pathlib.Path, counts: dict[str, int]) -> None:
  partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
  try:
    if path.name.endswith('tag_count'):
      partial.write_text(json.dumps(counts), encoding='utf-8')
    else:
      # Words with separators of the file format could not be read back.
      lines = (
        f'{word} {n}\n'
        for word, n in counts.items()
        if not re.search(r'[ \t\r\n]', word)
      )
      with open(partial, 'w', encoding='utf-8') as file:
        file.writelines(lines)
    os.replace(partial, path)
  except OSError as e:
    raise data_files.DataError(
      f'The counts cannot be saved to {path} ({e.strerror}); make its folder '
      'writable, or give a file of counts.'
    ) from e
