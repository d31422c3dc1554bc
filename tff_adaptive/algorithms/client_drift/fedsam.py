"""FedSAM: sharpness-aware minimization on clients."""

from __future__ import annotations

from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers import wrapped


class SharpnessAware(wrapped.Wrapped):
  """Sharpness-aware steps: Caldarola et al., arXiv 2203.11834.

  At every local step, with both gradients on the same batch and the norm over
  all weights together (e = 0 if the gradient is 0):

    e = rho g(x) / |g(x)|
    x = x - learning_rate g(x + e)
  """

  note = 'with g = g(x + e), e = rho g(x) / |g(x)|'

  rho: parameters.NonNegative
  """Norm of the perturbation e, in units of x."""

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


@methods.method(
  'fedsam',
  printed='FedSAM',
  accepts={'client': methods.GRADIENTS_ALONE},
  # A wrapped optimizer sees no batches, by which epochs are counted.
  hides=('delay_unit', 'local_epochs'),
  client_words='SGD or any, sharpness-aware',
  server_words='any',
  costs=methods.Costs(gradients=2),
  look=27,
)
class FedSam(methods.Options):
  """Sharpness-aware clients (Caldarola et al.)."""

  in_state = frozenset({'rho'})

  rho: parameters.NonNegative = 0.05
  """Norm of the perturbation e, in units of x."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'client_optimizer': SharpnessAware(
        base=chosen.client_optimizer, rho=self.rho
      )
    }
