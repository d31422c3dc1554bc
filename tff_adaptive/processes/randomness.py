"""Deterministic randomness inside a client's training.

Keras' dropout draws from a generator whose state depends on the clients that
ran before. Here every mask is a function of (seed, round, step, layer) and of
the batch, independent of the order of clients, the number of threads and the
machine. Evaluating the same batch twice in a step, as Delta-SGD does, uses the
same mask unless the optimizer asks for separate ones.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive import tff_internals

# Odd, so that multiplication is invertible modulo 2^32 (Knuth's constant).
_MIX = -1640531527


# As Keras' layers pass them.
Shape = Union[tf.Tensor, tf.TensorShape, Sequence[int]]
Number = Union[tf.Tensor, float]
# The run's seed: an integer, or in a graph an int32 scalar of 31 bits.
Seed = Union[int, tf.Tensor]


@dataclasses.dataclass(eq=False, repr=False)
class _StatelessGenerator:
  """Replacement for Keras' generator that reads its seed from a variable."""

  _seed: tf.Variable
  _layer: int
  _draws: collections.Counter[int]

  def _next_seed(self) -> tf.Tensor:
    # A layer that draws several times in one call (an LSTM's gates) draws
    # different numbers; tracing fixes the order.
    self._draws[self._layer] += 1
    return self._seed.read_value() + tf.constant(
      [self._layer, self._draws[self._layer]], tf.int32
    )

  def dropout(
    self,
    inputs: tf.Tensor,
    rate: Number,
    noise_shape: Optional[Shape] = None,
  ) -> tf.Tensor:
    return tf.nn.experimental.stateless_dropout(
      inputs, rate=rate, seed=self._next_seed(), noise_shape=noise_shape
    )

  def random_uniform(
    self,
    shape: Shape,
    minval: Number = 0.0,
    maxval: Optional[Number] = None,
    dtype: Optional[tf.DType] = None,
    **_: object,
  ) -> tf.Tensor:
    return tf.random.stateless_uniform(
      shape, self._next_seed(), minval, maxval, dtype or tf.float32
    )

  def random_normal(
    self,
    shape: Shape,
    mean: Number = 0.0,
    stddev: Number = 1.0,
    dtype: Optional[tf.DType] = None,
    **_: object,
  ) -> tf.Tensor:
    return tf.random.stateless_normal(
      shape, self._next_seed(), mean, stddev, dtype or tf.float32
    )

  def truncated_normal(
    self,
    shape: Shape,
    mean: Number = 0.0,
    stddev: Number = 1.0,
    dtype: Optional[tf.DType] = None,
    **_: object,
  ) -> tf.Tensor:
    return tf.random.stateless_truncated_normal(
      shape, self._next_seed(), mean, stddev, dtype or tf.float32
    )


class Seeding(NamedTuple):
  """The randomness of a model's layers.

  Attributes:
    seed: Int32 variable of shape [2] to assign before each forward pass; `None`
      for a model without random layers or not made by Keras, which keeps its
      own generators.
    draws: Number of draws so far, by layer; counted while passes are traced.
  """

  seed: Optional[tf.Variable]
  draws: collections.Counter[int]


def seeded(model: tff.learning.models.VariableModel) -> Seeding:
  """Seeds a Keras model's random layers by a variable.

  Keras 2 and Keras 3 layers at the same position in a model draw the same
  numbers.

  Args:
    model: A model just built; its layers are changed in place.
  """
  of_keras_3 = models.keras_3_of(model)
  if of_keras_3 is not None:
    of_keras_3.is_seeded = True
    return Seeding(of_keras_3.step_seed, of_keras_3.draws)
  draws: collections.Counter[int] = collections.Counter()
  keras_model = tff_internals.keras_model_of(model)
  if keras_model is None:
    return Seeding(None, draws)
  seed = tf.Variable([0, 0], trainable=False, dtype=tf.int32, name='step_seed')
  count = tff_internals.replace_random_generators(
    keras_model, lambda layer: _StatelessGenerator(seed, layer, draws)
  )
  return Seeding(seed if count else None, draws)


def step_seed(
  seed: Seed, round_number: tf.Tensor, step: tf.Tensor, mark: tf.Tensor
) -> tf.Tensor:
  """Derives the seed of one local step, int32 of shape [2].

  The batch stands for the client: `next` of a learning process receives
  datasets, not client ids, and a client's order of examples is already a
  function of its id.

  Args:
    seed: The run's seed.
    round_number: Rounds completed, int32 scalar.
    step: Local steps completed, int32 scalar.
    mark: Fingerprint of the step's batch, int32 scalar.
  """
  return _mixed(seed, round_number, step, mark)


def draw_seed(
  seed: Seed, round_number: tf.Tensor, mark: tf.Tensor
) -> tf.Tensor:
  """Derives the seed of the optimizer's draws in a round, int32 of shape [2].

  Args:
    seed: The run's seed.
    round_number: Rounds completed, int32 scalar.
    mark: Fingerprint of the client's data, int32 scalar.
  """
  return _mixed(seed, round_number, -1, mark)


def _mixed(
  seed: Seed,
  round_number: tf.Tensor,
  step: Union[int, tf.Tensor],
  mark: tf.Tensor,
) -> tf.Tensor:
  if isinstance(seed, int):
    seed = tf.constant(seed & 0x7FFFFFFF, tf.int32)
  position = (seed * _MIX + round_number) * _MIX + step
  # Keras layers add their index to the first word: spread words first.
  return tf.stack([mark * _MIX, position * _MIX])


def fingerprint(
  batch: structures.Examples, mask: Optional[tf.Tensor] = None
) -> tf.Tensor:
  """Computes a fingerprint of a batch, int32 scalar.

  Args:
    batch: The batch.
    mask: Whether each example counts, bool [batch]; if given, the first do, and
      the fingerprint is that of a batch of those alone.
  """
  total = tf.constant(0, tf.int32)
  for leaf in tf.nest.flatten(batch, expand_composites=True):
    # Batches are in the host's memory, and so is what is computed with int32.
    with tf.device('/device:CPU:*'):
      if leaf.dtype == tf.string:
        words = tf.strings.to_hash_bucket_fast(leaf, 2**31 - 1)
        words = tf.cast(words, tf.int32)
      elif leaf.dtype.is_floating:
        words = tf.bitcast(tf.cast(leaf, tf.float32), tf.int32)
      else:
        words = tf.cast(leaf, tf.int32)
    if mask is not None:
      here = tf.reshape(mask, [-1] + [1] * (words.shape.rank - 1))
      words = tf.where(here, words, 0)
    words = tf.reshape(words, [-1])
    # Weights by position, so that the same examples in another order differ.
    positions = tf.range(1, tf.size(words) + 1) * _MIX
    total = total * _MIX + tf.reduce_sum(words * positions)
  return total
