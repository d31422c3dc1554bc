"""Partitions as tasks offer them: by name, with the options that all share."""

from typing import Optional

import numpy as np

from tasks import errors
from tasks import partition

_STAND_IN_CLIENTS = 20


def build(
  kind: str,
  labels: np.ndarray,
  *,
  num_clients: int,
  examples_per_client: Optional[int],
  smallest_client: Optional[int],
  alpha: float,
  classes_per_client: int,
  seed: int,
  stand_in: bool = False,
) -> partition.Partition:
  """Partitions labelled examples over clients.

  Args:
    kind: 'lda', 'iid' or 'classes'.
    labels: The label of each example, int [examples], from 0.
    num_clients: Number of clients.
    examples_per_client: Size of each; None for as large as the examples allow.
    smallest_client: Where given, sizes are drawn uniformly between this and
      `examples_per_client`.
    alpha: Concentration of 'lda'.
    classes_per_client: Labels of a client of 'classes'.
    seed: Of all draws.
    stand_in: Whether the examples are made up, and so few that the numbers are
      to be taken as upper bounds.

  Raises:
    PartitionError: If the examples cannot be given out so.
  """
  if stand_in:
    num_clients = min(num_clients, _STAND_IN_CLIENTS)
  if kind == 'classes':
    largest = partition.largest_equal_size(
      labels, classes_per_client=classes_per_client, num_clients=num_clients
    )
  else:
    largest = int(partition.equal_sizes(len(labels), num_clients)[0])
  size = largest if examples_per_client is None else examples_per_client
  if stand_in:
    size = min(size, largest)
    smallest_client = smallest_client and min(smallest_client, size)
  sizes = np.full(num_clients, size)
  if smallest_client is not None:
    if smallest_client > size:
      raise errors.PartitionError(
        f'`smallest_client` must be at most {size}, the examples of the '
        f'largest client, got {smallest_client}.'
      )
    sizes = partition.sizes_in_range(
      num_clients, smallest_client, size, seed=seed
    )
  if kind == 'iid':
    return partition.iid(len(labels), sizes=sizes, seed=seed)
  if kind == 'classes':
    return partition.k_classes(
      labels, classes_per_client=classes_per_client, sizes=sizes, seed=seed
    )
  return partition.lda(labels, alpha=alpha, sizes=sizes, seed=seed)
