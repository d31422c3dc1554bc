"""FedNova: updates normalized by the number of local steps."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import wrapped
from tff_adaptive.processes import exchange


class CountedSgd(wrapped.Wrapped):
  """SGD that tracks the total weight of its gradients in x_t - x.

  With momentum rho, x_t - x is the sum of the velocities; a proximal term of
  strength mu shrinks it at every step. The total weight a is updated by

    c = rho c + 1
    a = (1 - eta mu) a + eta c

  a / eta is the paper's |a_i|_1, for constant and for scheduled learning rates.
  """

  strength: parameters.NonNegative
  """mu of the proximal term."""

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
    a = (1 - rate * state['strength']) * state['a'] + rate * c
    state, weights = super().next(state, weights, gradients)
    return collections.OrderedDict(state, c=c, a=a), weights


class NormalizedAveraging(exchange.Exchange):
  """FedNova's normalized averaging: Wang et al., arXiv 2007.07481.

  A client sends Delta_i / |a_i|_1. The server steps with

    Delta = tau mean of Delta_i / |a_i|_1

  where tau is the mean of |a_i|_1, or of K_i if clients have a proximal term.
  """

  sees_update = True

  def __init__(self, proximal: bool):
    self._proximal = proximal
    tau = 'K_i' if proximal else '|a_i|_1'
    self.update_formula = f'Delta = mean {tau} mean (Delta_i / |a_i|_1)'

  def _norm(self, client: exchange.Client) -> tf.Tensor:
    state = client.optimizer_state
    return tf.math.divide_no_nan(state['a'], state['base']['learning_rate'])

  def update(self, client: exchange.Client) -> structures.FlatWeights:
    norm = self._norm(client)
    return tuple(
      tf.math.divide_no_nan(u, tf.cast(norm, u.dtype))
      for u in super().update(client)
    )

  def report(self, client: exchange.Client) -> exchange.Report:
    tau = client.full_steps if self._proximal else self._norm(client)
    return exchange.report(weighted=collections.OrderedDict(tau=tau))

  def step(self, server: exchange.Server) -> structures.FlatWeights:
    tau = server.report.weighted['tau']
    return tuple(tf.cast(tau, u.dtype) * u for u in server.update)


@methods.method(
  'fednova',
  printed='FedNova',
  fixes=('client',),
  unnoised='their numbers of local steps',
  client_words='SGD, updates normalized by local steps',
  server_words='any',
  costs=methods.Costs(up='a number'),
  one_version=True,
  look=24,
)
class FedNova(methods.Options):
  """SGD clients whose updates are normalized by their number of local steps
  (Wang et al.).
  """

  in_state = frozenset({'proximal_strength'})

  proximal_strength: parameters.NonNegative = 0.0
  """mu of the proximal term (mu / 2) |x - x_t|^2 in the client loss; 0 for
  none. Cannot be combined with momentum.
  """

  @classmethod
  def check_all(cls, values: Mapping[str, Any]) -> None:
    if values['client_momentum'] and values['proximal_strength']:
      raise parameters.ParameterError(
        'proximal_strength',
        '{} ({strength:g}) and {client_momentum} ({momentum:g}) cannot be '
        'combined under FedNova, whose paper normalizes for one of them at a '
        'time; give one.',
        strength=values['proximal_strength'],
        momentum=values['client_momentum'],
      )

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'client_optimizer': CountedSgd(
        base=chosen.client_optimizer, strength=self.proximal_strength
      ),
      'exchange': NormalizedAveraging(self.proximal_strength > 0),
    }
