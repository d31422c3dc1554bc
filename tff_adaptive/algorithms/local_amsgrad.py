"""Local-AMSGrad: moments averaged every round."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class Moments(exchange.Exchange):
  """The clients' m and v, averaged with the model's weights.

  It sends both, and v_max, which takes up the average of v by its maximum.
  """

  def __init__(self, start: float):
    self._start = start

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(
      m=tree.zeros(specs),
      v=tree.zeros(specs, self._start),
      v_max=tree.zeros(specs, self._start),
    )

  def begin(
    self,
    statistics: structures.Statistics,
    optimizer_state: structures.OptimizerState,
    start: structures.FlatWeights,
    full_gradient: structures.FlatWeights,
  ) -> structures.OptimizerState:
    return collections.OrderedDict(optimizer_state, **statistics)

  def report(self, local: exchange.Local) -> exchange.Report:
    state = local.optimizer_state
    return exchange.report(
      weighted=collections.OrderedDict(m=state['m'], v=state['v'])
    )

  def merge(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.Statistics:
    mean = cohort.report.weighted
    return collections.OrderedDict(
      m=mean['m'],
      v=mean['v'],
      v_max=tf.nest.map_structure(tf.maximum, statistics['v_max'], mean['v']),
    )


def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
) -> additions.Additions:
  """Adds the exchange of Local-AMSGrad's moments."""
  del server_optimizer
  return {'exchange': Moments(client_optimizer.epsilon)}
