"""FedDecSPS: decreasing stochastic Polyak steps."""

from __future__ import annotations

import collections
from typing import Literal, Optional

from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.processes import exchange


class Recursion(exchange.Exchange):
  """The state of c_k gamma_k = min(ratio, c_(k-1) gamma_(k-1)) across rounds.

  With `counts`, the server counts local steps: all clients of a round start
  from the same count, which the round advances by the largest number of steps
  among its clients. With `keeps_state`, each client continues from its own last
  positive c_k gamma_k, and one that takes part for the first time from c
  gamma_b.
  """

  def __init__(self, *, counts: bool, keeps_state: bool):
    self._counts = counts
    self._keeps_state = keeps_state

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    if not self._counts:
      return collections.OrderedDict()
    return collections.OrderedDict(count=tf.constant(0, tf.int32))

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> Optional[structures.ClientState]:
    if not self._keeps_state:
      return None
    # The initial value of the optimizer's own state.
    return collections.OrderedDict(bound=tf.constant(1.0))

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    # All three use the names of the optimizer's state.
    return collections.OrderedDict(
      client.optimizer_state, **client.statistics, **client.state
    )

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    if not self._keeps_state:
      return client.state
    return collections.OrderedDict(bound=client.optimizer_state['bound'])

  def report(self, client: exchange.Client) -> exchange.Report:
    if not self._counts:
      return exchange.report()
    return exchange.report(
      maximum=collections.OrderedDict(num_steps=client.num_steps)
    )

  def merge(self, server: exchange.Server) -> structures.Statistics:
    if not self._counts:
      return server.statistics
    return collections.OrderedDict(
      count=server.statistics['count'] + server.report.maximum['num_steps']
    )


def _exchanges(own: FedDecSps) -> bool:
  """Returns whether any state is carried across rounds."""
  return {own.count, own.memory} != {'round'}


@methods.method(
  'feddecsps',
  printed='FedDecSPS',
  # Counted over all of training, steps are too small long before 200 rounds.
  defaults={'count': 'round'},
  client='polyak_decreasing',
  fixes=('client',),
  unnoised="their numbers of local steps (not with `count='round'`)",
  client_words='decreasing Polyak steps',
  server_words='any',
  one_version=_exchanges,
  look=9,
)
class FedDecSps(methods.Options):
  """FedSPS with steps that shrink during training."""

  count: Literal['training', 'round'] = 'training'
  """Whether k in c_k counts local steps since the start of training or within
  the round.
  """

  memory: Literal['round', 'client'] = 'round'
  """Whether the bound c_(k-1) gamma_(k-1) is reset to c gamma_b every round, or
  kept by each client between rounds, as in the paper's recursion.
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    if not _exchanges(self):
      return {}
    return {
      'exchange': Recursion(
        counts=self.count == 'training', keeps_state=self.memory == 'client'
      )
    }
