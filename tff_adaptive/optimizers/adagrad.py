"""FedAdagrad."""

from typing import Literal
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import fedopt

RULE = fedopt.SecondMoment(
  lambda v, squared, _: v + squared, 'v + s^2', decays=False
)


@parameters.checked
def build_adagrad(
  *,
  learning_rate: parameters.Positive = 0.1,
  beta_1: parameters.Fraction = 0.0,
  epsilon: parameters.Positive = 1e-3,
  variant: Literal['paper', 'reference'] = 'paper',
  second_moment: Literal['gradient', 'momentum'] = 'gradient',
  bias_correction: Optional[bool] = None,
  initial_accumulator: Optional[parameters.NonNegative] = None,
) -> tff.learning.optimizers.Optimizer:
  """Builds FedAdagrad's server optimizer: Reddi et al., 2003.00295, Alg. 5.

  Elementwise, once per round, with Delta the mean client update (the gradient
  handed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = v + Delta^2                                   v starts at epsilon^2
    x = x + learning_rate m / (sqrt(v) + epsilon)

  epsilon (the paper's tau) stands outside the root, unlike in
  `tff.learning.optimizers.build_adagrad`, whose steps with the same number are
  smaller, by up to 1 / sqrt(epsilon) where v is small.

  Args:
    learning_rate: Server step, in units of x per round.
    beta_1: Decay of m per round; 0 in all of the paper's experiments.
    epsilon: Adaptivity tau, in units of Delta.
    variant: 'paper', or 'reference' as the released code ran: v starts at 0.
    second_moment: What v adds the square of: Delta ('gradient') or m
      ('momentum').
    bias_correction: Whether to divide the step by 1 - beta_1^t. Unless given,
      no in both variants.
    initial_accumulator: Where v starts. Unless given, the variant's.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return fedopt.build(
    RULE,
    learning_rate=learning_rate,
    beta_1=beta_1,
    epsilon=epsilon,
    variant=variant,
    second_moment=second_moment,
    bias_correction=bias_correction,
    initial_accumulator=initial_accumulator,
    corrects=False,
  )
