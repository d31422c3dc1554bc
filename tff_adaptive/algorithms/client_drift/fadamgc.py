"""FAdamGC: AMSGrad clients with gradient tracking."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms.client_drift import scaffold
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import rule
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange
from tff_adaptive.processes import objectives


@registry.client_optimizer('amsgrad_tracking', of_method=True)
class TrackingAmsgrad(rule.Rule):
  """The FAdamGC client optimizer: arXiv 2502.02727.

  At every local step, elementwise, with m, v and v_max starting at 0 in every
  round:

    m = beta_1 m + (1 - beta_1) g
    v = beta_2 v + (1 - beta_2) g^2
    v_max = max(v_max, v)
    x = x - learning_rate m / (sqrt(v_max) + epsilon)

  There is no bias correction. The state also accumulates the sum of the
  gradients, from which the control variate is computed.
  """

  learning_rate: parameters.Positive = 1e-3
  """Step size, in units of x."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.99
  """Decay of v per local step."""

  epsilon: parameters.Positive = 1e-8
  """Adaptivity, in units of g."""

  @property
  def formula(self) -> str:
    return (
      'm = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2, from 0\n'
      'v_max = max(v_max, v), from 0\n'
      'x = x - learning_rate m / (sqrt(v_max) + epsilon)\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    zeros = {
      name: tree.zeros(specs) for name in ('m', 'v', 'v_max', 'gradients')
    }
    return collections.OrderedDict(self.initial_hparams(), **zeros)

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    m = tree.moving_average(state['beta_1'], state['m'], gradients)
    squares = tf.nest.map_structure(tf.square, gradients)
    v = tree.moving_average(state['beta_2'], state['v'], squares)
    v_max = tf.nest.map_structure(tf.maximum, state['v_max'], v)
    # 0 / 0, a coordinate whose gradients were all 0, means no step.
    weights = tree.map_cast(
      lambda rate, e, x, m, v: (
        x - rate * tf.math.divide_no_nan(m, tf.sqrt(v) + e)
      ),
      (state['learning_rate'], state['epsilon']),
      weights,
      m,
      v_max,
    )
    total = tree.add(state['gradients'], gradients)
    state = collections.OrderedDict(
      state, m=m, v=v, v_max=v_max, gradients=total
    )
    return state, weights


class GradientTracking(scaffold.ControlVariates):
  """The control variates y and y_i of FAdamGC: arXiv 2502.02727.

  As in SCAFFOLD, except that the client's next control variate is the mean of
  its raw gradients, which cannot be recovered from its update:

    y_i+ = (1 / K_i) sum_k g_k
    y    = y + (|S| / N) mean of (y_i+ - y_i)
  """

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    # The optimizer's gradients are g + y - y_i.
    mean = tuple(
      tf.math.divide_no_nan(total, tf.cast(client.num_steps, total.dtype))
      for total in tf.nest.flatten(client.optimizer_state['gradients'])
    )
    raw = tree.subtract(mean, self.context(client))
    return collections.OrderedDict(seen=tf.constant(True), c=raw)


@methods.method(
  'fadamgc',
  printed='FAdamGC',
  client='amsgrad_tracking',
  fixes=('client',),
  unnoised='the change of their control variates',
  client_words='AMSGrad with control variates',
  server_words='any',
  costs=methods.Costs(
    down='y, d',
    up='its change, d',
    keeps='y_i, d',
    models_down=2,
    models_up=2,
    optimizer=4,
    context=1,
    kept=1,
  ),
  one_version=True,
  look=35,
)
class FAdamGC(scaffold.Scaffold):
  """Adam clients whose gradients are corrected by control variates before they
  enter the moments (Chen et al.).
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'exchange': GradientTracking(self.population),
      'objective': objectives.Correction('y - y_i'),
    }
