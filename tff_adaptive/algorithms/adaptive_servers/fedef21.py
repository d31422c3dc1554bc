"""FedEF21: compressed changes of an estimate shared by client and server."""

from __future__ import annotations

import collections
from typing import Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms.adaptive_servers import fedcams
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import encodings
from tff_adaptive.processes import exchange


class Estimates(exchange.Exchange):
  """EF21 with partial participation: arXiv 2106.05203 and 2110.03294.

  Applied to the clients' updates in place of gradients. With C the compressor,
  applied to all trainable weights as one vector, S the cohort and N the number
  of all clients:

    c_i = C(Delta_i - g_i), which the client sends
    g_i = g_i + c_i                                    initially 0
    g   = g + (|S| / N) mean of c_i                    initially 0

  The server steps with g. A client outside the cohort keeps its g_i.
  """

  sees_update = True

  def __init__(
    self, encoding: encodings.Encoding, name: str, population: Optional[int]
  ):
    self.encoding = encoding
    self._compress = encoding.compress
    self._population = population
    share = '' if population is None else f'(|S| / {population}) '
    self.update_formula = (
      f'Delta = g, g = g + {share}mean of c_i, from 0\n'
      f'c_i = C(Delta_i - g_i), g_i = g_i + c_i, from 0, C = {name}'
    )

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(estimate=tuple(tree.zeros(specs)))

  def broadcast(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    return collections.OrderedDict()

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    return collections.OrderedDict(estimate=tuple(tree.zeros(specs)))

  def update(self, client: exchange.Client) -> structures.FlatWeights:
    own = tuple(client.state['estimate'])
    change = tree.subtract(super().update(client), own)
    return encodings.split(
      self._compress(encodings.joined(change)), like=change
    )

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    own = tuple(client.state['estimate'])
    return collections.OrderedDict(estimate=tree.add(own, self.update(client)))

  def merge(self, server: exchange.Server) -> structures.Statistics:
    share = exchange.share_of(server.cohort_size, self._population)
    return collections.OrderedDict(
      estimate=tree.add_scaled(
        tuple(server.statistics['estimate']), share, server.update
      )
    )

  def step(self, server: exchange.Server) -> structures.FlatWeights:
    return tuple(server.statistics['estimate'])


@methods.method(
  'fedef21',
  printed='FedEF21',
  unnoised='their participation',
  client_words='SGD or any, compressed: 1/32 d up',
  server_words='any, on the estimate',
  costs=methods.Costs(keeps='estimate, d', models_up=1 / 32, kept=1),
  one_version=True,
  look=38,
)
class FedEf21(fedcams.Compressing):
  """Clients that send compressed changes of an estimate of their update, which
  the server tracks too (Richtarik et al.; Fatkhullin et al.).
  """

  compressor: Literal['sign', 'topk'] = 'topk'
  """Compressor of the d entries of u: 'topk' sends the max(floor(r d), 1)
  entries of largest absolute value; 'sign' sends sign(u) |u|_1 / d."""

  population: Optional[parameters.Count] = None
  """N, the total number of clients; by default the cohort size (full
  participation). A wrong N rescales every step.
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': Estimates(*self.compression(), self.population)}
