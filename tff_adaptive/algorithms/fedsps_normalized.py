"""FedSPS-Normalized: clients count by the inverse of how far they stepped."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.algorithms import additions
from tff_adaptive.processes import exchange


class InverseStepSum(exchange.Exchange):
  """A client weight of 1 / nu_i, nu_i the sum of the client's step sizes.

  A client with nu_i = 0 is left out; if all are, the model stays.
  """

  weight_formula = '1 / nu, nu the sum of its step sizes in the round'

  def weight(self, local: exchange.Local) -> tf.Tensor:
    return tf.math.divide_no_nan(1.0, local.optimizer_state['total'])


def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
) -> additions.Additions:
  """Adds the weights of FedSPS-Normalized's mean to FedSPS."""
  del client_optimizer, server_optimizer
  return {'exchange': InverseStepSum()}
