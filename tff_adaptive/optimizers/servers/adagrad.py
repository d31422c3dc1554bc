"""The server optimizer of FedAdagrad."""

from __future__ import annotations

from typing import Optional

from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.servers import fedopt


@registry.server_optimizer('adagrad', printed='Adagrad', adaptive=True)
class Adagrad(fedopt.AdaptiveServerOptimizer):
  """The FedAdagrad server optimizer: Reddi et al., 2003.00295, Algorithm 5.

  Once per round, elementwise, with Delta the mean client update (the gradient
  passed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = v + Delta^2                                   v starts at epsilon^2
    x = x + learning_rate m / (sqrt(v) + epsilon)

  epsilon (the paper's tau) is added outside the square root, unlike in
  `tff.learning.optimizers.build_adagrad`, whose steps with the same epsilon are
  smaller, by up to 1 / sqrt(epsilon) where v is small. 'reference', the rule of
  the released code, starts v at 0.
  """

  second_moment_text = 'v + s^2'
  corrects = False

  learning_rate: parameters.Positive = 0.1

  beta_1: parameters.Fraction = 0.0
  """Decay of m per round; 0 in all of the paper's experiments."""

  bias_correction: Optional[bool] = None
  """Whether to divide the step by 1 - beta_1^t; by default no, in both
  variants.
  """

  def follow(
    self, v: tf.Tensor, squared: tf.Tensor, beta_2: tf.Tensor
  ) -> tf.Tensor:
    return v + squared
