"""The hyperparameters that every method accepts, as a signature to read."""

from typing import Literal

from tff_adaptive import parameters


def common(
  *,
  client_weighting: Literal['examples', 'uniform', 'tokens'] = 'examples',
  proximal_strength: parameters.NonNegative = 0.0,
  client_warmup_steps: parameters.NonNegativeInt = 0,
  seed: parameters.NonNegativeInt = 0,
  record_step_sizes: bool = False,
) -> None:
  """Does nothing; `building` hands the values to where they belong.

  Args:
    client_weighting: Whether clients count by the examples that they iterated,
      all alike, or by the tokens that they predicted, as the FedOpt code of
      2021 did for words and characters.
    proximal_strength: mu of the term (mu / 2) |x - x_t|^2 added to the clients'
      loss (FedProx); 0 for none.
    client_warmup_steps: Local steps in every round over which the client's
      learning rate rises to its value (FedAda2's warm-up); 0 for none.
    seed: Seed of what is random inside a round (dropout).
    record_step_sizes: Whether every client's own step sizes are measured, not
      only the cohort's; a run writes them to step_sizes.csv, a row a client and
      round.
  """
