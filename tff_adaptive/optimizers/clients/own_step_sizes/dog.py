"""The DoG (distance over gradients) client optimizer."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer('dog', printed='DoG', chooses_step_size=True)
class Dog(protocol.LocalOptimizer):
  """The DoG client optimizer: Ivgi et al., arXiv 2302.12022.

  At local step k = 0, 1, ..., with norms over all weights together:

    r = max(r, |x - x_0|)                r starts at r_epsilon (1 + |x_0|)
    G = G + |g|^2                        G starts at epsilon
    x = x - learning_rate r / sqrt(G) g

  The state is reset on every client in every round. The client sends its last
  iterate; the authors evaluate averaged iterates, which are not part of the
  rule.
  """

  uses_batch = False

  learning_rate: parameters.Positive = 1.0
  """The paper's c; 1 needs no tuning."""

  r_epsilon: parameters.Positive = 1e-6
  """Initial distance, relative to 1 + |x_0|. With few local steps per round,
  the paper's 1e-6 hardly moves the weights; 1e-2 works better."""

  epsilon: parameters.NonNegative = 1e-8
  """Initial value of the sum of squares, in units of g^2."""

  @property
  def formula(self) -> str:
    return (
      'r = max(r, |x - x_0|), from r_epsilon (1 + |x_0|)\n'
      'G = G + |g|^2, from epsilon\n'
      'x = x - learning_rate r / sqrt(G) g\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      self.initial_hparams(),
      # x - x_0 as a sum of steps: the difference of the weights would lose
      # small steps to rounding.
      moved=tree.zeros(specs),
      distance=tf.constant(0.0),
      squares=tf.constant(0.0),
      step_size=tf.constant(0.0),
    )

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    distance = tf.where(
      tf.equal(state['distance'], 0.0),  # Only before the first step.
      state['r_epsilon'] * (1 + tree.norm(weights)),
      tf.maximum(state['distance'], tree.norm(state['moved'])),
    )
    squares = state['squares'] + tree.squared_norm(gradients)
    step_size = state['learning_rate'] * tf.math.divide_no_nan(
      distance, tf.sqrt(squares + state['epsilon'])
    )
    new_state = collections.OrderedDict(
      state,
      moved=tree.add_scaled(state['moved'], -step_size, gradients),
      distance=distance,
      squares=squares,
      step_size=step_size,
    )
    return new_state, tree.add_scaled(weights, -step_size, gradients)

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['step_size'], tf.constant(False))
