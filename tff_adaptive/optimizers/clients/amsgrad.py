"""The client optimizer of Local-AMSGrad."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer(
  'amsgrad', shared=frozenset({'beta_1', 'beta_2'}), of_method=True
)
class LocalAmsgrad(protocol.LocalOptimizer):
  """The Local-AMSGrad client optimizer: Chen, Li and Li 2020, arXiv 2109.05109.

  At every local step, elementwise, with m and v starting from the received
  values and the received v_max fixed during the round:

    m = beta_1 m + (1 - beta_1) g
    v = beta_2 v + (1 - beta_2) g^2
    x = x - learning_rate m / sqrt(v_max)

  There is no bias correction.
  """

  uses_batch = False
  fixed = frozenset({'epsilon'})
  # In a process v and v_max are received, and the server's start at epsilon.
  in_state = frozenset({'learning_rate', 'beta_1', 'beta_2', 'epsilon'})

  learning_rate: parameters.Positive = 0.001
  """Step size, in units of x."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.999
  """Decay of v per local step."""

  epsilon: parameters.Positive = 1e-5
  """Initial value of v and v_max, in units of g^2; not added to the
  denominator.
  """

  @property
  def formula(self) -> str:
    return (
      'm = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2, both '
      'from the values received\n'
      'x = x - learning_rate m / sqrt(v_max), v_max as received\n'
      f'the server averages m and v; v and v_max start at {self.epsilon:g}\n'
      + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['m'] = tree.zeros(specs)
    state['v'] = tree.zeros(specs, self.epsilon)
    state['v_max'] = tree.zeros(specs, self.epsilon)
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
    m = tree.moving_average(state['beta_1'], state['m'], gradients)
    squares = tf.nest.map_structure(tf.square, gradients)
    v = tree.moving_average(state['beta_2'], state['v'], squares)
    weights = tree.map_cast(
      lambda rate, x, m, v_max: x - rate * m / tf.sqrt(v_max),
      (state['learning_rate'],),
      weights,
      m,
      state['v_max'],
    )
    return collections.OrderedDict(state, m=m, v=v), weights
