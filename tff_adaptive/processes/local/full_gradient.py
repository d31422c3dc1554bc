"""The cohort's mean gradient, for methods with a `full_gradient_pass`.

Plain TensorFlow; `client_work` places it on clients and server.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from tff_adaptive import structures
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import client_function
from tff_adaptive.processes.local import local_model
from tff_adaptive.processes.local import weighting


class GradientPart(NamedTuple):
  """A client's contribution to the mean gradient, or the sum of contributions.

  Attributes:
    gradient: The client's weight times its gradient, averaged over examples,
      flat.
    weight: The client's weight, float32 scalar.
  """

  gradient: structures.FlatWeights
  weight: tf.Tensor


# The gradients' sum, each batch's times its size, and the number of examples.
_SoFar = tuple[structures.FlatWeights, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class FullGradient(client_function.ClientFunction[tuple[()], _SoFar]):
  """One pass over a client's data, for the gradient of the model's loss.

  The result is a `GradientPart`; zeros for a client without data or whose
  gradient is not finite.
  """

  model: local_model.Model
  client_weighting: str

  def begin(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    seen: Optional[client_function.Seen],
  ) -> tuple[tuple[()], _SoFar]:
    _, weights = arguments
    local.begin(weights)
    none = [tf.zeros_like(x) for x in tf.nest.flatten(weights.trainable)]
    return (), (tuple(none), tf.constant(0, tf.int64))

  def step(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    constants: tuple[()],
    so_far: _SoFar,
    batch: structures.Examples,
  ) -> _SoFar:
    state, weights = arguments
    total, count = so_far
    mark = local.fingerprint(batch)
    seed = randomness.draw_seed(state.numbers['seed'], state.round, mark)
    local.set_seed(functools.partial(tf.identity, seed))
    gradients = local.gradients_at(
      local.begun(weights),
      tuple(tf.nest.flatten(weights.trainable)),
      batch,
      lambda weights, represent: tf.constant(0.0),
    )
    size = local.batch_size(batch)
    total = tuple(
      t + tf.cast(size, t.dtype) * g for t, g in zip(total, gradients)
    )
    return total, count + size

  def finish(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    constants: tuple[()],
    so_far: _SoFar,
  ) -> GradientPart:
    total, count = so_far
    carry = local.begun(arguments[1])
    usable = tf.logical_and(tree.all_finite(total), count > 0)
    own = weighting.weight(self.client_weighting, count, local, carry)
    weight = tf.where(usable, own, 0.0)
    # Divided first: a sum over many examples loses what a mean keeps.
    mean = tuple(
      tf.math.divide_no_nan(t, tf.cast(count, t.dtype)) for t in total
    )
    return GradientPart(
      gradient=tuple(
        tf.where(usable, tf.cast(weight, g.dtype) * g, tf.zeros_like(g))
        for g in mean
      ),
      weight=weight,
    )


def mean(total: GradientPart) -> structures.FlatWeights:
  """Computes the mean gradient from summed contributions; 0 without any."""
  return tuple(
    tf.math.divide_no_nan(t, tf.cast(total.weight, t.dtype))
    for t in total.gradient
  )
