"""Limits on what one connection may hold on a worker."""

import dataclasses
import os
import threading
from collections.abc import Iterable

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import values as values_lib

# Far above what any trainer holds at once.
_MAX_VALUES = 1_000_000
_MAX_DEPTH = 100
# Python's own objects are about that large.
_BYTES_PER_VALUE = 64


class LimitError(Exception):
  """A connection asks for more than it may have; the message says how much."""


@dataclasses.dataclass(frozen=True)
class Held:
  """A value on a worker.

  Attributes:
    value: A Python value, or the message of a computation.
    type_spec: Its type.
    size: Bytes; what occurs twice counts twice, as it does when it is sent.
    count: Number of values that it consists of.
    depth: Number of structures around its innermost value.
  """

  value: values_lib.PythonValue
  type_spec: tff.Type
  size: int
  count: int
  depth: int


def measure(
  value: values_lib.PythonValue, type_spec: tff.Type, message_bytes: int = 0
) -> Held:
  """Measures a value.

  Args:
    value: A value without cycles.
    type_spec: Its type.
    message_bytes: Size of the message it came in, for what cannot be measured.

  Raises:
    LimitError: If it is too large in itself.
  """
  size = count = deepest = 0
  waiting = [(value, 0)]
  while waiting:
    part, depth = waiting.pop()
    count += 1
    deepest = max(deepest, depth)
    _check(count, deepest)
    parts = _parts(part)
    if parts is None:
      size += _size(part)
    else:
      waiting.extend((element, depth + 1) for element in parts)
  size += count * _BYTES_PER_VALUE
  return Held(value, type_spec, max(size, message_bytes), count, deepest)


def measure_struct(
  elements: Iterable[tuple[str | None, Held]],
) -> Held:
  """Makes a structure of values that were measured."""
  named = list(elements)
  parts = [held for _, held in named]
  size = sum(held.size for held in parts) + _BYTES_PER_VALUE
  count = sum(held.count for held in parts) + 1
  depth = max((held.depth for held in parts), default=0) + 1
  _check(count, depth)
  return Held(
    tff_names.Struct([(name, held.value) for name, held in named]),
    tff.StructType([(name, held.type_spec) for name, held in named]),
    size,
    count,
    depth,
  )


def _check(count: int, depth: int) -> None:
  """Raises `LimitError` if one value consists of too many."""
  if count > _MAX_VALUES:
    raise LimitError(
      f'A value may consist of {_MAX_VALUES:,} values, and this one would have'
      ' more.'
    )
  if depth > _MAX_DEPTH:
    raise LimitError(
      f'Structures may be nested {_MAX_DEPTH} deep, and this one would be'
      ' deeper.'
    )


def _parts(
  value: values_lib.PythonValue,
) -> Iterable[values_lib.PythonValue] | None:
  """Returns the elements of a structure; `None` for anything else."""
  if isinstance(value, tff_names.Struct):
    return [element for _, element in tff_names.structure.to_elements(value)]
  if isinstance(value, dict):
    return value.values()
  if isinstance(value, (list, tuple)):
    return value
  if attrs.has(type(value)):
    return [getattr(value, field.name) for field in attrs.fields(type(value))]
  return None


def _size(value: values_lib.PythonValue) -> int:
  """Measures what is no structure; 0 if it is not known, as of a dataset."""
  if isinstance(value, np.ndarray) and value.dtype == object:
    return value.nbytes + sum(len(text) for text in value.flat)
  if isinstance(value, (np.ndarray, np.generic)):
    return value.nbytes
  if isinstance(value, tf.Tensor):
    return value.dtype.size * (value.shape.num_elements() or 0)
  if isinstance(value, (bytes, str)):
    return len(value)
  return 0


class Account:
  """An account of the memory that the values of one connection take.

  Attributes:
    max_bytes: What they may come to.
  """

  def __init__(self, max_bytes: int):
    self.max_bytes = max_bytes
    self._size = 0
    self._count = 0
    self._lock = threading.Lock()

  def add(self, held: Held) -> None:
    """Counts a value.

    Raises:
      LimitError: If the connection would hold too much.
    """
    with self._lock:
      size, count = self._size + held.size, self._count + held.count
      if size > self.max_bytes:
        raise LimitError(
          'The values of one connection may take'
          f' {self.max_bytes >> 20:,} MiB on this worker'
          f' (--connection_mib), and they would take {size >> 20:,}.'
        )
      if count > _MAX_VALUES:
        raise LimitError(
          f'One connection may hold {_MAX_VALUES:,} values on this worker, and'
          f' it would hold {count:,}.'
        )
      self._size, self._count = size, count

  def remove(self, held: Held) -> None:
    """Counts a value no more."""
    with self._lock:
      self._size -= held.size
      self._count -= held.count


def half_of_memory() -> int:
  """Measures half of this machine's memory in bytes."""
  return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2
