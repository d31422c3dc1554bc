"""The server optimizer of FedAdam."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.servers import fedopt


@registry.server_optimizer('adam', printed='Adam', adaptive=True)
class Adam(fedopt.AdaptiveServerOptimizer):
  """The FedAdam server optimizer: Reddi et al., arXiv 2003.00295, Algorithm 5.

  Once per round, elementwise, with Delta the mean client update (the gradient
  passed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = beta_2 v + (1 - beta_2) Delta^2               v starts at epsilon^2
    x = x + learning_rate m / (sqrt(v) + epsilon)

  The 'paper' variant has no bias correction. 'reference', the rule of the
  released code, starts v at 0 and multiplies the step by sqrt(1 - beta_2^t) /
  (1 - beta_1^t), with t counting rounds from 1. It equals Keras' Adam and
  `tff.learning.optimizers.build_adam` with the same numbers.
  """

  second_moment_text = 'beta_2 v + (1 - beta_2) s^2'

  beta_2: parameters.Fraction = 0.99
  """Decay of v per round."""

  def follow(
    self, v: tf.Tensor, squared: tf.Tensor, beta_2: tf.Tensor
  ) -> tf.Tensor:
    return beta_2 * v + (1 - beta_2) * squared
