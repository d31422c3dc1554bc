"""The Lion server optimizer."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import rule
from tff_adaptive.optimizers import tree


@registry.server_optimizer('lion', printed='Lion', makes_method=False)
class ServerLion(rule.Rule):
  """The Lion server optimizer, without decay: Chen et al., arXiv 2302.06675.

  Once per round, elementwise, with Delta the mean client update (the gradient
  passed in is -Delta) and the old m on the right-hand side:

    x = x + learning_rate sign(beta_1 m + (1 - beta_1) Delta)
    m = beta_2 m + (1 - beta_2) Delta                   m starts at 0

  No paper proposes Lion as a server optimizer; it is a building block.
  """

  learning_rate: parameters.Positive = 1e-3
  """Distance every coordinate moves per round, in units of x."""

  beta_1: parameters.Fraction = 0.9
  """Weight of m in the update direction."""

  beta_2: parameters.Fraction = 0.99
  """Decay of m per round."""

  @property
  def formula(self) -> str:
    return (
      'x = x + learning_rate sign(beta_1 m + (1 - beta_1) Delta)\n'
      'm = beta_2 m + (1 - beta_2) Delta, from 0\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(self.initial_hparams(), m=tree.zeros(specs))

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    weights = tree.map_cast(
      lambda rate, x, c: x - rate * tf.sign(c),
      (state['learning_rate'],),
      weights,
      tree.moving_average(state['beta_1'], state['m'], gradients),
    )
    m = tree.moving_average(state['beta_2'], state['m'], gradients)
    return collections.OrderedDict(state, m=m), weights
