"""Partitions as tasks offer them: by name, with the options that all share."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks import class_shares
from tasks import partition
from tasks.formats import data_errors

_STAND_IN_CLIENTS = 20


def build(
  labels: np.ndarray, options: Mapping[str, Any]
) -> partition.Partition:
  """Partitions labelled examples over clients.

  Args:
    labels: The label of each example, int [examples], from 0.
    options: A task's own, of which these count:
      partition: 'lda', 'iid' or 'classes'.
      num_clients: Number of clients.
      examples_per_client: Size of each; None for as large as the examples
        allow.
      smallest_client: Where given, sizes are drawn uniformly between this and
        `examples_per_client`.
      alpha: Concentration of 'lda'.
      classes_per_client: Labels of a client of 'classes'.
      seed: Of all draws.
      data: With 'synthetic' examples are so few that numbers are taken as upper
        bounds.

  Raises:
    PartitionError: If the examples cannot be given out so.
  """
  kind, seed = options['partition'], options['seed']
  sizes = _sizes(labels, options)
  if kind == 'iid':
    return partition.iid(len(labels), sizes=sizes, seed=seed)
  if kind == 'classes':
    return class_shares.k_classes(
      labels,
      classes_per_client=options['classes_per_client'],
      sizes=sizes,
      seed=seed,
    )
  return partition.lda(labels, alpha=options['alpha'], sizes=sizes, seed=seed)


def _sizes(labels: np.ndarray, options: Mapping[str, Any]) -> np.ndarray:
  """Decides how many examples each client gets."""
  num_clients = options['num_clients']
  smallest = options['smallest_client']
  stand_in = options['data'] == 'synthetic'
  if stand_in:
    num_clients = min(num_clients, _STAND_IN_CLIENTS)
  if options['partition'] == 'classes':
    largest = class_shares.largest_equal_size(
      labels,
      classes_per_client=options['classes_per_client'],
      num_clients=num_clients,
    )
  else:
    largest = int(partition.equal_sizes(len(labels), num_clients)[0])
  size = options['examples_per_client'] or largest
  if stand_in:
    size = min(size, largest)
    smallest = smallest and min(smallest, size)
  if smallest is None:
    return np.full(num_clients, size)
  if smallest > size:
    raise data_errors.PartitionError(
      f'`smallest_client` must be at most {size}, the examples of the '
      f'largest client, got {smallest}.'
    )
  return partition.sizes_in_range(
    num_clients, smallest, size, seed=options['seed']
  )
