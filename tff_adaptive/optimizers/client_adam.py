"""Adam on a client."""

from typing import Literal
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import combinations
from tff_adaptive.optimizers import preconditioned


@parameters.checked
def build_client_adam(
  *,
  learning_rate: parameters.Positive = 0.001,
  beta_1: parameters.Fraction = 0.9,
  beta_2: parameters.Fraction = 0.999,
  epsilon: parameters.NonNegative = 1e-5,
  initial_accumulator: parameters.NonNegative = 0.0,
  delay: parameters.Count = 1,
  delay_unit: Literal['steps', 'epochs'] = 'steps',
  local_epochs: Optional[parameters.Count] = None,
  min_step_norm: parameters.NonNegative = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds FedAda2's Adam client (arXiv 2410.18117), Algorithm 7 (ADMU).

  Elementwise at local step k = 1, 2, ..., with z the delay and
  u = floor((k - 1) / z) + 1 the number of renewals of v so far:

    m = beta_1 m + (1 - beta_1) g
    v = beta_2 v + (1 - beta_2) g^2    if (k - 1) mod z is 0, else as it was
    x = x - learning_rate m' / (sqrt(v') + epsilon)
    with m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^u)

  With z = 1 this is Kingma and Ba's Adam with epsilon added to the corrected
  root, as in torch and optax; Keras and TFF add it to the root of v.

  Args:
    learning_rate: Step size, in units of x.
    beta_1: Decay of m per local step.
    beta_2: Decay of v per renewal.
    epsilon: Adaptivity, in units of g.
    initial_accumulator: Where v starts in every round.
    delay: z: v is renewed at every z-th local step, the first included.
    delay_unit: Whether the delay counts steps, or epochs: then v is renewed at
      every step of local epochs 0, z, 2 z, ... and frozen in the others.
    local_epochs: Local epochs of a round, for a delay in epochs.
    min_step_norm: epsilon_s: a step whose norm over all weights is below this
      is not taken; m goes on.

  Raises:
    ParameterError: If a hyperparameter is outside its range, or `local_epochs`
      is given without a delay in epochs or the reverse.
  """
  return preconditioned.PreconditionedClient(
    preconditioned.Full(preconditioned.adam_rule, initial_accumulator),
    learning_rate=learning_rate,
    epsilon=epsilon,
    beta_1=beta_1,
    beta_2=beta_2,
    corrects_bias=True,
    delay=delay,
    delay_epochs=combinations.delay_epochs(delay_unit, local_epochs),
    min_step_norm=min_step_norm,
    rule_text='v = beta_2 v + (1 - beta_2) g^2',
  )
