"""Partitions by a number that each example has, and of natural clients."""

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
  """Sorts examples by a number, blurred by noise, and cuts them into clients.

  ContinuousPartitioner of flwr-datasets: they are sorted by

    strictness (value - mean) / deviation + (1 - strictness) noise

  with standard normal noise. The first client has the smallest ones.

  Args:
    values: A finite number of each example, [examples].
    strictness: 0 for a division at random, 1 for one by the values alone.
    sizes: Examples of each client. Where they are fewer than there are, those
      to give out are drawn first.
    seed: Of all draws.

  Raises:
    PartitionError: If values are all the same or not finite, or clients want
      more examples than there are.
  """
  values = np.asarray(values, np.float64)
  exact = partition.check_sizes(sizes, len(values))
  deviation = values.std()
  if not np.isfinite(values).all() or not deviation:
    raise data_errors.PartitionError(
      'Examples can be sorted by finite numbers that differ; got '
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
  """Joins natural clients, so many in the order of their names into one.

  GroupedNaturalIdPartitioner of flwr-datasets with 'allow-smaller': the last
  group may have fewer.

  Args:
    split: The natural clients.
    group_size: How many become one.
  """
  if group_size == 1:
    return split
  starts = range(0, len(split.indices), group_size)
  return partition.name_clients(
    [np.concatenate(split.indices[i : i + group_size]) for i in starts]
  )
