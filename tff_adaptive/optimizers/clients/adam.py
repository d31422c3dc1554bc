"""The Adam client optimizer."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.clients import preconditioned


@registry.client_optimizer('adam', printed='Adam', adaptive=True)
class Adam(preconditioned.PreconditionedClient):
  """The Adam client optimizer of FedAda2 (arXiv 2410.18117), Algorithm 7.

  At local step k = 1, 2, ..., elementwise, with delay z and u = floor((k - 1) /
  z) + 1 the number of updates of v so far:

    m = beta_1 m + (1 - beta_1) g
    v = beta_2 v + (1 - beta_2) g^2    if (k - 1) mod z is 0, else unchanged
    x = x - learning_rate m' / (sqrt(v') + epsilon)
    with m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^u)

  With z = 1 this is Kingma and Ba's Adam with epsilon added to the root of the
  corrected v, as in torch and optax; Keras and TFF add it to the root of v.
  """

  corrects_bias = True
  rule_text = 'v = beta_2 v + (1 - beta_2) g^2'

  learning_rate: parameters.Positive = 0.001
  """Step size, in units of x."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.999
  """Decay of v per update of v."""

  @property
  def preconditioner(self) -> preconditioned.Full:
    return preconditioned.Full(
      preconditioned.adam_rule, self.initial_accumulator
    )
