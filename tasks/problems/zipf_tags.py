"""Tags of synthetic texts: sparse bags of words by Zipf's law, multi-label.

A substitute for Stack Overflow's tags without files: the r-th most frequent
word has a frequency proportional to 1 / r, so that most weights rarely get a
gradient, where adaptive servers are useful. A text has one to three tags; half
of its words follow the common distribution and half those of its tags.
"""

from __future__ import annotations

import functools

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks.lazy import builders
from tasks.lazy import text as text_models
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_WORDS_A_TEXT = 20
_PREFERRED = 20
_TEST_TEXTS = 1000


@registry.task(
  'zipf_tags',
  summary="Tags of made-up texts, bags of words by Zipf's law.",
  model='logistic regression, 50,050 weights',
  clients='100 (--zipf_tags_num_clients), tags by Dirichlet skew',
)
class ZipfTags(shared.Options):
  """Word frequencies [batch, words], tags 0 or 1 [batch, tags]."""

  num_clients: parameters.Count = 100
  """Number of clients."""

  examples_per_client: parameters.Count = 30
  """Number of texts per client."""

  words: parameters.Count = 1000
  """Vocabulary size."""

  tags: parameters.Count = 50
  """Number of tags; their frequencies follow Zipf's law, too."""

  alpha: parameters.Positive = 1.0
  """Concentration of the clients' own distributions over tags; small means few
  tags a client."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    rng = np.random.default_rng([self.seed, 0x21BF])
    frequency = _zipf(self.words)
    liked = np.stack(
      [
        _preferences(rng, frequency, min(_PREFERRED, self.words))
        for _ in range(self.tags)
      ]
    )
    popular = _zipf(self.tags)
    texts = functools.partial(_texts, rng, frequency, liked)
    own = rng.dirichlet(self.alpha * self.tags * popular, self.num_clients)
    train = [texts(shares, self.examples_per_client) for shares in own]
    return builders.partitioned_task(
      train={
        name: np.concatenate([client[name] for client in train])
        for name in ('words', 'tags')
      },
      test=texts(popular, _TEST_TEXTS),
      split=partition.in_order([self.examples_per_client] * self.num_clients),
      options=self.values,
      batch_size=10,
      eval_batch_size=256,
      to_model=lambda batch: (batch['words'], batch['tags']),
      build_model=lambda: _build_model(self.words, self.tags),
      loss=lambda: tf.keras.losses.BinaryCrossentropy(from_logits=True),
      metrics=[
        functools.partial(
          text_models.Recall, top_k=min(5, self.tags), name='recall_at_5'
        ),
        functools.partial(text_models.Precision, name='precision'),
      ],
    )


def _zipf(count: int) -> np.ndarray:
  shares = 1 / np.arange(1, count + 1)
  return shares / shares.sum()


def _preferences(
  rng: np.random.Generator, frequency: np.ndarray, count: int
) -> np.ndarray:
  """Draws a tag's distribution over words, [words]."""
  chosen = rng.choice(len(frequency), count, replace=False)
  liked = np.zeros(len(frequency))
  liked[chosen] = rng.dirichlet(np.ones(count))
  return liked


def _texts(
  rng: np.random.Generator,
  frequency: np.ndarray,
  liked: np.ndarray,
  shares: np.ndarray,
  count: int,
) -> dict[str, np.ndarray]:
  """Draws texts with one to three tags, drawn from `shares` [tags].

  Returns:
    'words', float32 [count, words], and 'tags', float32 [count, tags].
  """
  words = np.zeros([count, len(frequency)], np.float32)
  tags = np.zeros([count, len(shares)], np.float32)
  possible = np.count_nonzero(shares)
  for place in range(count):
    some = min(rng.integers(1, 4), possible)
    own = rng.choice(len(shares), some, replace=False, p=shares)
    tags[place, own] = 1
    law = (frequency + liked[own].mean(axis=0)) / 2
    words[place] = rng.multinomial(_WORDS_A_TEXT, law) / _WORDS_A_TEXT
  return dict(words=words, tags=tags)


def _build_model(words: int, tags: int) -> tf.keras.Model:
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((words,)),
      tf.keras.layers.Dense(tags, kernel_initializer='zeros'),
    ]
  )
