"""The stochastic Polyak step size of FedSPS."""

from __future__ import annotations

import collections
from typing import Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree


def polyak_ratio(
  loss: tf.Tensor, lower_bound: tf.Tensor, squared_norm: tf.Tensor
) -> tf.Tensor:
  """Computes (loss - lower_bound) / |g|^2, scalar float32.

  The ratio is 0 for a loss at or below the bound, otherwise infinite if g is 0.
  """
  gap = tf.maximum(tf.cast(loss, tf.float32) - lower_bound, 0.0)
  ratio = tf.where(
    tf.equal(squared_norm, 0.0), float('inf'), gap / squared_norm
  )
  # The second guard takes precedence: a loss at or below the bound gives a step
  # of 0 even if the gradient is 0.
  return tf.where(tf.equal(gap, 0.0), 0.0, ratio)


@registry.client_optimizer('polyak', printed='SPS', chooses_step_size=True)
class Polyak(protocol.LocalOptimizer):
  """The FedSPS client optimizer: Mukherjee et al., Locally Adaptive FL.

  At every local step, with F the loss of the batch and g its gradient, and the
  norm over all weights together:

    gamma = min((F - lower_bound) / (c |g|^2), gamma_b)
    x = x - gamma g

  If the loss is below the bound, gamma is 0. If the gradient is 0, gamma is
  gamma_b and the weights do not move.
  """

  c: parameters.Positive = 0.5
  """Scale of the Polyak step; larger values give smaller steps."""

  gamma_b: parameters.Positive = 1.0
  """Largest step size."""

  lower_bound: float = 0.0
  """l*, a lower bound of every batch loss; 0 for nonnegative losses."""

  smoothing: Literal['none', 'bound', 'step'] = 'none'
  """Upper bound on the step size within a round. 'none': gamma_b. 'bound'
  (Section 6): 1 at the first local step, multiplied by 2^(batch size / examples
  of the client) before each later one; gamma_b is not used. 'step' (smooth_iter
  of the official SPS code): gamma_b at the first local step, then that factor
  times the last step size.
  """

  client_examples: Optional[parameters.Count] = None
  """m_i of the smoothing, the number of examples per client; by default the
  examples a client processes in the round (fewer if the round is truncated,
  more with several epochs).
  """

  def check(self) -> None:
    if self.smoothing == 'bound' and self.gamma_b != 1:
      raise parameters.ParameterError(
        'gamma_b',
        '{} ({given:g}) would be ignored: with {smoothing}=bound the bound '
        'starts every round at 1; give {smoothing}=step, or only one of the '
        'two.',
        given=self.gamma_b,
      )
    if self.smoothing == 'none' and self.client_examples is not None:
      raise parameters.ParameterError(
        'client_examples',
        '{} ({given}) would be ignored: only {smoothing}=bound and '
        '{smoothing}=step use it; give one of them, or omit it.',
        given=self.client_examples,
      )

  @property
  def needs_client_size(self) -> bool:  # type: ignore[override]
    # Counting takes a pass over the client's data.
    return self.smoothing != 'none' and self.client_examples is None

  @property
  def formula(self) -> str:
    size = self.client_examples or 'examples iterated'
    growth = f'2^(batch size / {size}) times'
    grows = {
      'none': '',
      'bound': f'gamma_b is 1 at the first local step, and {growth} its last '
      'value at each later one\n',
      'step': f'at each later local step of a round gamma_b is {growth} the '
      'last gamma above 0\n',
    }[self.smoothing]
    return (
      'gamma = min((F - lower_bound) / (c |g|^2), gamma_b)\n'
      'x = x - gamma g\n' + grows + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    del specs  # The state holds scalars only.
    state = self.initial_hparams()
    if self.smoothing != 'none':
      state['bound'] = tf.constant(1.0)
      state['step'] = tf.constant(0, tf.int32)
    state['gamma'] = tf.constant(0.0)
    # FedSPS-Normalized weights clients by the sum of their steps.
    state['total'] = tf.constant(0.0)
    state['at_bound'] = tf.constant(False)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    batch = protocol.require_batch(batch, 'A stochastic Polyak step')
    gradients = tree.dense(weights, gradients)
    bound = self._bound(state, batch)
    ratio = (
      polyak_ratio(
        batch.loss, state['lower_bound'], tree.squared_norm(gradients)
      )
      / state['c']
    )
    gamma = tf.minimum(ratio, bound)
    new_state = collections.OrderedDict(
      state,
      gamma=gamma,
      total=state['total'] + gamma,
      at_bound=ratio >= bound,
    )
    if self.smoothing != 'none':
      new_state['step'] = state['step'] + 1
      new_state['bound'] = bound
    if self.smoothing == 'step':
      # A step of 0 is not kept: it would make all later steps 0.
      kept = tf.where(state['step'] > 0, state['bound'], bound)
      new_state['bound'] = tf.where(gamma > 0, gamma, kept)
    return new_state, tree.add_scaled(weights, -gamma, gradients)

  def _bound(
    self, state: structures.OptimizerState, batch: protocol.Batch
  ) -> tf.Tensor:
    """Computes the largest step size allowed now."""
    if self.smoothing == 'none':
      return state['gamma_b']
    client_size = self.client_examples or batch.client_size
    if client_size is None:
      raise TypeError(
        'A stochastic Polyak step with smoothing needs `client_size`.'
      )
    share = tf.cast(batch.size, tf.float32) / tf.cast(client_size, tf.float32)
    first = 1.0 if self.smoothing == 'bound' else state['gamma_b']
    return tf.where(
      tf.equal(state['step'], 0), first, state['bound'] * tf.pow(2.0, share)
    )

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['gamma'], state['at_bound'])
