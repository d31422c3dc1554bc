"""The hyperparameters that every method accepts."""

from typing import ClassVar
from typing import Literal

from tff_adaptive import parameters


class Common(parameters.Described):
  """Hyperparameters of the client work, shared by all methods."""

  in_state: ClassVar[frozenset[str]] = frozenset({'proximal_strength'})

  later: ClassVar[frozenset[str]] = frozenset(
    {'record_step_sizes', 'record_drift'}
  )

  client_weighting: Literal['examples', 'uniform', 'tokens'] = 'examples'
  """Weight of a client: 'examples' it iterated; 'uniform'; or 'tokens' it
  predicted, as in the FedOpt code of 2021 for words and characters."""

  proximal_strength: parameters.NonNegative = 0.0
  """mu of the term (mu / 2) |x - x_t|^2 added to the clients' loss (FedProx); 0
  for none."""

  client_warmup_steps: parameters.NonNegativeInt = 0
  """Local steps at the start of every round over which the client learning rate
  rises linearly to its value (FedAda2's warm-up); 0 for none."""

  seed: parameters.NonNegativeInt = 0
  """Seed of the randomness inside a round (dropout)."""

  record_step_sizes: bool = False
  """Whether to measure every client's step sizes, not only the cohort's mean; a
  run writes them to step_sizes.csv, one row per client and round."""

  record_drift: bool = False
  """Whether to measure how far clients drift apart: columns drift/... of
  metrics.csv. In simulations only; not with differential privacy or secure
  summation."""
