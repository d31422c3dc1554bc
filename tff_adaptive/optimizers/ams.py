"""FedAMS and FedAMSGrad."""

from typing import Literal
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import adam
from tff_adaptive.optimizers import fedopt


@parameters.checked
def build_ams(
  *,
  learning_rate: parameters.Positive = 0.01,
  beta_1: parameters.Fraction = 0.9,
  beta_2: parameters.Fraction = 0.99,
  epsilon: parameters.Positive = 1e-3,
  variant: Literal['paper', 'amsgrad', 'reference'] = 'paper',
  second_moment: Literal['gradient', 'momentum'] = 'gradient',
  bias_correction: Optional[bool] = None,
  initial_accumulator: Optional[parameters.NonNegative] = None,
) -> tff.learning.optimizers.Optimizer:
  """Builds FedAMS' server optimizer: Wang et al. 2022, arXiv 2205.02719.

  Elementwise, once per round, with Delta the mean client update (the gradient
  handed in is -Delta):

    m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
    v = beta_2 v + (1 - beta_2) Delta^2               v starts at 0
    v_max = max(v_max, v, epsilon)                    v_max starts at 0
    x = x + learning_rate m / sqrt(v_max)

  'amsgrad' (FedAMSGrad) takes epsilon out of the maximum and adds it to the
  root. 'reference', as the authors' code ran, starts v_max at epsilon, adds
  nothing to the root and multiplies the step by sqrt(1 - beta_2^t) / (1 -
  beta_1^t), t counting rounds from 1.

  Args:
    learning_rate: Server step, in units of x per round.
    beta_1: Decay of m per round.
    beta_2: Decay of v per round.
    epsilon: Stabilisation; in units of Delta^2 inside the maximum and as a
      start, in units of Delta where it is added to the root.
    variant: 'paper', 'amsgrad' or 'reference', see above.
    second_moment: What v averages the square of: Delta ('gradient') or m
      ('momentum').
    bias_correction: Unless given, the variant's.
    initial_accumulator: Where v starts; 0 unless given.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return fedopt.build(
    adam.RULE,
    learning_rate=learning_rate,
    beta_1=beta_1,
    beta_2=beta_2,
    epsilon=epsilon,
    variant=variant,
    second_moment=second_moment,
    bias_correction=bias_correction,
    initial_accumulator=initial_accumulator,
    start=0.0,
    maximum=fedopt.Maximum(
      start=epsilon if variant == 'reference' else 0.0,
      floor=variant == 'paper',
    ),
    adds_epsilon=variant == 'amsgrad',
  )
