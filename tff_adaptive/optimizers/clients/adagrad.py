"""AdaGrad on a client."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.clients import preconditioned


@registry.client_optimizer('adagrad', printed='Adagrad', adaptive=True)
class Adagrad(preconditioned.PreconditionedClient):
  """FedAda2's AdaGrad client (arXiv 2410.18117), Algorithm 9 (AGDU).

  Elementwise at local step k = 1, 2, ..., with z the delay:

    v = v + g^2    if (k - 1) mod z is 0, else as it was
    x = x - learning_rate g / (sqrt(v) + epsilon)

  epsilon stands outside the root, as in torch and unlike in
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
