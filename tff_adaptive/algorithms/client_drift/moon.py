"""MOON: a contrastive term in the clients' loss."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange
from tff_adaptive.processes import objectives


class PreviousModel(exchange.Exchange):
  """The model at the end of a client's last round, kept on the client.

  A client that takes part for the first time uses the received model instead.
  """

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    return collections.OrderedDict(
      seen=tf.constant(False), weights=tree.zeros(specs)
    )

  def context(self, client: exchange.Client) -> structures.FlatWeights:
    return tuple(
      tf.where(client.state['seen'], previous, received)
      for previous, received in zip(client.state['weights'], client.received)
    )

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    return collections.OrderedDict(seen=tf.constant(True), weights=client.end)


@methods.method(
  'moon',
  printed='MOON',
  client_words='SGD or any, with a contrastive term',
  server_words='any',
  costs=methods.Costs(keeps='last model, d', context=1, kept=1),
  look=14,
)
class Moon(methods.Options):
  """Clients kept near the server's representations by a contrastive term (Li et
  al.).
  """

  in_state = frozenset({'contrastive_strength', 'temperature'})

  contrastive_strength: parameters.NonNegative = 1.0
  """mu, the factor of the contrastive term."""

  temperature: parameters.Positive = 0.5
  """T, the divisor of the cosine similarities."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'exchange': PreviousModel(),
      'objective': objectives.Contrastive(
        self.contrastive_strength, self.temperature
      ),
    }
