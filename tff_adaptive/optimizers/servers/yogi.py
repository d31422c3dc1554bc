"""The server optimizer of FedYogi."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.servers import fedopt


@registry.server_optimizer('yogi', printed='Yogi', adaptive=True)
class Yogi(fedopt.AdaptiveServerOptimizer):
  """The FedYogi server optimizer: Reddi et al., arXiv 2003.00295, Algorithm 5.

  Once per round, elementwise, with Delta the mean client update (the gradient
  passed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = v - (1 - beta_2) Delta^2 sign(v - Delta^2)    v starts at epsilon^2
    x = x + learning_rate m / (sqrt(v) + epsilon)

  Unlike Adam's, the change of v does not depend on the distance between v and
  Delta^2. 'reference', the rule of the released code, adds the bias correction
  of `tff.learning.optimizers.build_yogi` and starts v at 0.
  """

  second_moment_text = 'v - (1 - beta_2) s^2 sign(v - s^2)'

  beta_2: parameters.Fraction = 0.99
  """Decay of v per round."""

  def follow(
    self, v: tf.Tensor, squared: tf.Tensor, beta_2: tf.Tensor
  ) -> tf.Tensor:
    return v - (1 - beta_2) * squared * tf.sign(v - squared)
