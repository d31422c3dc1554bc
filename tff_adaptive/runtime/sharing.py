"""Division of a cohort's work by its estimated size."""

import heapq
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Sized
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import references
from tff_adaptive.runtime import tff_names


def spread(work: Sequence[float], places: int) -> list[int]:
  """Spreads clients over places, the longest first, each where least is.

  Args:
    work: The size of each client's work.
    places: How many places there are.

  Returns:
    The place of each client.
  """
  loads = [(0.0, place) for place in range(places)]
  found = [0] * len(work)
  for index in sorted(range(len(work)), key=work.__getitem__, reverse=True):
    load, place = heapq.heappop(loads)
    found[index] = place
    # A client of no known size is some work all the same.
    heapq.heappush(loads, (load + max(work[index], 1.0), place))
  return found


def shares(work: Sequence[float], count: int) -> list[list[int]]:
  """Divides a cohort into shares of about the same work.

  Args:
    work: The size of each client's work.
    count: How many shares there may be.

  Returns:
    The positions of each share's clients, in the cohort's order; no share is
    empty, so that there are fewer if there are fewer clients.
  """
  found: dict[int, list[int]] = {}
  for index, place in enumerate(spread(work, count)):
    found.setdefault(place, []).append(index)
  return list(found.values())


def client_work(value: Any, type_spec: tff.Type) -> list[float]:
  """Measures each client's work: its batches, in all of its datasets.

  Args:
    value: An argument.
    type_spec: Its type.

  Returns:
    A number a client; none if nothing is at the clients.

  Raises:
    ValueError: If parts of it have different numbers of clients.
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
  elif tff_names.has_clients(type_spec):
    yield value, type_spec.member


def _batch_count(value: Any, type_spec: tff.Type) -> float:
  """Counts the batches of a client's datasets; 0 where that is not known."""
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
