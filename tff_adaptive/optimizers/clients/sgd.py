"""The SGD client optimizer, with optional momentum."""

from __future__ import annotations

from typing import ClassVar

from tff_adaptive import parameters
from tff_adaptive.lazy import tff
from tff_adaptive.optimizers import registry


@registry.client_optimizer('sgd', printed='SGD')
class Sgd(parameters.Described):
  """The stochastic gradient descent client optimizer.

    m = momentum m + g              m starts at 0 in every round
    x = x - learning_rate m

  There is neither dampening nor a Nesterov step. Built as
  `tff.learning.optimizers.build_sgdm`.
  """

  in_state: ClassVar[frozenset[str]] = frozenset({'learning_rate', 'momentum'})

  learning_rate: parameters.Positive = 0.1
  """Step size, in units of x per gradient."""

  momentum: parameters.Fraction = 0.0
  """Decay of the velocity per step; 0 for plain SGD."""

  def build(self) -> tff.learning.optimizers.Optimizer:
    return tff.learning.optimizers.build_sgdm(
      self.learning_rate, self.momentum or None
    )
