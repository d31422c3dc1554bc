"""What the exchanges of several methods share.

The global direction of a round is minus the mean update, divided by the mean of
eta K_i, the sums of the clients' local learning rates. It has the scale of a
gradient, whatever the number of steps, the schedule and the warm-up.
"""

from __future__ import annotations

import collections

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff
from tff_adaptive.processes import exchange


class OwnRate(exchange.Exchange):
  """An exchange whose server steps with `rate`, one of its statistics.

  The step is `rate` times the mean update. Statistics are not broadcast.
  """

  sees_update = True

  def broadcast(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    return collections.OrderedDict()

  def step(self, server: exchange.Server) -> structures.FlatWeights:
    return tuple(
      tf.cast(server.statistics['rate'], u.dtype) * u for u in server.update
    )


def local_path(client: exchange.Client, learning_rate: tf.Tensor) -> tf.Tensor:
  """Computes the sum of a client's local learning rates, float32 scalar."""
  return learning_rate * client.full_steps


def global_direction(
  server: exchange.Server, mean_path: tf.Tensor
) -> structures.FlatWeights:
  """Computes the direction of a round, with the sign of a gradient; flat."""
  return tuple(
    tf.math.divide_no_nan(-u, tf.cast(mean_path, u.dtype))
    for u in server.update
  )


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
