"""Random numbers inside a client's training, as a function of where it stands.

Keras' dropout draws from a generator whose state depends on which client ran
before on the same kernel. Here every mask is a function of (seed, round, step,
layer) and of the batch that it is applied to, so that it does not depend on the
order of clients, on the number of threads, or on the machine. Two evaluations
of the same batch in the same step, as Delta-SGD makes them, see the same mask,
unless the optimizer asks for masks of their own.
"""

from collections.abc import Sequence
from typing import Optional
from typing import Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive import tff_internals

# Odd, so that multiplication is invertible modulo 2^32 (Knuth's constant).
_MIX = -1640531527


# As Keras' layers hand them in.
Shape = Union[tf.Tensor, tf.TensorShape, Sequence[int]]
Number = Union[tf.Tensor, float]
# Of a run: a whole number, or an int32 scalar of 31 bits in a graph.
Seed = Union[int, tf.Tensor]


class _StatelessGenerator:
  """A stand-in for Keras' generator that draws from a variable's seed."""

  def __init__(self, seed: tf.Variable, layer: int):
    self._seed = seed
    self._layer = layer
    self._draws = 0

  def _next_seed(self) -> tf.Tensor:
    # A layer that draws several times in one call (an LSTM's gates) draws
    # different numbers; tracing fixes the order.
    self._draws += 1
    return self._seed.read_value() + tf.constant(
      [self._layer, self._draws], tf.int32
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


def seed_variable(
  model: tff.learning.models.VariableModel,
) -> Optional[tf.Variable]:
  """Makes a Keras model's random layers draw from a seed held in a variable.

  Those of Keras 2 and of Keras 3 draw the same numbers in layers of the same
  place in a model.

  Args:
    model: A model just built; its layers are changed in place.

  Returns:
    An int32 variable of shape [2] to assign before each forward pass, or `None`
    for a model without random layers (or not made by Keras: such a model keeps
    its own generators).
  """
  of_keras_3 = models.keras_3_of(model)
  if of_keras_3 is not None:
    return of_keras_3.step_seed
  keras_model = tff_internals.keras_model_of(model)
  if keras_model is None:
    return None
  seed = tf.Variable([0, 0], trainable=False, dtype=tf.int32, name='step_seed')
  count = tff_internals.replace_random_generators(
    keras_model, lambda layer: _StatelessGenerator(seed, layer)
  )
  return seed if count else None


def step_seed(
  seed: Seed,
  round_number: tf.Tensor,
  step: tf.Tensor,
  batch: structures.Examples,
) -> tf.Tensor:
  """Derives the seed of one local step, int32 of shape [2].

  The client is known by what it brings: `next` of a learning process is given
  datasets, not names, and a client's order of examples is already a function of
  its name.

  Args:
    seed: The run's seed.
    round_number: Rounds completed, int32 scalar.
    step: Local steps completed, int32 scalar.
    batch: The batch about to be used.
  """
  return _mixed(seed, round_number, step, fingerprint(batch))


def draw_seed(
  seed: Seed, round_number: tf.Tensor, mark: tf.Tensor
) -> tf.Tensor:
  """Derives the seed of a client's own draws in a round, int32 of shape [2].

  Args:
    seed: The run's seed.
    round_number: Rounds completed, int32 scalar.
    mark: What the client is known by, int32 scalar.
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


def fingerprint(batch: structures.Examples) -> tf.Tensor:
  """Computes a number that tells batches apart, int32 scalar."""
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
    words = tf.reshape(words, [-1])
    # Weights by position, so that the same examples in another order differ.
    positions = tf.range(1, tf.size(words) + 1) * _MIX
    total = total * _MIX + tf.reduce_sum(words * positions)
  return total
