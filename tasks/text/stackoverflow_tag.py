"""Tags of Stack Overflow posts: Reddi et al., arXiv 2003.00295, Section C.4.

One-vs-rest logistic regression from the words of a sentence and of its post's
title to the post's tags. Lee et al. (FedAda2, arXiv 2410.18117) predict a
single tag with a softmax.
"""

from __future__ import annotations

import functools
from typing import Any
from typing import Literal
from typing import Optional

from tasks import catalogue
from tasks import shared
from tasks.lazy import assembly
from tasks.lazy import bag_of_words
from tasks.lazy import multi_label
from tasks.lazy import preprocessing
from tasks.lazy import single_label
from tasks.lazy import vocabulary
from tasks.text import stackoverflow
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


@catalogue.task(
  'stackoverflow_tag',
  summary='Predict the tags of a post on Stack Overflow.',
  model='logistic regression, 5,000,500 weights',
  clients='342,477 users, 135,818,730 sentences',
  files=(
    'stackoverflow.sqlite',
    'stackoverflow.word_count',
    'stackoverflow.tag_count',
  ),
  published=catalogue.Published(
    'Reddi et al., arXiv 2003.00295', 1500, 10, 100
  ),
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
  in `cache_dir` or its folder datasets. If it does not exist, tags are counted
  in the training data and the counts saved.
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

  cache_dir: Optional[str] = None
  """Folder with stackoverflow.sqlite; by default ~/.tff."""

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 100."""

  seed: parameters.NonNegativeInt = 0
  """Seed for the order of test users, the sample of users and synthetic
  data.
  """

  def create(self) -> tff.simulation.baselines.BaselineTask:
    if self.data == 'synthetic':
      words = stackoverflow.synthetic_names('word', self.vocab_size)
      tags = stackoverflow.synthetic_names('tag', self.num_tags)
      train, test = stackoverflow.load_synthetic(
        self.vocab_size, self.num_tags, self.seed
      )
    else:
      path = stackoverflow.find(self.cache_dir)
      place: dict[str, Any] = dict(path=path, cache_dir=self.cache_dir)
      words = stackoverflow.most_frequent(
        'word',
        self.vocab_size,
        file=self.word_count_file,
        option='vocab_size',
        **place,
      )
      tags = stackoverflow.most_frequent(
        'tag', self.num_tags, file=self.count_file, option='num_tags', **place
      )
      train, test = stackoverflow.load(path, self.seed, self.num_users)
    to_model = _build_to_model(words, tags, self.labels)
    return assembly.task(
      train_data=train,
      test_data=test,
      validation_data=test.take(stackoverflow.VALIDATION_SENTENCES),
      train_preprocess_fn=stackoverflow.build_train(
        subset=self.subset,
        batch_size=self.batch_size or 100,
        epochs=self.epochs,
        max_elements=self.max_elements,
        to_model=to_model,
        features=['tokens', 'title', 'tags'],
        prepare_fn=_build_to_ids(words, tags),
        map_fn=_build_to_shares(words, tags, self.labels),
        ragged=True,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=100, map_fn=to_model
      ),
      build_model=lambda: build_model(self.vocab_size, self.num_tags),
      loss=_multiple_loss
      if self.labels == 'multiple'
      else single_label.SingleTagLoss,
      metrics=[
        functools.partial(multi_label.Recall, top_k=5, name='recall_at_5'),
        functools.partial(multi_label.Precision, name='precision'),
      ]
      if self.labels == 'multiple'
      else [single_label.SingleTagAccuracy],
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
      bag_of_words.BagOfWordsDense(num_tags, name='dense'),
    ]
  )


def _multiple_loss() -> tf.keras.losses.Loss:
  return tf.keras.losses.BinaryCrossentropy(
    from_logits=True, reduction=tf.keras.losses.Reduction.SUM
  )


def _build_to_model(
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
  word_ids, tag_ids = vocabulary.WordIds(words), vocabulary.WordIds(tags)

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
