"""The decreasing Polyak step size of FedDecSPS."""

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
  'polyak_decreasing', chooses_step_size=True, of_method=True
)
class PolyakDecreasing(protocol.LocalOptimizer):
  """The FedDecSPS client optimizer: Mukherjee et al., Locally Adaptive FL.

  With k the number of local steps so far (starting from 0, or from the count
  that the method passes in), F the loss of the batch and g its gradient, and
  the norm over all weights together:

    c_k     = c sqrt(k + 1)
    gamma_k = min((F - lower_bound) / |g|^2, c_(k-1) gamma_(k-1)) / c_k
    x       = x - gamma_k g

  c_(-1) gamma_(-1) = c gamma_b is the initial bound of every round, unless the
  method keeps the bound between rounds. If the loss is below lower_bound the
  step size is 0, and the bound stays unchanged for later steps.
  """

  c: parameters.Positive = 0.5
  """c_0, scale of the Polyak step."""

  gamma_b: parameters.Positive = 1.0
  """Largest initial step size."""

  lower_bound: float = 0.0
  """l*, a lower bound of every batch loss."""

  @property
  def formula(self) -> str:
    return (
      'gamma_k = min((F - lower_bound) / |g|^2, c_(k-1) gamma_(k-1)) / c_k\n'
      'c_k = c sqrt(k + 1), c_(-1) = c, gamma_(-1) = gamma_b\n'
      'x = x - gamma_k g\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['count'] = tf.constant(0, tf.int32)
    # c_(k-1) gamma_(k-1) relative to c gamma_b, so that setting either
    # hyperparameter in the state rescales the bound.
    state['bound'] = tf.constant(1.0)
    state['gamma'] = tf.constant(0.0)
    state['at_bound'] = tf.constant(False)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    batch = protocol.require_batch(batch, 'A decreasing Polyak step')
    gradients = tree.dense(weights, gradients)
    ratio = polyak.polyak_ratio(
      batch.loss, state['lower_bound'], tree.squared_norm(gradients)
    )
    unit = state['c'] * state['gamma_b']
    bound = unit * state['bound']
    scaled = tf.minimum(ratio, bound)
    c_k = state['c'] * tf.sqrt(tf.cast(state['count'] + 1, tf.float32))
    gamma = scaled / c_k
    new_state = collections.OrderedDict(
      state,
      count=state['count'] + 1,
      # A step of 0 is not kept: it would make all later steps 0.
      bound=tf.where(scaled > 0, scaled / unit, state['bound']),
      gamma=gamma,
      at_bound=ratio >= bound,
    )
    return new_state, tree.add_scaled(weights, -gamma, gradients)

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['gamma'], state['at_bound'])
