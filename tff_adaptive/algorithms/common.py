"""The hyperparameters that every method accepts."""

from typing import ClassVar
from typing import Literal

from tff_adaptive import parameters


class Common(parameters.Described):
  """Hyperparameters of the client work, whatever the method."""

  in_state: ClassVar[frozenset[str]] = frozenset({'proximal_strength'})

  client_weighting: Literal['examples', 'uniform', 'tokens'] = 'examples'
  """Whether clients count by the examples that they iterated, all alike, or by
  the tokens that they predicted, as the FedOpt code of 2021 did for words and
  characters."""

  proximal_strength: parameters.NonNegative = 0.0
  """mu of the term (mu / 2) |x - x_t|^2 added to the clients' loss (FedProx); 0
  for none."""

  client_warmup_steps: parameters.NonNegativeInt = 0
  """Local steps in every round over which the client's learning rate rises to
  its value (FedAda2's warm-up); 0 for none."""

  seed: parameters.NonNegativeInt = 0
  """Seed of what is random inside a round (dropout)."""

  record_step_sizes: bool = False
  """Whether every client's own step sizes are measured, not only the cohort's;
  a run writes them to step_sizes.csv, a row a client and round."""

  record_drift: bool = False
  """Whether it is measured how far clients drift apart: columns drift/... of
  metrics.csv. Of simulations only, and of none with privacy or secure
  summation."""
