"""FedAda2's blended form: pseudo-gradients weighted by the optimizer drawn."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.optimizers import blended
from tff_adaptive.processes import exchange


class WeightedByOptimizer(exchange.Exchange):
  """Updates w(O) (x_K - x_t), O the optimizer that the client drew.

  Line 7 of Algorithm 5 of FedAda2 (arXiv 2410.18117); Algorithms 8 and 10 call
  the weights Xi. They scale what is averaged, and are not weights of the mean.
  """

  def __init__(self, optimizer: blended.Blended):
    self._optimizer = optimizer

  def update(self, local: exchange.Local) -> structures.FlatWeights:
    weight = self._optimizer.weight_of(local.optimizer_state)
    return tuple(tf.cast(weight, u.dtype) * u for u in super().update(local))


def pieces(
  client_optimizer: blended.Blended,
  server_optimizer: tff.learning.optimizers.Optimizer,
) -> additions.Additions:
  """Adds the weights of the blended form's clients, if they have any."""
  del server_optimizer
  if not client_optimizer.weighs:
    return {}
  return {'exchange': WeightedByOptimizer(client_optimizer)}
