"""FedSPS-Global's client: the server's step size, and a report for the next."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.optimizers import polyak
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree


class PolyakGlobal(protocol.LocalOptimizer):
  """See `build_polyak_global`."""

  def __init__(self, *, c: float, gamma_b: float, lower_bound: float):
    super().__init__(c=c, gamma_b=gamma_b, lower_bound=lower_bound)

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


@parameters.checked
def build_polyak_global(
  *,
  c: parameters.Positive = 0.5,
  gamma_b: parameters.Positive = 1.0,
  lower_bound: float = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds FedSPS-Global's client: Mukherjee et al., Locally Adaptive FL.

  Steps with a given gamma that stays for the whole round, and keeps the loss
  and the gradient of its last step, from which the server makes the next gamma.

  Args:
    c: Scale of the Polyak step.
    gamma_b: Largest step size.
    lower_bound: l*, a number that no batch loss is below.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return PolyakGlobal(c=c, gamma_b=gamma_b, lower_bound=lower_bound)
