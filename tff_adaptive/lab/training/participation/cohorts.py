"""Sampling of cohorts."""

import fractions
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lazy import tff


def check_count(flag: str, count: int, population: int) -> None:
  """Raises `SettingsError` if there are fewer clients than a flag asks for."""
  if count > population:
    raise errors.SettingsError(
      f'--{flag}={count} is more than the {population} training clients of '
      f'this task; give --{flag}={population} or less.'
    )


def build_cohort_fn(
  client_ids: Sequence[str],
  *,
  clients_per_round: int,
  random_seed: int = 1,
  over_selection: float = 1.0,
) -> Callable[[int], list[str]]:
  """Builds the reference implementation's sampler, without replacement.

  Round r draws with `RandomState(16807**r * s mod 2**31 - 1)`, s itself drawn
  from `random_seed`: TFF's `build_uniform_sampling_fn`, as the released FedOpt
  code uses it, rounds numbered 1 to T. A cohort depends on the seed and the
  round only.

  Args:
    client_ids: The population, in the task's order.
    clients_per_round: Number of clients in a cohort.
    random_seed: The reference's --client_datasets_random_seed.
    over_selection: Factor by which more clients are drawn, rounded up; those
      drawn without over-selection come first.

  Returns:
    A function from a round's number to its clients' ids, in the order drawn.

  Raises:
    SettingsError: If there are fewer clients than are to be drawn.
  """
  population = len(client_ids)
  check_count('clients_per_round', clients_per_round, population)
  # Exact decimals: ceil(1.1 * 10) is 11, but 12 in floating point.
  drawn = math.ceil(fractions.Fraction(str(over_selection)) * clients_per_round)
  if drawn > population:
    raise errors.SettingsError(
      f'--over_selection={over_selection:g} draws {drawn} clients for '
      f'--clients_per_round={clients_per_round}, but this task has '
      f'{population} training clients; give at most '
      f'{math.floor(1000 * population / clients_per_round) / 1000:g}.'
    )
  # Indices rather than ids: the draw is the same, and several hundred thousand
  # ids need not be converted to an array in every round.
  sample = tff.simulation.build_uniform_sampling_fn(
    np.arange(population), random_seed=random_seed
  )

  # Called twice per round: for prefetching, and when the round begins.
  @functools.lru_cache(maxsize=2)
  def places(round_number: int) -> tuple[int, ...]:
    return tuple(sample(round_number, drawn))

  def cohort(round_number: int) -> list[str]:
    return [client_ids[i] for i in places(round_number)]

  return cohort


def cohorts_of(
  settings: settings_lib.Settings, client_ids: Sequence[str]
) -> Callable[[int], list[str]]:
  """Builds the sampler of a run.

  Args:
    settings: The run's settings.
    client_ids: The population, in the task's order.

  Returns:
    As `build_cohort_fn`; in an asynchronous run, a function that returns all
    clients, in the order in which they begin.

  Raises:
    SettingsError: If there are fewer clients than are needed.
  """
  count, population = settings.clients_per_round, len(client_ids)
  if settings.asynchronous:
    assert settings.concurrency is not None
    check_count('clients_per_round', count, population)
    check_count('concurrency', settings.concurrency, population)
    count = population
  assert settings.client_datasets_random_seed is not None
  return build_cohort_fn(
    client_ids,
    clients_per_round=count,
    random_seed=settings.client_datasets_random_seed,
    over_selection=settings.over_selection or 1.0,
  )
