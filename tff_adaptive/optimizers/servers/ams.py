"""The server optimizer of FedAMS and FedAMSGrad."""

from __future__ import annotations

from typing import Literal, Optional

from tff_adaptive import parameters
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.servers import adam
from tff_adaptive.optimizers.servers import fedopt


@registry.server_optimizer('ams', printed='AMSGrad', adaptive=True)
class Ams(adam.Adam):
  """The FedAMS server optimizer: Wang et al. 2022, arXiv 2205.02719.

  Once per round, elementwise, with Delta the mean client update (the gradient
  passed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = beta_2 v + (1 - beta_2) Delta^2               v starts at 0
    v_max = max(v_max, v, epsilon)                    v_max starts at 0
    x = x + learning_rate m / sqrt(v_max)

  'amsgrad' (FedAMSGrad) removes epsilon from the maximum and adds it to the
  root. 'reference', the rule of the authors' code, starts v_max at epsilon,
  adds nothing to the root and multiplies the step by sqrt(1 - beta_2^t) / (1 -
  beta_1^t), with t counting rounds from 1.
  """

  epsilon: parameters.Positive = 1e-3
  """Numerical stabilizer; in units of Delta^2 inside the maximum and as an
  initial value, in units of Delta where added to the root.
  """

  variant: Literal['paper', 'amsgrad', 'reference'] = 'paper'  # type: ignore[assignment]
  """FedAMS, FedAMSGrad, or the rule of the authors' code."""

  initial_accumulator: Optional[parameters.NonNegative] = None
  """Initial value of v; 0 by default."""

  @property
  def start(self) -> float:
    return self.initial_accumulator or 0.0

  @property
  def maximum(self) -> fedopt.Maximum:
    return fedopt.Maximum(
      start=self.epsilon if self.variant == 'reference' else 0.0,
      floor=self.variant == 'paper',
    )

  @property
  def adds_epsilon(self) -> bool:
    return self.variant == 'amsgrad'
