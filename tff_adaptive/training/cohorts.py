"""The choice of the clients that take part in a round."""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow_federated as tff

from tff_adaptive import errors


def build_cohort_fn(
  client_ids: Sequence[str], *, clients_per_round: int, random_seed: int = 1
) -> Callable[[int], list[str]]:
  """Builds the reference implementation's sampler: without replacement.

  Round r draws with `RandomState(16807**r * s mod 2**31 - 1)`, s itself drawn
  from `random_seed`: TFF's `build_uniform_sampling_fn`, as the released FedOpt
  code uses it, rounds numbered 1 to T. A cohort depends on the seed and the
  round only.

  Args:
    client_ids: The population, in the task's order.
    clients_per_round: How many clients a cohort has.
    random_seed: The reference's --client_datasets_random_seed.

  Returns:
    A function from the round's number to its clients, in the order drawn.

  Raises:
    SettingsError: If there are fewer clients than a cohort needs.
  """
  population = len(client_ids)
  if clients_per_round > population:
    raise errors.SettingsError(
      f'--clients_per_round={clients_per_round} is more than the '
      f'{population} training clients of this task; give at most '
      f'{population}.'
    )
  # Positions rather than names: the draw is the same, and a population of
  # several hundred thousand names is not turned into an array in every round.
  sample = tff.simulation.build_uniform_sampling_fn(
    np.arange(population), random_seed=random_seed
  )

  def cohort(round_number: int) -> list[str]:
    return [client_ids[i] for i in sample(round_number, clients_per_round)]

  return cohort
