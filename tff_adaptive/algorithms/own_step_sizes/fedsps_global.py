"""FedSPS-Global: one stochastic Polyak step size per round."""

from __future__ import annotations

import collections
from typing import Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients.own_step_sizes import polyak_global
from tff_adaptive.processes import exchange


class GlobalStep(exchange.Exchange):
  """The next round's gamma, computed from the clients' last local steps."""

  def __init__(self, aggregation: str, gamma_0: Optional[float]):
    self._aggregation = aggregation
    self._gamma_0 = gamma_0
    self.probes_first_client = gamma_0 is None

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    # A negative gamma is unset: the first round then uses the measurement of
    # its first client.
    first = -1.0 if self._gamma_0 is None else self._gamma_0
    return collections.OrderedDict(gamma=tf.constant(first, tf.float32))

  def wants_first(self, statistics: structures.Statistics) -> tf.Tensor:
    return statistics['gamma'] < 0

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    state, gamma = client.optimizer_state, client.statistics['gamma']
    first = client.first
    if first is not None:
      own = polyak_global.bounded_step(
        first.loss - state['lower_bound'],
        first.squared_norm,
        state['c'],
        state['gamma_b'],
      )
      # If no client could measure it, gamma is the bound.
      own = tf.where(first.measured, own, state['gamma_b'])
      gamma = tf.where(self.wants_first(client.statistics), own, gamma)
    return collections.OrderedDict(state, gamma=gamma)

  def report(self, client: exchange.Client) -> exchange.Report:
    state = client.optimizer_state
    values = collections.OrderedDict(c=state['c'], gamma_b=state['gamma_b'])
    if self._aggregation == 'a':
      values['gamma'] = polyak_global.bounded_step(
        state['gap'], state['squared_norm'], state['c'], state['gamma_b']
      )
    else:
      values['gap'] = state['gap']
      if self._aggregation == 'b':
        values['squared_norm'] = state['squared_norm']
      else:
        values['gradient'] = state['gradient']
    return exchange.report(mean=values)

  def merge(self, server: exchange.Server) -> structures.Statistics:
    mean = server.report.mean
    if self._aggregation == 'a':
      gamma = mean['gamma']
    else:
      # Sums over clients and their means have the same ratio.
      if self._aggregation == 'b':
        squared_norm = mean['squared_norm']
      else:
        squared_norm = tree.squared_norm(mean['gradient'])
      gamma = polyak_global.bounded_step(
        mean['gap'], squared_norm, mean['c'], mean['gamma_b']
      )
    return collections.OrderedDict(gamma=gamma)


@methods.method(
  'fedsps_global',
  printed='FedSPS-Global',
  client='polyak_global',
  # The first steps are often at the bound; 1.0 is too large for networks.
  defaults={'gamma_b': 0.3},
  fixes=('client',),
  unnoised='their losses and step sizes',
  client_words='one Polyak step size for all',
  server_words='any',
  costs=methods.Costs(down='a number', up='numbers', optimizer=1),
  one_version=True,
  look=11,
)
class FedSpsGlobal(methods.Options):
  """FedSPS with one step size for all clients of a round."""

  aggregation: Literal['a', 'b', 'c'] = 'a'
  """Rule for the next global step size, from the clients' last steps: 'a' is
  the mean of their own bounded steps; 'b' is min(sum F / (c sum |g|^2),
  gamma_b); 'c' is min(mean F / (c |mean g|^2), gamma_b), for which clients send
  their gradients.
  """

  gamma_0: Optional[parameters.Positive] = None
  """Step size of the first round; by default the local Polyak step of the
  cohort's first client, at the initial model on its first batch.
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': GlobalStep(self.aggregation, self.gamma_0)}
