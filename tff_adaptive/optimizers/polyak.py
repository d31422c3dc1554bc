"""Stochastic Polyak step sizes on a client."""

import collections
from typing import Literal
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.optimizers import combinations
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree


def polyak_ratio(
  loss: tf.Tensor, lower_bound: tf.Tensor, squared_norm: tf.Tensor
) -> tf.Tensor:
  """Computes (loss - lower_bound) / |g|^2.

  It is 0 for a loss below the bound, else infinite where g is 0.
  """
  gap = tf.maximum(tf.cast(loss, tf.float32) - lower_bound, 0.0)
  ratio = tf.where(
    tf.equal(squared_norm, 0.0), float('inf'), gap / squared_norm
  )
  # The order of the two guards: a loss below the bound takes no step at all,
  # even where there is no gradient.
  return tf.where(tf.equal(gap, 0.0), 0.0, ratio)


class Polyak(protocol.LocalOptimizer):
  """See `build_polyak`."""

  def __init__(
    self,
    *,
    c: float,
    gamma_b: float,
    lower_bound: float,
    smoothing: str,
    client_examples: Optional[int],
  ):
    super().__init__(c=c, gamma_b=gamma_b, lower_bound=lower_bound)
    self._smoothing = smoothing
    self._client_examples = client_examples
    # Whoever says what clients have saves a pass over their data.
    self.needs_client_size = smoothing != 'none' and client_examples is None

  @property
  def formula(self) -> str:
    size = self._client_examples or 'examples iterated'
    growth = f'2^(batch size / {size}) times'
    grows = {
      'none': '',
      'bound': f'gamma_b is 1 at the first local step, and {growth} its last '
      'value at each later one\n',
      'step': f'at each later local step of a round gamma_b is {growth} the '
      'last gamma above 0\n',
    }[self._smoothing]
    return (
      'gamma = min((F - lower_bound) / (c |g|^2), gamma_b)\n'
      'x = x - gamma g\n' + grows + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    del specs  # A few numbers are all the state there is.
    state = self.initial_hparams()
    if self._smoothing != 'none':
      # What the next step's bound grows from.
      state['bound'] = tf.constant(1.0)
      state['step'] = tf.constant(0, tf.int32)
    state['gamma'] = tf.constant(0.0)
    # The sum of all steps, which FedSPS-Normalized weighs clients by.
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
    if self._smoothing != 'none':
      new_state['step'] = state['step'] + 1
      new_state['bound'] = bound
    if self._smoothing == 'step':
      # A step of 0 is taken but not remembered: it would end all steps.
      kept = tf.where(state['step'] > 0, state['bound'], bound)
      new_state['bound'] = tf.where(gamma > 0, gamma, kept)
    return new_state, tree.add_scaled(weights, -gamma, gradients)

  def _bound(
    self, state: structures.OptimizerState, batch: protocol.Batch
  ) -> tf.Tensor:
    """Computes the largest step that may be taken now."""
    if self._smoothing == 'none':
      return state['gamma_b']
    client_size = self._client_examples or batch.client_size
    if client_size is None:
      raise TypeError(
        'A stochastic Polyak step with smoothing needs `client_size`.'
      )
    share = tf.cast(batch.size, tf.float32) / tf.cast(client_size, tf.float32)
    first = 1.0 if self._smoothing == 'bound' else state['gamma_b']
    return tf.where(
      tf.equal(state['step'], 0), first, state['bound'] * tf.pow(2.0, share)
    )

  def step_size(self, state: structures.OptimizerState) -> protocol.StepSize:
    return protocol.StepSize(state['gamma'], state['at_bound'])


@parameters.checked
def build_polyak(
  *,
  c: parameters.Positive = 0.5,
  gamma_b: parameters.Positive = 1.0,
  lower_bound: float = 0.0,
  smoothing: Literal['none', 'bound', 'step'] = 'none',
  client_examples: Optional[parameters.Count] = None,
) -> tff.learning.optimizers.Optimizer:
  """Builds FedSPS' client: Mukherjee et al., Locally Adaptive FL.

  At every local step, with F the loss of the batch and g its gradient, the norm
  over all weights together:

    gamma = min((F - lower_bound) / (c |g|^2), gamma_b)
    x = x - gamma g

  A loss below the bound takes a step of 0; a gradient of 0 a step of gamma_b,
  which moves nothing.

  Args:
    c: Scale of the Polyak step: larger is more careful.
    gamma_b: Largest step size.
    lower_bound: l*, a number that no batch loss is below; 0 for losses that
      cannot be negative.
    smoothing: How the bound changes within a round: 'none', it is gamma_b;
      'bound' (Section 6), it is 1 at the first local step and is multiplied by
      2^(batch size / examples of the client) before each later one, and gamma_b
      is not used; 'step' (smooth_iter of the official SPS code), it is gamma_b
      at the first local step, and then that factor times the last step taken.
    client_examples: The examples that every client has, m_i of the smoothing;
      unless given, those that a client iterates in the round, which are fewer
      where a round is cut short and more under several epochs.

  Raises:
    ParameterError: If a hyperparameter is outside its range, or `gamma_b` or
      `client_examples` is given where it is not used.
  """
  combinations.check_bound(smoothing, gamma_b, client_examples)
  return Polyak(
    c=c,
    gamma_b=gamma_b,
    lower_bound=lower_bound,
    smoothing=smoothing,
    client_examples=client_examples,
  )
