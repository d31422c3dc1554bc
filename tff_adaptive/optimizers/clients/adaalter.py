"""The client optimizer of Local-AdaAlter."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer('adaalter', printed='AdaAlter', of_method=True)
class AdaAlter(protocol.LocalOptimizer):
  """The Local-AdaAlter client optimizer: Xie et al. 2019, arXiv 1911.09030.

  At local step k = 1, 2, ..., elementwise, with B^2 the accumulator received at
  the start of the round and fixed during it:

    x   = x - learning_rate g / sqrt(B^2 + k epsilon^2)
    A^2 = A^2 + g^2                                      A^2 starts at B^2

  The accumulator is updated after the step.
  """

  uses_batch = False

  learning_rate: parameters.Positive = 0.1
  """Step size, in units of x."""

  epsilon: parameters.Positive = 1.0
  """Adaptivity, in units of g; 1 as in the authors' code, because it dominates
  the denominator in the first round.
  """

  @property
  def formula(self) -> str:
    return (
      'x = x - learning_rate g / sqrt(B^2 + k epsilon^2), B^2 as received\n'
      'A^2 = A^2 + g^2, from B^2; the server averages it\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['step'] = tf.constant(0, tf.int32)
    state['received'] = tree.zeros(specs, self.epsilon**2)
    state['accumulated'] = tree.zeros(specs, self.epsilon**2)
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
    step = state['step'] + 1
    added = tf.cast(step, tf.float32) * tf.square(state['epsilon'])
    weights = tree.map_cast(
      lambda rate, added, x, g, b: x - rate * g / tf.sqrt(b + added),
      (state['learning_rate'], added),
      weights,
      gradients,
      state['received'],
    )
    accumulated = tf.nest.map_structure(
      lambda a, g: a + tf.square(g), state['accumulated'], gradients
    )
    return (
      collections.OrderedDict(state, step=step, accumulated=accumulated),
      weights,
    )
