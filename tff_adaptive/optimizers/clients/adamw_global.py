"""The client optimizer of FedAdamW."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import rule as rule_lib
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients import adamw


@registry.client_optimizer('adamw_global', of_method=True)
class GlobalAdamW(rule_lib.Rule):
  """The FedAdamW client optimizer: Liu et al., arXiv 2510.27486.

  At local step k = 1, 2, ..., elementwise, with Delta_G, T and the initial v
  (one number per variable) received from the server:

    m  = beta_1 m + (1 - beta_1) g                       m starts at 0
    v  = beta_2 v + (1 - beta_2) g^2
    m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^(T + k))
    x  = x - learning_rate (m' / (sqrt(v') + epsilon) + alpha Delta_G
                            + weight_decay x)
  """

  learning_rate: parameters.Positive = 3e-4
  """Step size, in units of x."""

  alpha: parameters.NonNegative = 0.5
  """Weight of the last global update direction Delta_G."""

  weight_decay: parameters.NonNegative = 0.01
  """lambda of the decoupled decay."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.999
  """Decay of v per local step."""

  epsilon: parameters.NonNegative = 1e-8
  """Adaptivity, in units of g."""

  @property
  def formula(self) -> str:
    return (
      'm = beta_1 m + (1 - beta_1) g, from 0\n'
      'v = beta_2 v + (1 - beta_2) g^2, from the number received\n'
      "m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^(T + k))\n"
      "x = x - learning_rate (m' / (sqrt(v') + epsilon) + alpha Delta_G "
      '+ weight_decay x)\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      self.initial_hparams(),
      step=tf.constant(0, tf.int32),
      m=tree.zeros(specs),
      v=tree.zeros(specs),
      # The exchange replaces these with the values that the server sent.
      direction=tree.zeros(specs),
      count=tf.constant(0, tf.int32),
    )

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    state, own = adamw.directed(state, gradients, steps_before=state['count'])
    weights = tree.map_cast(
      lambda rate, alpha, decay, x, own, d: (
        x - rate * (own + alpha * d + decay * x)
      ),
      (state['learning_rate'], state['alpha'], state['weight_decay']),
      weights,
      own,
      state['direction'],
    )
    return state, weights
