"""The hyperparameters that every method accepts."""

from typing import ClassVar, Literal

from tff_adaptive import parameters


class Common(parameters.Described):
  """Hyperparameters of the client work, shared by all methods."""

  in_state: ClassVar[frozenset[str]] = frozenset({'proximal_strength'})

  later: ClassVar[frozenset[str]] = frozenset(
    {'record_step_sizes', 'record_drift'}
  )

  client_weighting: Literal['examples', 'uniform', 'tokens'] = 'examples'
  """Client weighting: by 'examples' processed, by 'tokens' predicted (as in the
  FedOpt code of 2021 for words and characters), or 'uniform'.
  """

  proximal_strength: parameters.NonNegative = 0.0
  """mu of the FedProx term (mu / 2) |x - x_t|^2 in the client loss; 0 for
  none.
  """

  client_warmup_steps: parameters.NonNegativeInt = 0
  """Number of local steps of linear learning-rate warm-up at the start of every
  round (FedAda2); 0 for none.
  """

  seed: parameters.NonNegativeInt = 0
  """Seed for randomness within a round (dropout, noise of privacy)."""

  record_step_sizes: bool = False
  """Whether to record the step sizes of each client, not only the cohort's
  mean. A run writes them to step_sizes.csv, one row per client and round.
  """

  record_drift: bool = False
  """Whether to record client drift in the columns drift/... of metrics.csv.
  Available in simulation only, without differential privacy or secure
  summation.
  """
