"""FedSAM: clients that look for flat minima."""

from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers import wrapped


class SharpnessAware(wrapped.Wrapped):
  """Caldarola et al., arXiv 2203.11834; SAM as its clients.

  At every local step, both gradients on the same batch and the norm over all
  weights together (e = 0 where the gradient is):

    e = rho g(x) / |g(x)|
    x = x - learning_rate g(x + e)
  """

  note = 'with g = g(x + e), e = rho g(x) / |g(x)|'

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    batch = protocol.require_batch(batch, 'Sharpness-aware minimisation')
    gradients = tree.dense(weights, gradients)
    share = tf.math.divide_no_nan(state['rho'], tree.norm(gradients))
    away = tree.add_scaled(weights, share, gradients)
    return super().next(state, weights, batch.gradient_fn(away))


@parameters.checked
def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  rho: parameters.NonNegative = 0.05,
) -> additions.Additions:
  """Adds to its clients what makes FedSAM: gradients at the worst point nearby.

  Args:
    client_optimizer: Any that steps from gradients alone.
    server_optimizer: Any.
    rho: How far away the gradient is taken, in units of x.
  """
  del server_optimizer
  return {'client_optimizer': SharpnessAware(client_optimizer, rho=rho)}
