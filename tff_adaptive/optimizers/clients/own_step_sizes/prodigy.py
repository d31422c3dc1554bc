"""The Prodigy client optimizer, Adam with an estimate of the distance."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer('prodigy', printed='Prodigy', chooses_step_size=True)
class Prodigy(protocol.LocalOptimizer):
  """The Prodigy client optimizer: Mishchenko and Defazio, arXiv 2306.06101.

  At local step k = 1, 2, ..., with the old d and the old x on the right-hand
  side, sums over all weights together, and d starting at d_0:

    m = beta_1 m + (1 - beta_1) d g
    v = beta_2 v + (1 - beta_2) d^2 g^2
    r = sqrt(beta_2) r + learning_rate d^2 <g, x_0 - x>
    s = sqrt(beta_2) s + learning_rate d^2 g
    x = x - learning_rate d m / (sqrt(v) + d epsilon)
    d = max(d, r / |s|_1)

  The state is reset on every client in every round. There is no bias
  correction, weight decay or safeguarded warm-up. optax corrects the bias;
  optax and the authors' code use the new d in d epsilon.
  """

  uses_batch = False

  learning_rate: parameters.Positive = 1.0
  """Scale of every step; 1 needs no tuning."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.999
  """Decay of v per local step."""

  epsilon: parameters.NonNegative = 1e-8
  """Adaptivity, in units of g."""

  d_0: parameters.Positive = 1e-6
  """Initial estimate of the distance, in units of x. With few local steps per
  round, the paper's 1e-6 hardly moves the weights; 1e-2 works better."""

  @property
  def formula(self) -> str:
    return (
      'm = beta_1 m + (1 - beta_1) d g, from 0\n'
      'v = beta_2 v + (1 - beta_2) d^2 g^2, from 0\n'
      'r = sqrt(beta_2) r + learning_rate d^2 <g, x_0 - x>, from 0\n'
      's = sqrt(beta_2) s + learning_rate d^2 g, from 0\n'
      'x = x - learning_rate d m / (sqrt(v) + d epsilon)\n'
      'd = max(d, r / |s|_1), from d_0\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state.update(
      d=tf.constant(0.0),
      r=tf.constant(0.0),
      s=tree.zeros(specs),
      m=tree.zeros(specs),
      v=tree.zeros(specs),
      # x - x_0 as a sum of steps: the difference of the weights would lose
      # small steps to rounding.
      moved=tree.zeros(specs),
      step_size=tf.constant(0.0),
    )
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    # d is 0 only before the first step.
    d = tf.where(tf.equal(state['d'], 0.0), state['d_0'], state['d'])
    beta_1, beta_2 = state['beta_1'], state['beta_2']
    step_size = state['learning_rate'] * d
    m = tree.map_cast(
      lambda b, d, m, g: b * m + (1 - b) * d * g,
      (beta_1, d),
      state['m'],
      gradients,
    )
    v = tree.map_cast(
      lambda b, d, v, g: b * v + (1 - b) * tf.square(d * g),
      (beta_2, d),
      state['v'],
      gradients,
    )
    beta_3 = tf.sqrt(beta_2)
    r = beta_3 * state['r'] - step_size * d * tree.dot(
      gradients, state['moved']
    )
    s = tree.map_cast(
      lambda b, a, s, g: b * s + a * g,
      (beta_3, step_size * d),
      state['s'],
      gradients,
    )
    change = tree.map_cast(
      lambda a, e, m, v: -a * tf.math.divide_no_nan(m, tf.sqrt(v) + e),
      (step_size, d * state['epsilon']),
      m,
      v,
    )
    new_state = collections.OrderedDict(
      state,
      d=tf.maximum(d, tf.math.divide_no_nan(r, tree.sum_of_absolutes(s))),
      r=r,
      s=s,
      m=m,
      v=v,
      moved=tree.add(state['moved'], change),
      step_size=step_size,
    )
    return new_state, tree.add(weights, change)

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['step_size'], tf.constant(False))
