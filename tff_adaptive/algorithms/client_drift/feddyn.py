"""FedDyn: dynamic regularization, which aligns the clients' minima."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange
from tff_adaptive.processes import objectives


class DynamicRegularization(exchange.Exchange):
  """The regularization of FedDyn: Acar et al., arXiv 2111.04263.

  A client adds -<lambda_i, x> + (alpha / 2) |x - x_t|^2 to its loss and updates

    lambda_i = lambda_i - alpha (x_K - x_t)            initially 0

  With Delta the mean update, S the cohort and N the number of all clients, the
  server updates

    h = h - alpha (|S| / N) Delta                      initially 0
    x = x + Delta - h / alpha

  Only the model and the update are communicated. A client outside the cohort
  keeps its lambda_i.
  """

  sees_update = True
  update_formula = (
    'h = h - alpha (|S| / N) Delta, from 0\nDelta = Delta - h / alpha'
  )

  hparam_names = ('_alpha',)

  def __init__(self, alpha: float, population: Optional[int]):
    self._alpha = alpha
    self._population = population

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(h=tuple(tree.zeros(specs)))

  def broadcast(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    return collections.OrderedDict()

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    return collections.OrderedDict(gradient=tuple(tree.zeros(specs)))

  def context(self, client: exchange.Client) -> structures.FlatWeights:
    return tuple(-g for g in client.state['gradient'])

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    gradient = tree.add_scaled(
      client.state['gradient'], -self._alpha, self.update(client)
    )
    return collections.OrderedDict(gradient=gradient)

  def merge(self, server: exchange.Server) -> structures.Statistics:
    share = exchange.share_of(server.cohort_size, self._population)
    return collections.OrderedDict(
      h=tree.add_scaled(
        server.statistics['h'], -self._alpha * share, server.update
      )
    )

  def step(self, server: exchange.Server) -> structures.FlatWeights:
    return tree.add_scaled(
      server.update, -1 / self._alpha, server.statistics['h']
    )


@methods.method(
  'feddyn',
  printed='FedDyn',
  # At 0.01, the server's h outgrows the updates after some fifty rounds.
  defaults={'proximal_strength': 0.1},
  **methods.OWN_STEP,
  unnoised='their participation',
  client_words='SGD or any, with a linear and a proximal term',
  server_words='its own step',
  costs=methods.Costs(keeps='lambda_i, d', context=1, kept=1),
  one_version=True,
  look=26,
)
class FedDyn(methods.Options):
  """Clients with dynamically regularized objectives, whose minima agree (Acar
  et al.).
  """

  in_state = frozenset({'proximal_strength'})

  proximal_strength: parameters.Positive = 0.01
  """alpha, the strength of the proximal term and the rate of the clients'
  gradient estimates lambda_i."""

  population: Optional[parameters.Count] = None
  """N, the total number of clients; by default the cohort size (full
  participation).
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'exchange': DynamicRegularization(
        self.proximal_strength, self.population
      ),
      'objective': objectives.Correction('-lambda_i'),
    }
