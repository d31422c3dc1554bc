"""FedCM: client-level momentum along the last global update direction."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import exchanges
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers import wrapped
from tff_adaptive.processes import exchange


class ClientMomentum(wrapped.Wrapped):
  """SGD along a mix of the client's gradient and the received direction."""

  note = 'with g = alpha g + (1 - alpha) Delta_t, Delta_t as received'

  alpha: parameters.Ratio
  """Weight of the client's own gradient."""

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = super().initialize(specs)
    state['direction'] = tree.zeros(specs)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    mixed = tree.map_cast(
      lambda a, g, d: a * g + (1 - a) * d,
      (state['alpha'],),
      tree.dense(weights, gradients),
      state['direction'],
    )
    return super().next(state, weights, mixed)


class LastDirection(exchange.Exchange):
  """The global direction of FedCM: Xu et al., arXiv 2106.10874.

  The server sends Delta_t, initially 0, and updates it by

    Delta_(t+1) = -Delta / mean of eta K_i

  with eta K_i the sum of a client's local learning rates, which the client
  sends.
  """

  sees_update = True

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(direction=tuple(tree.zeros(specs)))

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    return collections.OrderedDict(
      client.optimizer_state, direction=client.statistics['direction']
    )

  def report(self, client: exchange.Client) -> exchange.Report:
    rate = client.optimizer_state['base']['learning_rate']
    return exchange.report(
      weighted=collections.OrderedDict(path=exchanges.local_path(client, rate))
    )

  def merge(self, server: exchange.Server) -> structures.Statistics:
    path = server.report.weighted['path']
    return collections.OrderedDict(
      direction=exchanges.global_direction(server, path)
    )


@methods.method(
  'fedcm',
  printed='FedCM',
  fixes=('client',),
  hides=('client_momentum',),
  unnoised='their numbers of local steps',
  client_words='SGD mixed with the last global direction',
  server_words='any',
  costs=methods.Costs(
    down='direction, d', up='a number', models_down=2, optimizer=1
  ),
  one_version=True,
  look=25,
)
class FedCm(methods.Options):
  """SGD clients that mix the last global update direction into their steps (Xu
  et al.).
  """

  in_state = frozenset({'alpha'})

  alpha: parameters.Ratio = 0.1
  """Weight of a client's own gradient; 1 is federated averaging."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'client_optimizer': ClientMomentum(
        base=chosen.client_optimizer, alpha=self.alpha
      ),
      'exchange': LastDirection(),
    }
