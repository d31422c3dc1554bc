"""Quantity skew: clients' numbers of examples.

linear, square, exponential    sizes grow with the client's index, as in
                               flwr-datasets' partitioners of these names
dirichlet                      'iid-diff-quantity' of NIID-Bench: Li et al.,
                               arXiv 2102.02079, Section 4.3
lognormal                      few large clients: Li et al., arXiv 1812.06127
"""

from collections.abc import Callable
from typing import Optional

import numpy as np

from tasks import partition
from tasks.formats import data_files

# Maximum number of draws until the smallest client is large enough.
_ATTEMPTS = 1000
_GROWTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
  'linear': lambda place: place,
  'square': np.square,
  # Normalized to 1 for the last client to avoid overflow.
  'exponential': lambda place: np.exp(place - place[-1]),
}
# Concentration of Dirichlet sizes, as in NIID-Bench, and standard deviation of
# lognormal sizes' logarithm, as in FedProx.
_SKEW = {'dirichlet': 0.5, 'lognormal': 2.0}


def draw(
  rule: str,
  total: int,
  num_clients: int,
  *,
  skew: Optional[float] = None,
  least: int = 1,
  seed: int = 0,
) -> np.ndarray:
  """Divides a number of examples into client sizes.

  Args:
    rule: 'linear', 'square' or 'exponential' in the client's index, from 1;
      'dirichlet' or 'lognormal'.
    total: Number of examples; all are assigned.
    num_clients: Number of clients.
    skew: Concentration of 'dirichlet', by default 0.5; standard deviation of
      the logarithm of 'lognormal', by default 2.
    least: Minimum size. 'dirichlet' is redrawn until no client is smaller; with
      other rules the largest clients cede examples to smaller ones.
    seed: Seed of all draws.

  Returns:
    Sizes, int64 [num_clients].

  Raises:
    PartitionError: If there are too few examples, or clients are too small in
      all draws.
  """
  if num_clients * least > total:
    raise data_files.PartitionError(
      f'{num_clients} clients of at least {least} examples need '
      f'{num_clients * least}, but there are {total}: ask for fewer clients or '
      'a smaller `smallest_client`.'
    )
  if skew is None:
    skew = _SKEW.get(rule, 1.0)
  rng = np.random.default_rng([seed, 0x517E])
  if rule == 'dirichlet':
    for _ in range(_ATTEMPTS):
      log_p = partition.log_dirichlet(skew, num_clients, rng)
      sizes = cut(np.exp(log_p - log_p.max()), total)
      if sizes.min() >= least:
        return sizes
    raise data_files.PartitionError(
      f'In {_ATTEMPTS} draws of sizes from a Dirichlet distribution with '
      f'parameter {skew:g}, one of {num_clients} clients always had fewer than '
      f'{least} of {total} examples: raise `size_skew`, or ask for fewer '
      'clients.'
    )
  if rule == 'lognormal':
    units = rng.lognormal(0, skew, num_clients)
  else:
    units = _GROWTH[rule](np.arange(1.0, num_clients + 1))
  sizes = (units / units.sum() * total).astype(np.int64)
  # As in flwr-datasets, the last client gets the rounding remainder.
  sizes[-1] += total - sizes.sum()
  return at_least(sizes, least)


def cut(weights: np.ndarray, total: int) -> np.ndarray:
  """Divides a total into integer sizes in proportion to weights.

  Cumulative sums are rounded down, as in NIID-Bench, so that sizes sum to
  `total`.

  Args:
    weights: Weights [parts], not all 0.
    total: Sum of the sizes.

  Returns:
    Sizes, int64 [parts].
  """
  ends = (np.cumsum(weights / weights.sum()) * total).astype(np.int64)
  ends[-1] = total
  return np.diff(ends, prepend=0)


def at_least(sizes: np.ndarray, least: int) -> np.ndarray:
  """Raises sizes to a minimum, at the cost of the largest ones.

  Args:
    sizes: Sizes, int [clients], with a mean of at least `least`.
    least: Minimum size.

  Returns:
    Sizes of the same sum, int64 [clients].
  """
  raised = np.maximum(sizes, least)
  excess = raised.sum() - sizes.sum()
  # Reduces the largest first, down to the next size.
  order = np.argsort(-raised, kind='stable')
  for count in range(1, len(order) + 1):
    if not excess:
      break
    floor = raised[order[count]] if count < len(order) else least
    largest = order[:count]
    taken = min(excess, (raised[largest] - floor).sum())
    raised[largest] -= taken // count
    raised[largest[: taken % count]] -= 1
    excess -= taken
  return raised
