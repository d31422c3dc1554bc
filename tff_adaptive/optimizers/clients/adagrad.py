"""The AdaGrad client optimizer."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.clients import preconditioned


@registry.client_optimizer('adagrad', printed='Adagrad', adaptive=True)
class Adagrad(preconditioned.PreconditionedClient):
  """The AdaGrad client optimizer of FedAda2 (arXiv 2410.18117), Algorithm 9.

  At local step k = 1, 2, ..., elementwise, with delay z:

    v = v + g^2    if (k - 1) mod z is 0, else unchanged
    x = x - learning_rate g / (sqrt(v) + epsilon)

  epsilon is added outside the square root, as in torch and unlike in
  `tff.learning.optimizers.build_adagrad`.
  """

  rule_text = 'v = v + g^2'

  learning_rate: parameters.Positive = 0.01
  """Step size, in units of x."""

  @property
  def preconditioner(self) -> preconditioned.Full:
    return preconditioned.Full(
      preconditioned.adagrad_rule, self.initial_accumulator
    )
