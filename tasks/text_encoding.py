"""Encoding of a text column as tokens, inputs of a model.

Words are runs of letters and digits, in lower case. A fitted vocabulary has the
most frequent words of the training texts; a hashed one maps every word to a
token by its hash, which needs no pass over the texts and reveals no words.

  0        padding
  1        a word that is not in the vocabulary, or a text without words
  from 2   words
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.formats import columns
from tasks.formats import schemas

_RESERVED = 2
# Number of texts that are split at a time.
_CHUNK = 10_000
_FINGERPRINTS = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class TextEncoding:
  """Encoder of texts to tokens.

  Attributes:
    column: The text column.
    size: Number of tokens, including those of padding and unknown words.
    max_length: Number of tokens of a text; longer ones are truncated.
    words: The vocabulary by token, from 2; empty if hashed.
  """

  column: columns.Column
  size: int
  max_length: int
  words: tuple[str, ...] = ()

  @property
  def notes(self) -> tuple[str, ...]:
    """Sentences about empty texts."""
    if not self.column.missing:
      return ()
    return (
      f'{self.column.missing:,} texts of {self.column.name!r} are empty.',
    )

  @property
  def input_spec(self) -> tf.TensorSpec:
    """Spec of the argument of `encode_rows`."""
    return tf.TensorSpec([None], tf.string, 'rows')

  def encode(self, texts: np.ndarray) -> np.ndarray:
    """Encodes texts.

    Args:
      texts: Texts, strings [rows].

    Returns:
      Tokens, int32 [rows, max_length].
    """
    parts = [
      self.encode_rows(tf.constant(texts[i : i + _CHUNK].tolist())).numpy()
      for i in range(0, len(texts), _CHUNK)
    ]
    return np.concatenate(parts)

  def encode_rows(self, rows: tf.Tensor) -> tf.Tensor:
    """Encodes texts with the content of the file; can be traced.

    Args:
      rows: Texts, strings [rows].

    Returns:
      Tokens, int32 [rows, max_length].
    """
    words = _split(rows)
    flat = words.flat_values
    if self.words:
      tokens = self._look_up(flat)
    else:
      buckets = tf.strings.to_hash_bucket_fast(flat, self.size - _RESERVED)
      tokens = buckets + _RESERVED
    ragged = words.with_flat_values(tf.cast(tokens, tf.int32))
    padded = ragged.to_tensor(0, shape=[None, self.max_length])
    # A mean over words needs at least one.
    return tf.concat([tf.maximum(padded[:, :1], 1), padded[:, 1:]], axis=1)

  def _look_up(self, flat: tf.Tensor) -> tf.Tensor:
    """Looks up words by fingerprints, which needs no table in a graph."""
    known = _fingerprints(tf.constant(self.words))
    order = tf.argsort(known)
    known = tf.gather(known, order)
    found = _fingerprints(flat)
    place = tf.minimum(tf.searchsorted(known, found), len(self.words) - 1)
    token = tf.gather(order, place) + _RESERVED
    return tf.where(tf.equal(tf.gather(known, place), found), token, 1)

  def describe(self) -> list[dict[str, Any]]:
    """Returns a JSON description of the column."""
    return [
      dict(
        name=self.column.name,
        kind='text',
        vocabulary='fitted' if self.words else 'hashed',
        size=self.size,
        max_length=self.max_length,
        words=list(self.words),
      )
    ]


def _split(rows: tf.Tensor) -> tf.RaggedTensor:
  lower = tf.strings.lower(rows, encoding='utf-8')
  return tf.strings.split(tf.strings.regex_replace(lower, r'[^\pL\pN]+', ' '))


def _fingerprints(words: tf.Tensor) -> tf.Tensor:
  return tf.strings.to_hash_bucket_fast(words, _FINGERPRINTS)


def fit(
  column: columns.Column,
  texts: np.ndarray,
  *,
  vocabulary: str,
  size: int,
  max_length: int,
) -> TextEncoding:
  """Fits the encoding of a text column on training examples.

  Args:
    column: The column.
    texts: Texts of the training examples, strings [rows].
    vocabulary: 'fitted', 'hashed', or a file with one word per line.
    size: Maximum number of tokens.
    max_length: Number of tokens of a text.
  """
  if vocabulary == 'hashed':
    return TextEncoding(column, size, max_length)
  if vocabulary != 'fitted':
    words = schemas.read_words(vocabulary, size - _RESERVED)
    return TextEncoding(column, len(words) + _RESERVED, max_length, words)
  counts: dict[bytes, int] = {}
  for i in range(0, len(texts), _CHUNK):
    flat = _split(tf.constant(texts[i : i + _CHUNK].tolist())).flat_values
    every, found = np.unique(flat.numpy().astype(object), return_counts=True)
    for word, count in zip(every, found.tolist(), strict=True):
      counts[word] = counts.get(word, 0) + count
  ranked = sorted(counts, key=lambda word: (-counts[word], word))
  kept = tuple(word.decode('utf-8') for word in ranked[: size - _RESERVED])
  return TextEncoding(column, len(kept) + _RESERVED, max_length, kept)
