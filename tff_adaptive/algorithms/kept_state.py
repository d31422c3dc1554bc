"""Client optimizers that keep their state between rounds."""

from __future__ import annotations

import collections

from tff_adaptive import structures
from tff_adaptive.lazy import tff
from tff_adaptive.processes import exchange


class KeptState(exchange.Exchange):
  """Each client keeps the state of its optimizer between rounds.

  Hyperparameters are not kept; moments and the step count of their bias
  correction are. A client that takes part for the first time starts from the
  optimizer's initial state.
  """

  def __init__(self, client_optimizer: tff.learning.optimizers.Optimizer):
    self._optimizer = client_optimizer

  def _kept(self, state: structures.OptimizerState) -> structures.ClientState:
    hparams = self._optimizer.get_hparams(state)
    return collections.OrderedDict(
      (name, value) for name, value in state.items() if name not in hparams
    )

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    return self._kept(self._optimizer.initialize(specs))

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    return collections.OrderedDict(client.optimizer_state, **client.state)

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    return self._kept(client.optimizer_state)
