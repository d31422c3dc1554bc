"""FedMuon: clients that step along orthogonalised momenta."""

from __future__ import annotations

import collections

from tff_adaptive import structures
from tff_adaptive.algorithms import exchanges
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients import muon_global
from tff_adaptive.processes import exchange


class Momenta(exchange.Exchange):
  """The statistics of FedMuon: Liu et al., arXiv 2510.27403.

  The server sends the mean of the clients' last momenta, for every variable of
  rank 2 or more, and the direction Delta_g, both initially 0:

    Delta_g = -Delta / mean of eta K_i

  with eta K_i the sum of a client's local learning rates, which the client
  sends.
  """

  sees_update = True

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(
      momenta=tuple(tree.zeros(muon_global.matrices(specs))),
      direction=tuple(tree.zeros(specs)),
    )

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    return collections.OrderedDict(client.optimizer_state, **client.statistics)

  def report(self, client: exchange.Client) -> exchange.Report:
    state = client.optimizer_state
    return exchange.report(
      weighted=collections.OrderedDict(
        momenta=state['momenta'],
        path=exchanges.local_path(client, state['learning_rate']),
      )
    )

  def preconditioner(self, client: exchange.Client) -> structures.FlatWeights:
    return tuple(client.optimizer_state['momenta'])

  def merge(self, server: exchange.Server) -> structures.Statistics:
    mean = server.report.weighted
    return collections.OrderedDict(
      momenta=mean['momenta'],
      direction=exchanges.global_direction(server, mean['path']),
    )


@methods.method(
  'fedmuon',
  printed='FedMuon',
  client='muon_global',
  fixes=('client',),
  unnoised='their momenta',
  client_words='orthogonalised momenta',
  server_words='any',
  costs=methods.Costs(
    down='momenta and direction, 2 d',
    up='momenta, d',
    models_down=3,
    models_up=2,
    optimizer=2,
  ),
  one_version=True,
  look=29,
)
class FedMuon(methods.Options):
  """Clients that step along orthogonalised momenta (Liu et al.)."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': Momenta()}
