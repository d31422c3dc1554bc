"""Partitions by a numeric target, and groups of natural clients."""

import numpy as np

from tasks import partition
from tasks.formats import data_errors


def continuous(
  values: np.ndarray,
  *,
  strictness: float,
  sizes: partition.Sizes,
  seed: int = 0,
) -> partition.Partition:
  """Sorts examples by a number plus noise, and gives clients contiguous parts.

  ContinuousPartitioner of flwr-datasets, which sorts by

    strictness (value - mean) / deviation + (1 - strictness) noise

  with standard normal noise. The first client has the smallest numbers.

  Args:
    values: Finite numbers [examples].
    strictness: 0 for a random partition, 1 for one without noise.
    sizes: Number of examples of each client. If their sum is smaller than the
      number of examples, a random subset is used.
    seed: Seed of all draws.

  Raises:
    PartitionError: If values are constant or not finite, or the sizes exceed
      the number of examples.
  """
  values = np.asarray(values, np.float64)
  exact = partition.check_sizes(sizes, len(values))
  deviation = values.std()
  if not np.isfinite(values).all() or not deviation:
    raise data_errors.PartitionError(
      'Examples must be sorted by finite numbers that are not all equal; got '
      f'{values.min():g} to {values.max():g}.'
    )
  rng = np.random.default_rng(seed)
  chosen = rng.permutation(len(values))[: exact.sum()]
  noise = rng.standard_normal(len(values))
  blurred = strictness * (values - values.mean()) / deviation
  blurred += (1 - strictness) * noise
  order = chosen[np.argsort(blurred[chosen], kind='stable')]
  return partition.name_clients(
    [rng.permutation(rows) for rows in np.split(order, np.cumsum(exact)[:-1])]
  )


def grouped(split: partition.Partition, group_size: int) -> partition.Partition:
  """Joins natural clients to groups, in the order of their names.

  GroupedNaturalIdPartitioner of flwr-datasets with 'allow-smaller': the last
  group may be smaller.

  Args:
    split: The natural clients.
    group_size: Number of natural clients in a group.
  """
  if group_size == 1:
    return split
  starts = range(0, len(split.indices), group_size)
  return partition.name_clients(
    [np.concatenate(split.indices[i : i + group_size]) for i in starts]
  )
