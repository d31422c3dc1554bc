"""The Lion client optimizer."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer('lion', printed='Lion')
class Lion(protocol.LocalOptimizer):
  """The Lion client optimizer: Chen et al., arXiv 2302.06675.

  At every local step, elementwise, with the old x and the old m on the
  right-hand side:

    c = beta_1 m + (1 - beta_1) g
    x = x - learning_rate (sign(c) + weight_decay x)
    m = beta_2 m + (1 - beta_2) g                       m starts at 0

  Every coordinate moves by the same distance. Two decay rates let the update
  direction weigh recent gradients more than the momentum does. The state is
  reset in every round.
  """

  uses_batch = False

  learning_rate: parameters.Positive = 1e-4
  """Distance every coordinate moves per step, in units of x."""

  beta_1: parameters.Fraction = 0.9
  """Weight of m in the update direction."""

  beta_2: parameters.Fraction = 0.99
  """Decay of m per local step."""

  weight_decay: parameters.NonNegative = 0.0
  """lambda of the decoupled decay, per unit of the learning rate."""

  @property
  def formula(self) -> str:
    return (
      'c = beta_1 m + (1 - beta_1) g\n'
      'x = x - learning_rate (sign(c) + weight_decay x)\n'
      'm = beta_2 m + (1 - beta_2) g, from 0\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(self.initial_hparams(), m=tree.zeros(specs))

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    weights = tree.map_cast(
      lambda rate, decay, x, c: x - rate * (tf.sign(c) + decay * x),
      (state['learning_rate'], state['weight_decay']),
      weights,
      tree.moving_average(state['beta_1'], state['m'], gradients),
    )
    m = tree.moving_average(state['beta_2'], state['m'], gradients)
    return collections.OrderedDict(state, m=m), weights
