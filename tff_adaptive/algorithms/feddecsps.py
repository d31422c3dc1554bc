"""FedDecSPS: decreasing stochastic Polyak steps."""

import collections
from typing import Literal

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.processes import exchange


class CountSteps(exchange.Exchange):
  """The server's count of local steps, from which stateless clients go on.

  A round advances the count by the most steps that one of its clients did; all
  clients of a round start from the same count.
  """

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(count=tf.constant(0, tf.int32))

  def begin(
    self,
    statistics: structures.Statistics,
    optimizer_state: structures.OptimizerState,
    start: structures.FlatWeights,
    full_gradient: structures.FlatWeights,
  ) -> structures.OptimizerState:
    return collections.OrderedDict(optimizer_state, count=statistics['count'])

  def report(self, local: exchange.Local) -> exchange.Report:
    return exchange.report(
      maximum=collections.OrderedDict(num_steps=local.num_steps)
    )

  def merge(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.Statistics:
    return collections.OrderedDict(
      count=statistics['count'] + cohort.report.maximum['num_steps']
    )


@parameters.checked
def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  count: Literal['training', 'round'] = 'training',
) -> additions.Additions:
  """Adds the server's count of local steps.

  Args:
    client_optimizer: Decreasing Polyak steps.
    server_optimizer: Any.
    count: Whether the k of c_k counts local steps over the whole training, or
      anew in every round.
  """
  del client_optimizer, server_optimizer
  return {'exchange': CountSteps()} if count == 'training' else {}
