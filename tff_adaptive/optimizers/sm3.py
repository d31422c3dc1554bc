"""SM3 on a client: adaptive steps with sublinear memory."""

from typing import Literal
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import combinations
from tff_adaptive.optimizers import preconditioned

_FORMS = {
  'I': '{decay}mu(r) {plus} max of g^2 over slice r; v = min of mu',
  'II': 'v = {decay}min of mu {plus} g^2; mu(r) = max of v over slice r',
}


@parameters.checked
def build_sm3_adagrad(
  *,
  learning_rate: parameters.Positive = 0.01,
  epsilon: parameters.NonNegative = 1e-5,
  form: Literal['I', 'II'] = 'II',
  initial_accumulator: parameters.NonNegative = 0.0,
  delay: parameters.Count = 1,
  delay_unit: Literal['steps', 'epochs'] = 'steps',
  local_epochs: Optional[parameters.Count] = None,
  min_step_norm: parameters.NonNegative = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds SM3 AdaGrad, FedAda2 (arXiv 2410.18117), Algorithms 3 (I), 4 (II).

  With S_r the slices of co-dimension 1 of a tensor, at local step k, form II:

    v(j)  = min over r with j in S_r of mu(r) + g(j)^2
    mu(r) = max over j in S_r of v(j)
    x     = x - learning_rate g / (sqrt(v) + epsilon)

  Form I: mu(r) = mu(r) + max over j in S_r of g(j)^2; v(j) is the minimum of
  mu. At the steps that the delay leaves out, the paper keeps v; here only mu is
  kept and v is its minimum, so that nothing of the tensor's size is stored.

  Args:
    learning_rate: Step size, in units of x.
    epsilon: Adaptivity, in units of g.
    form: 'I' or 'II'.
    initial_accumulator: Where mu, and so v, starts in every round.
    delay: z: mu is renewed at every z-th local step, the first included.
    delay_unit: Whether the delay counts steps, or epochs: then mu is renewed at
      every step of local epochs 0, z, 2 z, ... and frozen in the others.
    local_epochs: Local epochs of a round, for a delay in epochs.
    min_step_norm: epsilon_s: a step whose norm over all weights is below this
      is not taken.

  Raises:
    ParameterError: If a hyperparameter is outside its range, or `local_epochs`
      is given without a delay in epochs or the reverse.
  """
  return preconditioned.PreconditionedClient(
    preconditioned.Sm3(preconditioned.adagrad_rule, form, initial_accumulator),
    learning_rate=learning_rate,
    epsilon=epsilon,
    delay=delay,
    delay_epochs=combinations.delay_epochs(delay_unit, local_epochs),
    min_step_norm=min_step_norm,
    rule_text=_FORMS[form].format(decay='', plus='+'),
  )


@parameters.checked
def build_sm3_adam(
  *,
  learning_rate: parameters.Positive = 0.001,
  beta_1: parameters.Fraction = 0.9,
  beta_2: parameters.Fraction = 0.999,
  epsilon: parameters.NonNegative = 1e-5,
  form: Literal['I', 'II'] = 'II',
  initial_accumulator: parameters.NonNegative = 0.0,
  delay: parameters.Count = 1,
  delay_unit: Literal['steps', 'epochs'] = 'steps',
  local_epochs: Optional[parameters.Count] = None,
  min_step_norm: parameters.NonNegative = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds SM3 with Adam's averages: FedAda2 (arXiv 2410.18117).

  As `build_sm3_adagrad` with

    v(j) = beta_2 min over r of mu(r) + (1 - beta_2) g(j)^2
    m    = beta_1 m + (1 - beta_1) g
    x    = x - learning_rate m / (sqrt(v) + epsilon)

  without bias correction. m has the weights' size; it is v that SM3 saves.

  Args:
    learning_rate: Step size, in units of x.
    beta_1: Decay of m per local step.
    beta_2: Decay of v per renewal.
    epsilon: Adaptivity, in units of g.
    form: 'I' or 'II'.
    initial_accumulator: Where mu, and so v, starts in every round.
    delay: z: mu is renewed at every z-th local step, the first included.
    delay_unit: Whether the delay counts steps, or epochs: then mu is renewed at
      every step of local epochs 0, z, 2 z, ... and frozen in the others.
    local_epochs: Local epochs of a round, for a delay in epochs.
    min_step_norm: epsilon_s: a step whose norm over all weights is below this
      is not taken; m goes on.

  Raises:
    ParameterError: If a hyperparameter is outside its range, or `local_epochs`
      is given without a delay in epochs or the reverse.
  """
  return preconditioned.PreconditionedClient(
    preconditioned.Sm3(preconditioned.adam_rule, form, initial_accumulator),
    learning_rate=learning_rate,
    epsilon=epsilon,
    beta_1=beta_1,
    beta_2=beta_2,
    delay=delay,
    delay_epochs=combinations.delay_epochs(delay_unit, local_epochs),
    min_step_norm=min_step_norm,
    rule_text=_FORMS[form].format(decay='beta_2 ', plus='+ (1 - beta_2)'),
  )
