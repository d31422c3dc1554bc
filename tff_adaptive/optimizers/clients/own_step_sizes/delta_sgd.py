"""The Delta-SGD client optimizer, which adapts its own step size."""

from __future__ import annotations

import collections
from typing import Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


@registry.client_optimizer(
  'delta_sgd',
  printed='\N{GREEK CAPITAL LETTER DELTA}-SGD',
  chooses_step_size=True,
  gradients=2,
)
class DeltaSgd(protocol.LocalOptimizer):
  """The Delta-SGD client optimizer: Kim et al., arXiv 2306.11201, Algorithm 1.

  At local step k, with norms over all weights together:

    x_1     = x_0 - eta_0 g_0
    eta_k   = min(gamma |x_k - x_(k-1)| / (2 |g_k - g_(k-1)|),
                  sqrt(1 + delta theta_(k-1)) eta_(k-1))
    theta_k = eta_k / eta_(k-1)
    x_(k+1) = x_k - eta_k g_k

  The state is reset on every client in every round. If the gradient did not
  change, the first term counts as infinite and the second is the minimum. The
  authors' code departs from the paper in its first step (eta_0 sqrt(1 + delta
  theta_0)) and in adding 1e-8 to eta; this follows the paper.
  """

  fixed = frozenset({'theta_0', 'max_step_size'})

  gamma: parameters.Positive = 2.0
  """Scale of the curvature term; gamma / 2 = 1 corresponds to the damping of 1
  in the authors' code.
  """

  delta: parameters.NonNegative = 0.1
  """Bound on the growth of the step size; with 0 it never grows."""

  eta_0: parameters.Positive = 0.2
  """First step size, in units of x per gradient."""

  theta_0: parameters.NonNegative = 1.0
  """Initial ratio of step sizes."""

  smoothness_batch: Literal['same', 'successive'] = 'same'
  """Batch of g_(k-1): 'same' differentiates the current batch at x_(k-1) again
  (two gradients per step, as in the authors' code); 'successive' reuses the
  gradient of step k - 1 on its own batch (one gradient per step, as Algorithm 1
  reads). docs/step_sizes.md has the measurements behind the default."""

  dropout_masks: Literal['shared', 'own'] = 'shared'
  """Whether the two gradients on the current batch share their dropout masks or
  draw their own, as in the authors' code. Their noise then adds to the
  estimated curvature and shortens steps.
  """

  max_step_size: Optional[parameters.Positive] = None
  """Upper bound on the step size, including the first; by default none."""

  def check(self) -> None:
    if self.dropout_masks == 'own' and self.smoothness_batch != 'same':
      raise parameters.ParameterError(
        'dropout_masks',
        "{}=own needs {smoothness_batch} to be 'same', got {given!r}.",
        given=self.smoothness_batch,
      )

  @property
  def own_masks(self) -> bool:  # type: ignore[override]
    return self.dropout_masks == 'own'

  @property
  def _same_batch(self) -> bool:
    return self.smoothness_batch == 'same'

  @property
  def _first_step_size(self) -> float:
    return min(self.eta_0, self.max_step_size or self.eta_0)

  @property
  def formula(self) -> str:
    batch = 'k' if self._same_batch else 'k and k - 1'
    masks = ', under dropout masks of their own' if self.own_masks else ''
    cap = '' if self.max_step_size is None else f', {self.max_step_size:g}'
    return (
      'eta_k = min(gamma |x_k - x_(k-1)| / (2 |g_k - g_(k-1)|), '
      f'sqrt(1 + delta theta_(k-1)) eta_(k-1){cap})\n'
      'theta_k = eta_k / eta_(k-1)\n'
      'x_(k+1) = x_k - eta_k g_k\n'
      f'with the gradients of batch {batch}{masks}\n'
      f'from eta = {self._first_step_size:g}, theta = {self.theta_0:g}\n'
      + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['step'] = tf.constant(0, tf.int32)
    state['eta'] = tf.constant(self._first_step_size, tf.float32)
    state['theta'] = tf.constant(self.theta_0, tf.float32)
    state['at_bound'] = tf.constant(False)
    # |x_k - x_(k-1)|
    state['distance'] = tf.constant(0.0)
    state['previous'] = tree.zeros(specs)
    return state

  def set_hparams(
    self, state: structures.OptimizerState, hparams: structures.HParams
  ) -> structures.OptimizerState:
    state = super().set_hparams(state, hparams)
    first = tf.cast(state['eta_0'], tf.float32)
    if self.max_step_size is not None:
      first = tf.minimum(first, self.max_step_size)
    eta = tf.where(tf.equal(state['step'], 0), first, state['eta'])
    return collections.OrderedDict(state, eta=eta)

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    is_first = tf.equal(state['step'], 0)
    if self._same_batch:
      batch = protocol.require_batch(
        batch, "Delta-SGD with smoothness_batch='same'"
      )
      previous_gradients = tree.cond(
        is_first,
        lambda: gradients,
        lambda: tree.dense(weights, batch.gradient_fn(state['previous'])),
      )
      kept = weights
    else:
      previous_gradients = state['previous']
      kept = gradients
    change = tree.norm(tree.subtract(gradients, previous_gradients))
    # An unchanged gradient means no curvature: the first term is infinite and
    # the growth limit applies. NaN stays NaN.
    by_curvature = tf.where(
      tf.equal(change, 0.0),
      float('inf'),
      state['gamma'] * state['distance'] / (2 * change),
    )
    limit = tf.sqrt(1 + state['delta'] * state['theta']) * state['eta']
    if self.max_step_size is not None:
      limit = tf.minimum(limit, self.max_step_size)
    eta = tf.where(is_first, state['eta'], tf.minimum(by_curvature, limit))
    theta = tf.where(
      is_first,
      state['theta'],
      # If x_k = x_(k-1), the curvature term is 0 in this and all later steps.
      tf.math.divide_no_nan(eta, state['eta']),
    )
    new_state = collections.OrderedDict(
      state,
      step=state['step'] + 1,
      eta=eta,
      theta=theta,
      at_bound=tf.logical_and(tf.logical_not(is_first), by_curvature >= limit),
      distance=eta * tree.norm(gradients),
      previous=kept,
    )
    return new_state, tree.add_scaled(weights, -eta, gradients)

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['eta'], state['at_bound'])
