"""The schedule-free SGD client optimizer, which averages iterates."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer('schedule_free_sgd', printed='schedule-free SGD')
class ScheduleFreeSgd(protocol.LocalOptimizer):
  """The schedule-free SGD client optimizer: Defazio et al., arXiv 2405.15682.

  At local step k = 1, 2, ..., starting from z = x = x_t:

    y = (1 - beta_1) z + beta_1 x           the gradient g is evaluated at y
    z = z - learning_rate g
    x = (1 - 1/k) x + z / k

  The client returns x. The state is reset on every client in every round. If
  the learning rate changes within a round (warm-up), 1/k is replaced by
  learning_rate^2 divided by the sum of its squares so far, as in the authors'
  code.
  """

  learning_rate: parameters.Positive = 0.1
  """Step size of z, in units of x per gradient."""

  beta_1: parameters.Fraction = 0.9
  """Interpolation weight of the average x in y, called momentum by the
  authors.
  """

  @property
  def formula(self) -> str:
    return (
      'y = (1 - beta_1) z + beta_1 x, where g is taken\n'
      'z = z - learning_rate g, from x_t\n'
      'x = (1 - c) x + c z, with c = learning_rate^2 / its sum so far\n'
      + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      self.initial_hparams(), ahead=tree.zeros(specs), total=tf.constant(0.0)
    )

  def gradient_point(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    context: structures.FlatWeights,
  ) -> Optional[structures.WeightsT]:
    return tree.add_scaled(weights, 1 - state['beta_1'], state['ahead'])

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    # A caller that passes the batch also evaluates the gradient at y.
    protocol.require_batch(batch, 'Schedule-free SGD')
    gradients = tree.dense(weights, gradients)
    rate = state['learning_rate']
    total = state['total'] + tf.square(rate)
    share = tf.math.divide_no_nan(tf.square(rate), total)
    ahead = tree.add_scaled(state['ahead'], -rate, gradients)
    new_state = collections.OrderedDict(
      state,
      ahead=tree.map_cast(lambda c, a: (1 - c) * a, (share,), ahead),
      total=total,
    )
    return new_state, tree.add_scaled(weights, share, ahead)
