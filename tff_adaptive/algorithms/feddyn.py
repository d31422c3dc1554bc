"""FedDyn: clients' objectives that change so that their minima agree."""

import collections
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange
from tff_adaptive.processes import objectives


class DynamicRegularization(exchange.Exchange):
  """Acar et al., arXiv 2111.04263.

  A client adds -<lambda_i, x> + (alpha / 2) |x - x_t|^2 to its loss, then

    lambda_i = lambda_i - alpha (x_K - x_t)            from 0

  With Delta the mean update, S the cohort and N all clients, the server's

    h = h - alpha (|S| / N) Delta                      from 0
    x = x + Delta - h / alpha

  Only the model and the update travel. A client that is left out keeps its
  lambda_i.
  """

  sees_update = True
  update_formula = (
    'h = h - alpha (|S| / N) Delta, from 0\nDelta = Delta - h / alpha'
  )

  def __init__(self, alpha: float, population: Optional[int]):
    self._alpha = alpha
    self._population = population

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(h=tuple(tree.zeros(specs)))

  def sent(self, statistics: structures.Statistics) -> structures.Statistics:
    return collections.OrderedDict()

  def memory(self, specs: structures.FlatSpecs) -> structures.Memory:
    return collections.OrderedDict(gradient=tuple(tree.zeros(specs)))

  def context(
    self,
    statistics: structures.Statistics,
    memory: structures.Memory,
    start: structures.FlatWeights,
  ) -> structures.FlatWeights:
    return tuple(-g for g in memory['gradient'])

  def remember(self, local: exchange.Local) -> structures.Memory:
    gradient = tree.add_scaled(
      local.memory['gradient'], -self._alpha, self.update(local)
    )
    return collections.OrderedDict(gradient=gradient)

  def merge(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.Statistics:
    share = tf.constant(1.0)
    if self._population is not None:
      share = cohort.size / self._population
    return collections.OrderedDict(
      h=tree.add_scaled(statistics['h'], -self._alpha * share, cohort.update)
    )

  def step(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.FlatWeights:
    return tree.add_scaled(cohort.update, -1 / self._alpha, statistics['h'])


@parameters.checked
def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  proximal_strength: parameters.Positive = 0.01,
  population: Optional[parameters.Count] = None,
) -> additions.Additions:
  """Adds what makes FedDyn: a linear term, and the server's h.

  Args:
    client_optimizer: Any.
    server_optimizer: Takes the step as it is.
    proximal_strength: alpha, of the proximal term and of what is learned of the
      clients' gradients.
    population: N, all clients there are; the cohort itself (full participation)
      unless given.
  """
  del client_optimizer, server_optimizer
  return {
    'exchange': DynamicRegularization(proximal_strength, population),
    'objective': objectives.Correction('-lambda_i'),
  }
