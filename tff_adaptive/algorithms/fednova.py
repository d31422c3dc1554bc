"""FedNova: updates that count the same however many steps made them."""

import collections
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import wrapped
from tff_adaptive.processes import exchange


class CountedSgd(wrapped.Wrapped):
  """SGD that follows how much its gradients weigh in x_t - x.

  With a momentum rho, x_t - x is the sum of the velocities; a proximal term of
  strength mu shrinks it at every step. So the weights' sum follows

    c = rho c + 1
    a = (1 - eta mu) a + eta c

  and a / eta is the paper's |a_i|_1, for constant rates and others.
  """

  def __init__(self, base: tff.learning.optimizers.Optimizer, strength: float):
    super().__init__(base)
    self._strength = strength

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = super().initialize(specs)
    state.update(c=tf.constant(0.0), a=tf.constant(0.0))
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    hparams = self.base.get_hparams(state['base'])
    rate = hparams['learning_rate']
    c = hparams.get('momentum', 0.0) * state['c'] + 1
    a = (1 - rate * self._strength) * state['a'] + rate * c
    state, weights = super().next(state, weights, gradients)
    return collections.OrderedDict(state, c=c, a=a), weights


class NormalizedAveraging(exchange.Exchange):
  """Wang et al., arXiv 2007.07481.

  A client sends Delta_i / |a_i|_1. The server steps with

    Delta = tau mean of Delta_i / |a_i|_1

  tau being the mean of |a_i|_1, or of K_i where clients have a proximal term.
  """

  sees_update = True

  def __init__(self, proximal: bool):
    self._proximal = proximal
    tau = 'K_i' if proximal else '|a_i|_1'
    self.update_formula = f'Delta = mean {tau} mean (Delta_i / |a_i|_1)'

  def _norm(self, local: exchange.Local) -> tf.Tensor:
    state = local.optimizer_state
    return tf.math.divide_no_nan(state['a'], state['base']['learning_rate'])

  def update(self, local: exchange.Local) -> structures.FlatWeights:
    norm = self._norm(local)
    return tuple(
      tf.math.divide_no_nan(u, tf.cast(norm, u.dtype))
      for u in super().update(local)
    )

  def report(self, local: exchange.Local) -> exchange.Report:
    tau = local.full_steps if self._proximal else self._norm(local)
    return exchange.report(weighted=collections.OrderedDict(tau=tau))

  def step(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.FlatWeights:
    tau = cohort.report.weighted['tau']
    return tuple(tf.cast(tau, u.dtype) * u for u in cohort.update)


@parameters.checked
def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  proximal_strength: parameters.NonNegative = 0.0,
) -> additions.Additions:
  """Adds to SGD what makes FedNova: the normalisation by what a client did.

  Args:
    client_optimizer: SGD.
    server_optimizer: Any.
    proximal_strength: mu of the term (mu / 2) |x - x_t|^2 added to the clients'
      loss; 0 for none. Not together with a momentum.
  """
  del server_optimizer
  return {
    'client_optimizer': CountedSgd(client_optimizer, proximal_strength),
    'exchange': NormalizedAveraging(proximal_strength > 0),
  }
