"""Division of a cohort into parts of equal estimated work."""

import heapq
import itertools
from collections.abc import Iterator, Sequence, Sized
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import references
from tff_adaptive.runtime import tff_names

# Of what a client receives, about its model. In larger ones a CPU's arithmetic
# takes longer than TensorFlow's calls, which clients that train together share.
_SMALL_BYTES = 1 << 20
_SMALL_BYTES_ON_GPU = 64 << 20


def train_together(choice: str, received_bytes: int, on_gpu: bool) -> bool:
  """Returns whether clients take each local step together.

  Args:
    choice: 'true', 'false', or 'auto' for those with small models.
    received_bytes: Size of what a client receives in a round.
    on_gpu: Whether clients run on a GPU.
  """
  if choice == 'auto':
    return received_bytes <= (_SMALL_BYTES_ON_GPU if on_gpu else _SMALL_BYTES)
  return choice == 'true'


def spread(work: Sequence[float], places: int) -> list[int]:
  """Assigns clients to places, the largest first, each to the least loaded.

  Args:
    work: Size of each client's work.
    places: Number of places, such as devices.

  Returns:
    Index of each client's place.
  """
  loads = [(0.0, place) for place in range(places)]
  found = [0] * len(work)
  for index in sorted(range(len(work)), key=work.__getitem__, reverse=True):
    load, place = heapq.heappop(loads)
    found[index] = place
    # A client of unknown size counts as some work.
    heapq.heappush(loads, (load + max(work[index], 1.0), place))
  return found


def shares(work: Sequence[float], count: int) -> list[list[int]]:
  """Divides a cohort into shares of about equal work.

  Args:
    work: Size of each client's work.
    count: Maximum number of shares.

  Returns:
    Positions of each share's clients. Shares are successive clients, so that
    aggregates in the order of the shares are in the cohort's order. None is
    empty, so there are fewer than `count` for smaller cohorts.
  """
  # A client of unknown size counts as some work.
  sizes = [max(size, 1.0) for size in work]
  total = sum(sizes)
  found: dict[int, list[int]] = {}
  for index, end in enumerate(itertools.accumulate(sizes)):
    middle = end - sizes[index] / 2
    found.setdefault(int(middle / total * count), []).append(index)
  return list(found.values())


def client_work(value: Any, type_spec: tff.Type) -> list[float]:
  """Returns each client's work: the number of batches in all of its datasets.

  Args:
    value: A computation's argument.
    type_spec: Its type.

  Returns:
    One number per client; empty without values at clients.

  Raises:
    ValueError: If parts of the argument have different numbers of clients.
  """
  placed = list(_client_values(value, type_spec))
  if len(counts := {len(values) for values, _ in placed}) > 1:
    raise ValueError(
      'The arguments disagree about the number of clients: they have'
      f' {sorted(counts)} elements.'
    )
  return [
    float(
      sum(
        _batch_count(one, member)
        for one, (_, member) in zip(client, placed, strict=True)
      )
    )
    for client in zip(*(values for values, _ in placed), strict=True)
  ]


def _client_values(
  value: Any, type_spec: tff.Type
) -> Iterator[tuple[Sequence[Any], tff.Type]]:
  """Yields lists of clients' values, and the type of their members."""
  if isinstance(type_spec, tff.StructType):
    parts = tff_names.structure.from_container(value)
    for index, (_, part) in enumerate(tff_names.struct_items(type_spec)):
      yield from _client_values(parts[index], part)
  elif tff_names.is_at_clients(type_spec):
    yield value, type_spec.member


def _batch_count(value: Any, type_spec: tff.Type) -> float:
  """Returns the number of batches of a client's datasets, unknown ones as 0."""
  if isinstance(type_spec, tff.StructType):
    parts = tff_names.structure.from_container(value)
    return sum(
      _batch_count(parts[index], part)
      for index, (_, part) in enumerate(tff_names.struct_items(type_spec))
    )
  if not isinstance(type_spec, tff.SequenceType):
    return 0
  if isinstance(value, references.Reference):
    return value.work
  if isinstance(value, tf.data.Dataset):
    return max(int(value.cardinality()), 0)
  return len(value) if isinstance(value, Sized) else 0
