"""A cohort's work, shared out by what is known of its size."""

import heapq
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Sized
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_names

_HALVINGS = 60


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


def cut(work: Sequence[float], shares: int) -> list[range]:
  """Cuts a cohort into consecutive shares, the largest as small as can be.

  Consecutive, so that whatever is added up share by share is added up in the
  cohort's order.

  Args:
    work: The size of each client's work, at least one client.
    shares: How many shares there may be.

  Returns:
    The clients of each share, none of them empty; fewer shares than asked for
    if there are fewer clients.
  """
  shares = min(shares, len(work))
  sizes = [max(w, 1.0) for w in work]
  low, high = max(sizes), sum(sizes)
  for _ in range(_HALVINGS):
    middle = (low + high) / 2
    if len(_fill(sizes, middle, 1)) <= shares:
      high = middle
    else:
      low = middle
  return _fill(sizes, high, shares)


def _fill(sizes: Sequence[float], limit: float, least: int) -> list[range]:
  """Cuts wherever the next client would be too much.

  Args:
    sizes: Of the clients.
    limit: Of a share.
    least: How many shares there must be; the last clients are cut apart to have
      as many.
  """
  found: list[range] = []
  begin, load = 0, 0.0
  for index, size in enumerate(sizes):
    left = len(sizes) - index
    must_cut = left <= least - len(found) - 1
    if index > begin and (load + size > limit or must_cut):
      found.append(range(begin, index))
      begin, load = index, 0.0
    load += size
  return [*found, range(begin, len(sizes))]


def client_shares(
  value: Any, type_spec: tff.Type | None, count: int
) -> Sequence[Any]:
  """Cuts an argument into shares of clients with about as many batches.

  Args:
    value: The argument, or `None`.
    type_spec: Its type, or `None`.
    count: How many shares there may be.

  Returns:
    The argument for each share: consecutive clients, and everything else as it
    is. An argument without clients as often as asked for.
  """
  if type_spec is None:
    return [value] * count
  placed = list(_client_values(value, type_spec))
  if not placed:
    return [value] * count
  work = [
    float(sum(_batch_count(values[i], member) for values, member in placed))
    for i in range(len(placed[0][0]))
  ]
  if not work:
    return [value]
  return [_with_clients(value, type_spec, share) for share in cut(work, count)]


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


def _with_clients(value: Any, type_spec: tff.Type, share: range) -> Any:
  """Keeps some clients of a value."""
  if isinstance(type_spec, tff.StructType):
    parts = tff_names.structure.from_container(value)
    return tff_names.structure.Struct(
      [
        (name, _with_clients(parts[index], part, share))
        for index, (name, part) in enumerate(tff_names.struct_items(type_spec))
      ]
    )
  return (
    value[share.start : share.stop]
    if tff_names.has_clients(type_spec)
    else value
  )


def _batch_count(value: Any, type_spec: tff.Type) -> int:
  """Counts the batches of a client's datasets; 0 where that is not known."""
  if isinstance(type_spec, tff.StructType):
    parts = tff_names.structure.from_container(value)
    return sum(
      _batch_count(parts[index], part)
      for index, (_, part) in enumerate(tff_names.struct_items(type_spec))
    )
  if not isinstance(type_spec, tff.SequenceType):
    return 0
  if isinstance(value, tf.data.Dataset):
    return max(int(value.cardinality()), 0)
  return len(value) if isinstance(value, Sized) else 0
