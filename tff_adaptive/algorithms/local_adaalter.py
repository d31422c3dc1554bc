"""Local-AdaAlter: an accumulator averaged every round."""

import collections
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class Accumulator(exchange.Exchange):
  """The clients' A^2, averaged with the model's weights and sent as B^2."""

  def __init__(self, start: float):
    self._start = start

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(accumulator=tree.zeros(specs, self._start))

  def begin(
    self,
    statistics: structures.Statistics,
    optimizer_state: structures.OptimizerState,
    start: structures.FlatWeights,
    full_gradient: structures.FlatWeights,
  ) -> structures.OptimizerState:
    received = statistics['accumulator']
    return collections.OrderedDict(
      optimizer_state, received=received, accumulated=received
    )

  def report(self, local: exchange.Local) -> exchange.Report:
    return exchange.report(
      weighted=collections.OrderedDict(
        accumulator=local.optimizer_state['accumulated']
      )
    )

  def merge(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.Statistics:
    return cohort.report.weighted


@parameters.checked
def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  initial_accumulator: Optional[parameters.NonNegative] = None,
) -> additions.Additions:
  """Adds the exchange of Local-AdaAlter's accumulator.

  Args:
    client_optimizer: AdaAlter.
    server_optimizer: Averages the models.
    initial_accumulator: b0^2, where A^2 starts; client_adaptivity^2 unless
      given.
  """
  del server_optimizer
  start = client_optimizer.epsilon**2
  if initial_accumulator is not None:
    start = initial_accumulator
  return {'exchange': Accumulator(start)}
