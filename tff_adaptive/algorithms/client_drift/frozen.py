"""The client optimizer of MIME, whose state is frozen during a round."""

from __future__ import annotations

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers import wrapped


class Frozen(wrapped.Wrapped):
  """The MIME client optimizer: Karimireddy et al., arXiv 2008.03606.

  Every local step applies the base optimizer to the same received state and
  discards the new state (Adam's step count is the received count plus 1 at
  every step). With `corrects`, the gradient is MIME's

    g(x) - g(x_t) + the cohort's mean gradient at x_t

  with both g on the current batch: two gradients per step.
  """

  corrects: bool
  """Whether to correct the gradient (MIME) or not (MimeLite)."""

  @property
  def note(self) -> str:
    g = ', with g = g(x) - g(x_t) + mean gradient at x_t'
    return 'from the state received at every step' + g * self.corrects

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = super().initialize(specs)
    if self.corrects:
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
    if self.corrects:
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
