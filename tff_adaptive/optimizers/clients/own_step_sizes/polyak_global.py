"""The client optimizer of FedSPS-Global."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients.own_step_sizes import polyak


@registry.client_optimizer(
  'polyak_global', chooses_step_size=True, of_method=True
)
class PolyakGlobal(protocol.LocalOptimizer):
  """The FedSPS-Global client optimizer: Mukherjee et al., Locally Adaptive FL.

  Takes SGD steps with a gamma received from the server and fixed during the
  round. The state keeps the loss and the gradient of the last step, from which
  the server computes the next gamma.
  """

  c: parameters.Positive = 0.5
  """Scale of the Polyak step."""

  gamma_b: parameters.Positive = 1.0
  """Largest step size."""

  lower_bound: float = 0.0
  """l*, a lower bound of every batch loss."""

  @property
  def formula(self) -> str:
    return (
      'x = x - gamma g, gamma the same for all clients of a round\n'
      'reports min((F - lower_bound) / (c |g|^2), gamma_b) of its last step\n'
      + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['gamma'] = state['gamma_b']
    state['gap'] = tf.constant(0.0)
    state['squared_norm'] = tf.constant(0.0)
    state['gradient'] = tree.zeros(specs)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    batch = protocol.require_batch(batch, 'A global Polyak step')
    gradients = tree.dense(weights, gradients)
    new_state = collections.OrderedDict(
      state,
      gap=tf.cast(batch.loss, tf.float32) - state['lower_bound'],
      squared_norm=tree.squared_norm(gradients),
      gradient=gradients,
    )
    return new_state, tree.add_scaled(weights, -state['gamma'], gradients)

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['gamma'], state['gamma'] >= state['gamma_b'])


def bounded_step(
  gap: tf.Tensor, squared_norm: tf.Tensor, c: tf.Tensor, gamma_b: tf.Tensor
) -> tf.Tensor:
  """Computes min(gap / (c |g|^2), gamma_b), scalar float32."""
  return tf.minimum(polyak.polyak_ratio(gap, 0.0, squared_norm) / c, gamma_b)
