"""An optimizer whose state stays as the server sent it (MIME)."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers import wrapped


class Frozen(wrapped.Wrapped):
  """MIME's client: Karimireddy et al., arXiv 2008.03606.

  Every local step applies the base optimizer from the same, received state and
  throws the new state away (Adam's count is the received one plus 1 at every
  step). With `corrects`, the gradient is MIME's

    g(x) - g(x_t) + the cohort's mean gradient at x_t

  both g on the current batch: two gradients a step.
  """

  def __init__(
    self, base: tff.learning.optimizers.Optimizer, *, corrects: bool
  ):
    """Takes the base optimizer.

    Args:
      base: Any optimizer that needs nothing but the gradient.
      corrects: Whether to correct the gradient (MIME) or not (MimeLite).

    Raises:
      ValueError: If the optimizer looks at the batch.
    """
    super().__init__(base)
    self._corrects = corrects
    g = ', with g = g(x) - g(x_t) + mean gradient at x_t'
    self.note = 'from the state received at every step' + g * corrects

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = super().initialize(specs)
    if self._corrects:
      state['start'] = tree.zeros(specs)
      state['mean_gradient'] = tree.zeros(specs)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    if self._corrects:
      batch = protocol.require_batch(batch, "MIME's correction")
      at_start = tree.dense(weights, batch.gradient_fn(state['start']))
      gradients = tf.nest.map_structure(
        lambda g, old, mean: g - old + mean,
        gradients,
        at_start,
        state['mean_gradient'],
      )
    _, weights = self.base.next(state['base'], weights, gradients)
    return state, weights
