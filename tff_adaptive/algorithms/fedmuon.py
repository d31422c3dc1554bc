"""FedMuon: clients that step along orthogonalised momenta."""

import collections

import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.algorithms import direction
from tff_adaptive.optimizers import muon
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class Momenta(exchange.Exchange):
  """Liu et al., arXiv 2510.27403.

  The server sends the mean of the clients' last momenta, of every variable of
  rank 2 or more, and the direction Delta_g, all 0 at first:

    Delta_g = -Delta / mean of eta K_i

  with eta K_i the sum of a client's local rates, which it sends.
  """

  sees_update = True

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(
      momenta=tuple(tree.zeros(muon.matrices(specs))),
      direction=tuple(tree.zeros(specs)),
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
      weighted=collections.OrderedDict(
        momenta=state['momenta'],
        path=direction.path(local, state['learning_rate']),
      )
    )

  def merge(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.Statistics:
    mean = cohort.report.weighted
    return collections.OrderedDict(
      momenta=mean['momenta'],
      direction=direction.of_round(cohort, mean['path']),
    )


def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
) -> additions.Additions:
  """Adds what FedMuon exchanges."""
  del client_optimizer, server_optimizer
  return {'exchange': Momenta()}
