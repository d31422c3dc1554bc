"""The AdamW client optimizer."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer('adamw', printed='AdamW')
class AdamW(protocol.LocalOptimizer):
  """The AdamW client optimizer: Loshchilov and Hutter, arXiv 1711.05101.

  At local step k = 1, 2, ..., elementwise, with the old x on the right-hand
  side:

    m = beta_1 m + (1 - beta_1) g                       m starts at 0
    v = beta_2 v + (1 - beta_2) g^2                     v starts at 0
    x = x - learning_rate (m' / (sqrt(v') + epsilon) + weight_decay x)
    with m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^k)

  Weight decay applies to all trainable variables, including biases. It is not
  part of the objective and does not enter the moments. The state is reset in
  every round.
  """

  uses_batch = False

  learning_rate: parameters.Positive = 1e-3
  """Step size, in units of x."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.999
  """Decay of v per local step."""

  epsilon: parameters.NonNegative = 1e-8
  """Adaptivity, in units of g."""

  weight_decay: parameters.NonNegative = 0.01
  """lambda of the decoupled decay, per unit of the learning rate."""

  @property
  def formula(self) -> str:
    return (
      'm = beta_1 m + (1 - beta_1) g, from 0\n'
      'v = beta_2 v + (1 - beta_2) g^2, from 0\n'
      "m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^k)\n"
      "x = x - learning_rate (m' / (sqrt(v') + epsilon) + weight_decay x)\n"
      + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      self.initial_hparams(),
      step=tf.constant(0, tf.int32),
      m=tree.zeros(specs),
      v=tree.zeros(specs),
    )

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    return decayed_step(state, weights, tree.dense(weights, gradients))


def decayed_step(
  state: structures.OptimizerState,
  weights: structures.WeightsT,
  gradients: structures.WeightsT,
) -> tuple[structures.OptimizerState, structures.WeightsT]:
  """Takes one AdamW step.

  Args:
    state: The state of `AdamW`.
    weights: A structure of tensors.
    gradients: The same structure, dense.

  Returns:
    The next state and the next weights.
  """
  state, direction = directed(state, gradients)
  weights = tree.map_cast(
    lambda rate, decay, x, d: x - rate * (d + decay * x),
    (state['learning_rate'], state['weight_decay']),
    weights,
    direction,
  )
  return state, weights


def directed(
  state: structures.OptimizerState,
  gradients: structures.WeightsT,
  *,
  steps_before: tf.Tensor | int = 0,
) -> tuple[structures.OptimizerState, structures.WeightsT]:
  """Computes Adam's update direction m' / (sqrt(v') + epsilon).

  Args:
    state: A state with step, m, v, beta_1, beta_2 and epsilon.
    gradients: Dense gradients in the structure of m and v.
    steps_before: T, added to k in the bias correction of v.

  Returns:
    The next state and the direction.
  """
  squares = tf.nest.map_structure(tf.square, gradients)
  m = tree.moving_average(state['beta_1'], state['m'], gradients)
  v = tree.moving_average(state['beta_2'], state['v'], squares)
  step = state['step'] + 1
  total = tf.cast(steps_before + step, tf.float32)
  # With v = 0 and epsilon = 0 the direction is 0 / 0, which means no step.
  direction = tree.map_cast(
    lambda c1, c2, e, m, v: tf.math.divide_no_nan(m / c1, tf.sqrt(v / c2) + e),
    (
      1 - tf.pow(state['beta_1'], tf.cast(step, tf.float32)),
      1 - tf.pow(state['beta_2'], total),
      state['epsilon'],
    ),
    m,
    v,
  )
  return collections.OrderedDict(state, step=step, m=m, v=v), direction
