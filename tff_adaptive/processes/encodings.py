"""Compressed forms of clients' updates."""

from __future__ import annotations

import abc
import collections
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tff_adaptive.lazy import tf

# A compressed vector: its parts by name.
Encoded: TypeAlias = collections.OrderedDict[str, 'tf.Tensor']


class Encoding(abc.ABC):
  """A compressed form, lossless for vectors of some kind.

  Vectors of that kind are multiples of what `compress` returns.
  """

  @abc.abstractmethod
  def compress(self, vector: tf.Tensor) -> tf.Tensor:
    """Approximates a vector by one of this kind."""

  @abc.abstractmethod
  def encode(self, vector: tf.Tensor) -> Encoded:
    """Encodes a vector of this kind."""

  @abc.abstractmethod
  def decode(self, encoded: Encoded, size: int) -> tf.Tensor:
    """Decodes a vector of length `size`."""


class TopK(Encoding):
  """Top-k sparsification: the k largest magnitudes with their positions."""

  def __init__(self, ratio: float):
    """Takes the ratio r: k = max(floor(r d), 1) of d entries are kept."""
    self._ratio = ratio

  def _k(self, size: int) -> int:
    return max(int(self._ratio * size), 1)

  def compress(self, vector: tf.Tensor) -> tf.Tensor:
    size = vector.shape[0]
    return self.decode(self.encode(vector), size)

  def encode(self, vector: tf.Tensor) -> Encoded:
    _, positions = tf.math.top_k(tf.abs(vector), self._k(vector.shape[0]))
    return collections.OrderedDict(
      positions=positions, values=tf.gather(vector, positions)
    )

  def decode(self, encoded: Encoded, size: int) -> tf.Tensor:
    return tf.scatter_nd(
      encoded['positions'][:, tf.newaxis], encoded['values'], [size]
    )


class Signs(Encoding):
  """Scaled signs: signs times the mean absolute value; the sign of 0 is 0.

  A byte holds five signs of three values each (3^5 = 243): 1.6 bits an entry.
  """

  _A_BYTE = 5
  _POWERS = (1, 3, 9, 27, 81)

  def compress(self, vector: tf.Tensor) -> tf.Tensor:
    return tf.sign(vector) * tf.reduce_mean(tf.abs(vector))

  def encode(self, vector: tf.Tensor) -> Encoded:
    digits = tf.cast(tf.sign(vector), tf.int32) + 1
    missing = -vector.shape[0] % self._A_BYTE
    digits = tf.reshape(tf.pad(digits, [[0, missing]]), [-1, self._A_BYTE])
    packed = tf.reduce_sum(digits * tf.constant(self._POWERS), axis=1)
    return collections.OrderedDict(
      scale=tf.reduce_max(tf.abs(vector)), signs=tf.cast(packed, tf.uint8)
    )

  def decode(self, encoded: Encoded, size: int) -> tf.Tensor:
    packed = tf.cast(encoded['signs'], tf.int32)[:, tf.newaxis]
    digits = packed // tf.constant(self._POWERS) % 3
    signs = tf.reshape(digits, [-1])[:size] - 1
    return encoded['scale'] * tf.cast(signs, encoded['scale'].dtype)


def joined(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Concatenates all entries to one vector of the widest dtype."""
  dtype = np.result_type(*(t.dtype.as_numpy_dtype for t in tensors))
  return tf.concat(
    [tf.cast(tf.reshape(t, [-1]), dtype) for t in tensors], axis=0
  )


def split(
  vector: tf.Tensor, like: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, ...]:
  """Splits a vector returned by `joined` into tensors."""
  parts = tf.split(vector, [t.shape.num_elements() for t in like])
  return tuple(
    tf.cast(tf.reshape(part, t.shape), t.dtype)
    for part, t in zip(parts, like, strict=True)
  )
