"""Partitions with exactly k labels per client in equal shares."""

from typing import Optional

import numpy as np

from tasks import partition
from tasks.formats import data_errors


def k_classes(
  labels: np.ndarray,
  *,
  classes_per_client: int,
  sizes: partition.Sizes,
  seed: int = 0,
) -> partition.Partition:
  """Assigns exactly k labels to each client, in shares as equal as possible.

  Args:
    labels: The label of each example, int [examples], from 0.
    classes_per_client: Number k of labels per client.
    sizes: Number of examples of each client, at least k.
    seed: Seed of all draws.

  Raises:
    PartitionError: If k exceeds the number of labels or a client's size, or no
      assignment of labels to clients with enough examples is found.
  """
  labels = partition.check_labels(labels)
  exact = partition.check_sizes(sizes, len(labels))
  k = classes_per_client
  partition.check_classes(k, len(np.unique(labels)))
  if exact.min(initial=k) < k:
    raise data_errors.PartitionError(
      f'A client with {k} labels needs at least {k} examples, got '
      f'{exact.min()}.'
    )
  rng = np.random.default_rng(seed)
  pools = partition.build_pools(labels, rng)
  capacity = np.array([len(pool) for pool in pools])
  shares = [_shares(size, k) for size in exact]
  for attempt in range(20):
    # The last attempt is greedy: it takes the labels with the most examples,
    # which succeeds where random attempts reach a dead end.
    counts = _assign_classes(shares, capacity, rng, greedy=attempt == 19)
    if counts is not None:
      return partition.name_clients(
        [partition.take(pools, c, rng) for c in counts]
      )
  raise data_errors.PartitionError(
    f'No assignment was found that gives {len(exact)} clients {k} labels and '
    f'{exact.min()} to {exact.max()} examples each: the labels have '
    f'{capacity.min()} to {capacity.max()} examples. Ask for fewer clients, '
    'smaller clients or more labels a client.'
  )


def largest_equal_size(
  labels: np.ndarray, *, classes_per_client: int, num_clients: int
) -> int:
  """Returns the largest equal size of clients that `k_classes` can satisfy.

  It is a multiple of k, so that a client has equally many examples of each of
  its labels, and is limited by the number of such shares in all labels.

  Raises:
    PartitionError: If even a size of k cannot be satisfied.
  """
  labels = partition.check_labels(labels)
  k = classes_per_client
  counts = np.bincount(labels)
  for share in range(len(labels) // max(k * num_clients, 1), 0, -1):
    # A client takes a label at most once.
    if np.minimum(counts // share, num_clients).sum() >= k * num_clients:
      return k * share
  raise data_errors.PartitionError(
    f'{num_clients} clients with {k} labels each need at least '
    f'{k * num_clients} examples of enough labels; there are {len(labels)} '
    f'examples of {np.count_nonzero(counts)} labels.'
  )


def _shares(size: int, parts: int) -> np.ndarray:
  return np.full(parts, size // parts) + (np.arange(parts) < size % parts)


def _assign_classes(
  shares: list[np.ndarray],
  capacity: np.ndarray,
  rng: np.random.Generator,
  greedy: bool,
) -> Optional[list[np.ndarray]]:
  """Assigns labels to clients, as counts; returns None at a dead end."""
  capacity = capacity.copy()
  result: list[np.ndarray] = [np.zeros(0, np.int64)] * len(shares)
  order = rng.permutation(len(shares)).tolist()
  if greedy:
    order.sort(key=lambda i: -shares[i][0])
  for i in order:
    share = shares[i]
    weight = np.where(capacity >= share[0], capacity, 0).astype(float)
    if np.count_nonzero(weight) < len(share):
      return None
    if greedy:
      classes = np.argsort(-(weight + rng.random(len(weight))))[: len(share)]
    else:
      classes = rng.choice(
        len(weight), len(share), replace=False, p=weight / weight.sum()
      )
    counts = np.zeros(len(capacity), np.int64)
    counts[classes] = share
    capacity = capacity - counts
    result[i] = counts
  return result
