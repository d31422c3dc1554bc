"""Numbers of examples of clients: quantity skew.

linear, square, exponential    sizes grow with the client's place, as in
                               flwr-datasets' partitioners of these names
dirichlet                      'iid-diff-quantity' of NIID-Bench: Li et al.,
                               arXiv 2102.02079, Section 4.3
lognormal                      few large clients: Li et al., arXiv 1812.06127
"""

from collections.abc import Callable
from typing import Optional

import numpy as np

from tasks import partition
from tasks.formats import data_errors

# Draws of sizes before the smallest client is given up.
_ATTEMPTS = 1000
_GROWTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
  'linear': lambda place: place,
  'square': np.square,
  # Of the last client 1, for e to the number of clients may be infinite.
  'exponential': lambda place: np.exp(place - place[-1]),
}
# Concentration of Dirichlet sizes, as NIID-Bench has it, and deviation of the
# logarithm of lognormal ones, as FedProx does.
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
  """Divides a number of examples into sizes of clients.

  Args:
    rule: 'linear', 'square' or 'exponential' in the client's place, from 1;
      'dirichlet' or 'lognormal'.
    total: Number of examples; all are given out.
    num_clients: Number of clients.
    skew: Concentration of 'dirichlet', 0.5 unless given; deviation of the
      logarithm of 'lognormal', 2 unless given.
    least: Smallest size. 'dirichlet' is drawn again until no client is smaller;
      with other rules the largest clients give smaller ones what they lack.
    seed: Of all draws.

  Returns:
    Sizes, int64 [num_clients].

  Raises:
    PartitionError: If the examples do not suffice, or no draw had clients that
      are large enough.
  """
  if num_clients * least > total:
    raise data_errors.PartitionError(
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
    raise data_errors.PartitionError(
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
  # flwr-datasets, too, gives the last client what rounding leaves.
  sizes[-1] += total - sizes.sum()
  return at_least(sizes, least)


def cut(weights: np.ndarray, total: int) -> np.ndarray:
  """Cuts a range of `total` places in proportion to weights.

  Cuts fall at the whole part of where they should, as in NIID-Bench, so that
  the sizes between them sum to `total`.

  Args:
    weights: [parts], not all 0.
    total: Number of places.

  Returns:
    Sizes, int64 [parts].
  """
  ends = (np.cumsum(weights / weights.sum()) * total).astype(np.int64)
  ends[-1] = total
  return np.diff(ends, prepend=0)


def at_least(sizes: np.ndarray, least: int) -> np.ndarray:
  """Raises sizes to a smallest one, at the cost of the largest ones.

  Args:
    sizes: int [clients], with a sum of at least `least` a client.
    least: Smallest size.

  Returns:
    Sizes of the same sum, int64 [clients].
  """
  raised = np.maximum(sizes, least)
  excess = raised.sum() - sizes.sum()
  # Largest first, down to the next size or to what is left to take.
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
