"""The cohort's mean gradient, for methods with a `full_gradient_pass`.

Plain TensorFlow; `client_work` places it on clients and server.
"""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from tff_adaptive import structures
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import messages
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import autograph
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


@dataclasses.dataclass(frozen=True)
class FullGradient:
  """One pass over a client's data, for the gradient of the model's loss."""

  model: local_model.Model
  client_weighting: str

  def of_client(
    self,
    state: messages.State,
    weights: structures.ModelWeights,
    data: tf.data.Dataset,
  ) -> GradientPart:
    """Computes a client's contribution, inside a TFF computation's graph.

    Returns:
      The contribution; zeros for a client without data or whose gradient is not
      finite.
    """
    local = local_model.create(self.model)

    @tf.function(autograph=False)
    def traced(
      seed: tf.Tensor, weights: structures.ModelWeights, data: tf.data.Dataset
    ) -> GradientPart:
      return self._of_client(local, seed, weights, data)

    return traced(state.numbers['seed'], weights, data)

  def _of_client(
    self,
    local: local_model.LocalModel[local_model.Carry],
    run_seed: tf.Tensor,
    weights: structures.ModelWeights,
    data: tf.data.Dataset,
  ) -> GradientPart:
    start = tuple(tf.nest.flatten(weights.trainable))
    carry = local.begin(weights)

    def add(
      so_far: tuple[structures.FlatWeights, tf.Tensor],
      batch: structures.Examples,
    ) -> tuple[structures.FlatWeights, tf.Tensor]:
      total, count = so_far
      mark = randomness.fingerprint(batch)
      seed = randomness.draw_seed(run_seed, tf.constant(0), mark)
      local.set_seed(functools.partial(tf.identity, seed))
      gradients = local.gradients_at(
        carry, start, batch, lambda weights, represent: tf.constant(0.0)
      )
      size = local_model.batch_size(batch)
      total = tuple(
        t + tf.cast(size, t.dtype) * g for t, g in zip(total, gradients)
      )
      return total, count + size

    none = tuple(tf.zeros_like(x) for x in start), tf.constant(0, tf.int64)
    total, count = autograph.fold(add, none, data)
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
