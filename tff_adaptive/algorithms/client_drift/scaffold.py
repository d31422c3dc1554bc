"""SCAFFOLD: control variates on clients and server."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange
from tff_adaptive.processes import objectives


class ControlVariates(exchange.Exchange):
  """Control variates: Karimireddy et al., 1910.06378, option II, batched.

  As in Algorithm 6 of Reddi et al. (arXiv 2003.00295). With c the server's and
  c_i the client's control variate, K_i its local steps, S the cohort and N the
  number of all clients:

    c_i+ = c_i - c + (x_t - x_K) / (K_i learning_rate)
    c    = c + (|S| / N) mean of (c_i+ - c_i)

  K_i learning_rate stands for the sum of the learning rates of all steps, which
  is smaller during a warm-up. The mean uses the weights of the model's mean. c
  starts at 0; a client that takes part for the first time has c_i = c. A client
  outside the cohort keeps its c_i.
  """

  def __init__(self, population: Optional[int]):
    self._population = population

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(c=tree.zeros(specs))

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    return collections.OrderedDict(seen=tf.constant(False), c=tree.zeros(specs))

  def _own(self, client: exchange.Client) -> structures.FlatWeights:
    """Returns c_i before the round, flat."""
    return tuple(
      tf.where(client.state['seen'], own, server)
      for own, server in zip(client.state['c'], client.statistics['c'])
    )

  def context(self, client: exchange.Client) -> structures.FlatWeights:
    own = self._own(client)
    return tuple(c - c_i for c, c_i in zip(client.statistics['c'], own))

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    own = self._own(client)
    path = client.optimizer_state['learning_rate'] * client.full_steps
    renewed = tuple(
      c_i - c + tf.math.divide_no_nan(begin - end, tf.cast(path, begin.dtype))
      for c_i, c, begin, end in zip(
        own, client.statistics['c'], client.received, client.end
      )
    )
    return collections.OrderedDict(seen=tf.constant(True), c=renewed)

  def report(self, client: exchange.Client) -> exchange.Report:
    own = self._own(client)
    renewed = self.next_client_state(client)['c']
    change = tuple(new - old for new, old in zip(renewed, own))
    return exchange.report(weighted=collections.OrderedDict(c=change))

  def merge(self, server: exchange.Server) -> structures.Statistics:
    share = exchange.share_of(server.cohort_size, self._population)
    return collections.OrderedDict(
      c=tuple(
        c + tf.cast(share, c.dtype) * change
        for c, change in zip(
          server.statistics['c'], server.report.weighted['c']
        )
      )
    )


@methods.method(
  'scaffold',
  printed='SCAFFOLD',
  # At 0.1, control variates of clients with few steps grow without bound.
  defaults={'client_learning_rate': 0.02},
  fixes=('client',),
  hides=('client_momentum',),
  unnoised='the change of their control variates',
  client_words='SGD with control variates',
  server_words='any',
  costs=methods.Costs(
    down='c, d',
    up='its change, d',
    keeps='c_i, d',
    models_down=2,
    models_up=2,
    context=1,
    kept=1,
  ),
  one_version=True,
  look=12,
)
class Scaffold(methods.Options):
  """SGD clients with gradients corrected by control variates (Karimireddy et
  al.).
  """

  population: Optional[parameters.Count] = None
  """N, the total number of clients; by default the cohort size (full
  participation).
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'exchange': ControlVariates(self.population),
      'objective': objectives.Correction(),
    }
