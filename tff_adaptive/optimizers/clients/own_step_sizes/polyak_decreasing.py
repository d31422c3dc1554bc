"""FedDecSPS' client: Polyak steps that shrink with the number of steps."""

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
  """FedDecSPS' client: Mukherjee et al., Locally Adaptive FL.

  With k counting local steps from 0 (from the value that the method hands out),
  F the loss of the batch and g its gradient, the norm over all weights:

    c_k     = c sqrt(k + 1)
    gamma_k = min((F - lower_bound) / |g|^2, c_(k-1) gamma_(k-1)) / c_k
    x       = x - gamma_k g

  where c_(-1) gamma_(-1) = c gamma_b, which is where every round starts unless
  the method lets clients remember. A loss below the bound takes a step of 0,
  which later steps do not remember.
  """

  c: parameters.Positive = 0.5
  """c_0, scale of the Polyak step."""

  gamma_b: parameters.Positive = 1.0
  """Largest first step size."""

  lower_bound: float = 0.0
  """l*, a number that no batch loss is below."""

  @property
  def formula(self) -> str:
    return (
      'gamma_k = min((F - lower_bound) / |g|^2, c_(k-1) gamma_(k-1)) / c_k\n'
      'c_k = c sqrt(k + 1), c_(-1) = c, gamma_(-1) = gamma_b\n'
      'x = x - gamma_k g\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    del specs
    state = self.initial_hparams()
    state['count'] = tf.constant(0, tf.int32)
    # c_(k-1) gamma_(k-1) as a share of c gamma_b, so that setting either
    # hyperparameter in the state moves the bound with it.
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
      # A step of 0 is taken but not remembered: it would end all steps.
      bound=tf.where(scaled > 0, scaled / unit, state['bound']),
      gamma=gamma,
      at_bound=ratio >= bound,
    )
    return new_state, tree.add_scaled(weights, -gamma, gradients)

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['gamma'], state['at_bound'])
