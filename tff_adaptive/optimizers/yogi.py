"""FedYogi."""

from typing import Literal
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import fedopt

RULE = fedopt.SecondMoment(
  lambda v, squared, beta_2: v - (1 - beta_2) * squared * tf.sign(v - squared),
  'v - (1 - beta_2) s^2 sign(v - s^2)',
)


@parameters.checked
def build_yogi(
  *,
  learning_rate: parameters.Positive = 0.01,
  beta_1: parameters.Fraction = 0.9,
  beta_2: parameters.Fraction = 0.99,
  epsilon: parameters.Positive = 1e-3,
  variant: Literal['paper', 'reference'] = 'paper',
  second_moment: Literal['gradient', 'momentum'] = 'gradient',
  bias_correction: Optional[bool] = None,
  initial_accumulator: Optional[parameters.NonNegative] = None,
) -> tff.learning.optimizers.Optimizer:
  """Builds FedYogi's server optimizer: Reddi et al., 2003.00295, Alg. 5.

  Elementwise, once per round, with Delta the mean client update (the gradient
  handed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = v - (1 - beta_2) Delta^2 sign(v - Delta^2)    v starts at epsilon^2
    x = x + learning_rate m / (sqrt(v) + epsilon)

  Unlike Adam's, v moves by a step that does not depend on how far it is from
  Delta^2. 'reference', as the released code ran, adds the bias correction that
  `tff.learning.optimizers.build_yogi` has, and starts v at 0.

  Args:
    learning_rate: Server step, in units of x per round.
    beta_1: Decay of m per round.
    beta_2: Decay of v per round.
    epsilon: Adaptivity tau, in units of Delta.
    variant: 'paper' or 'reference', see above.
    second_moment: What v follows the square of: Delta ('gradient') or m
      ('momentum').
    bias_correction: Unless given, the variant's.
    initial_accumulator: Where v starts. Unless given, the variant's.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return fedopt.build(
    RULE,
    learning_rate=learning_rate,
    beta_1=beta_1,
    beta_2=beta_2,
    epsilon=epsilon,
    variant=variant,
    second_moment=second_moment,
    bias_correction=bias_correction,
    initial_accumulator=initial_accumulator,
  )
