"""FedAdam."""

from typing import Literal
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import fedopt

RULE = fedopt.SecondMoment(
  lambda v, squared, beta_2: beta_2 * v + (1 - beta_2) * squared,
  'beta_2 v + (1 - beta_2) s^2',
)


@parameters.checked
def build_adam(
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
  """Builds FedAdam's server optimizer: Reddi et al., 2003.00295, Alg. 5.

  Elementwise, once per round, with Delta the mean client update (the gradient
  handed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = beta_2 v + (1 - beta_2) Delta^2               v starts at epsilon^2
    x = x + learning_rate m / (sqrt(v) + epsilon)

  The 'paper' variant has no bias correction. 'reference', as the released code
  ran, multiplies the step by sqrt(1 - beta_2^t) / (1 - beta_1^t) with t
  counting rounds from 1, and starts v at 0: it equals Keras' Adam and
  `tff.learning.optimizers.build_adam` with the same numbers.

  Args:
    learning_rate: Server step, in units of x per round.
    beta_1: Decay of m per round.
    beta_2: Decay of v per round.
    epsilon: Adaptivity tau, in units of Delta.
    variant: 'paper' or 'reference', see above.
    second_moment: What v averages the square of: Delta ('gradient') or m
      ('momentum', the letter of one version of the paper).
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
