"""Local-AdaAlter: an accumulator averaged in every round."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class Accumulator(exchange.Exchange):
  """The mean of the clients' A^2, weighted as the model and sent as B^2."""

  def __init__(self, start: float):
    self._start = start

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(accumulator=tree.zeros(specs, self._start))

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    received = client.statistics['accumulator']
    return collections.OrderedDict(
      client.optimizer_state, received=received, accumulated=received
    )

  def report(self, client: exchange.Client) -> exchange.Report:
    return exchange.report(
      weighted=collections.OrderedDict(
        accumulator=client.optimizer_state['accumulated']
      )
    )

  def merge(self, server: exchange.Server) -> structures.Statistics:
    return server.report.weighted


@methods.method(
  'local_adaalter',
  printed='Local AdaAlter',
  client='adaalter',
  fixes=('client', 'server'),
  unnoised='their accumulators',
  client_words='AdaGrad',
  server_words='mean',
  costs=methods.Costs(
    down='accumulator, d',
    up='accumulator, d',
    models_down=2,
    models_up=2,
    optimizer=2,
  ),
  one_version=True,
  look=21,
)
class LocalAdaAlter(methods.Options):
  """AdaGrad clients whose accumulators are averaged (Xie et al.)."""

  initial_accumulator: Optional[parameters.NonNegative] = None
  """b0^2, the initial value of A^2; by default client_adaptivity^2."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    start = chosen.client_optimizer.epsilon**2
    if self.initial_accumulator is not None:
      start = self.initial_accumulator
    return {'exchange': Accumulator(start)}
