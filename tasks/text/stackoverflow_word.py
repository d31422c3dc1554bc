"""Next-word prediction on Stack Overflow: arXiv 2003.00295, Table 6.

As in Reddi et al. A sentence is cut or padded to 20 words; the model predicts
each word from those before it. Tokens: 0 padding, 1 to V the vocabulary, V + 1
any other word, V + 2 begin, V + 3 end of the sentence (if shorter than 20
words).
"""

from __future__ import annotations

import functools
from typing import Any
from typing import Literal
from typing import Optional

from tasks import catalogue
from tasks import shared
from tasks.lazy import assembly
from tasks.lazy import lstm
from tasks.lazy import next_token
from tasks.lazy import preprocessing
from tasks.lazy import vocabulary
from tasks.text import stackoverflow
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


@catalogue.task(
  'stackoverflow_word',
  summary='Predict the next word of a sentence on Stack Overflow.',
  model='LSTM, 4,050,748 weights',
  clients='342,477 users, 135,818,730 sentences',
  files=('stackoverflow.sqlite', 'stackoverflow.word_count'),
  published=catalogue.Published('Reddi et al., arXiv 2003.00295', 1500, 50, 16),
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
  stackoverflow.word_count in `cache_dir` or its folder datasets. If it does not
  exist, words are counted in the training data and the counts saved.
  """

  subset: Literal['first', 'shuffled'] = 'first'
  """Which sentences of a user with too many: the 'first', always the same (the
  paper), or 'shuffled', others in every round (TFF's baseline)."""

  padding: Literal['ignored', 'counted'] = 'ignored'
  """Whether the loss has padding 'ignored', or 'counted' as a token like
  others, as the released code of FedOpt does on clients. Metrics ignore it
  either way."""

  cache_dir: Optional[str] = None
  """Folder with stackoverflow.sqlite; by default ~/.tff."""

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 16."""

  seed: parameters.NonNegativeInt = 0
  """Seed for the order of test users and for synthetic data."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    if self.data == 'synthetic':
      words = stackoverflow.synthetic_names('word', self.vocab_size)
      train, test = stackoverflow.load_synthetic(self.vocab_size, 8, self.seed)
    else:
      path = stackoverflow.find(self.cache_dir)
      words = stackoverflow.most_frequent(
        'word',
        self.vocab_size,
        file=self.count_file,
        option='vocab_size',
        path=path,
        cache_dir=self.cache_dir,
      )
      train, test = stackoverflow.load(path, self.seed)
    to_model = _build_to_model(words, self.sequence_length)
    unknown, end = self.vocab_size + 1, self.vocab_size + 3
    return assembly.task(
      train_data=train,
      test_data=test,
      validation_data=test.take(stackoverflow.VALIDATION_SENTENCES),
      train_preprocess_fn=stackoverflow.build_train(
        subset=self.subset,
        batch_size=self.batch_size or 16,
        epochs=self.epochs,
        max_elements=self.max_elements or stackoverflow.MOST_SENTENCES,
        to_model=to_model,
        features=['tokens'],
        prepare_fn=to_model,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=64, map_fn=to_model
      ),
      build_model=lambda: _build_model(
        self.vocab_size + 4, self.sequence_length
      ),
      loss=next_token.loss(self.padding),
      metrics=[
        # The paper's metric first: words of the vocabulary only.
        functools.partial(
          next_token.TokenAccuracy,
          left_out=[unknown, end],
          name='accuracy_without_special_tokens',
        ),
        functools.partial(
          next_token.TokenAccuracy,
          left_out=[unknown],
          name='accuracy_without_unknown_words',
        ),
        next_token.TokenAccuracy,
        next_token.NumTokens,
      ],
    )


def _build_to_model(words: list[str], length: int) -> Any:
  word_ids = vocabulary.WordIds(words)
  begin, end = len(words) + 2, len(words) + 3

  def to_model(batch: Any) -> Any:
    split = tf.strings.split(batch['tokens'], ' ')[:, :length]
    ids = split.with_flat_values(word_ids(split.flat_values) + 1)
    count = ids.row_lengths()
    tokens = ids.to_tensor(next_token.PADDING, shape=[None, length])
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
