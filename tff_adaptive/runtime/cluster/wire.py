"""Encoding of values of TFF types for sending between machines.

Structures become tuples in their types' order, so that no class of the sender
is needed, and tensors become arrays, which Ray neither copies nor pickles.
Clients' values are encoded apart from the server's, which all actors share.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import logging
from ray import cloudpickle

from tff_adaptive import cohorts
from tff_adaptive.runtime import references
from tff_adaptive.runtime import rows as rows_lib
from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import values

_split = functools.lru_cache(maxsize=1024)(values.compile_split)
_pack = functools.lru_cache(maxsize=1024)(values.compile_pack)


def _from_rows(rows: Any, batch_size: int, element_type: tff.Type) -> Any:
  """Builds a client's batches from rows of arrays."""
  return rows_lib.RowBatches(_tensors(rows), batch_size)


def _from_elements(elements: Sequence[Any], element_type: tff.Type) -> Any:
  """Builds a list of batches from arrays."""
  return [_tensors(element) for element in elements]


def _tensors(structure: Any) -> Any:
  return tf.nest.map_structure(
    lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, structure
  )


def _arrays(structure: Any) -> Any:
  return tf.nest.map_structure(_array, structure)


def _array(value: Any) -> Any:
  """Converts a tensor to an array; returns other values unchanged."""
  if isinstance(value, (tf.Tensor, tf.Variable)):
    return value.numpy()
  return value


def encode(value: Any, type_spec: tff.Type, columns: list[list[Any]]) -> Any:
  """Encodes a value.

  Args:
    value: The value.
    type_spec: Its type.
    columns: Receives one list of clients' values per part at clients.

  Returns:
    The encoded value, with `None` in place of each part at clients.

  Raises:
    TypeError: If the value's structure does not match the type. Tensors are not
      checked.
  """
  if isinstance(type_spec, tff.StructType):
    parts = _split(type_spec)(value)
    return tuple(
      encode(part, part_type, columns)
      for part, (_, part_type) in zip(
        parts, tff_names.struct_items(type_spec), strict=True
      )
    )
  if tff_names.is_at_clients(type_spec):
    if not isinstance(value, (list, tuple)):
      raise TypeError(
        'Expected a list or tuple with one value per client, got'
        f' {type(value).__name__}.'
      )
    columns.append(_encode_each(value, type_spec.member))
    return None
  if isinstance(type_spec, tff.FederatedType):
    return encode(value, type_spec.member, columns)
  if isinstance(type_spec, tff.SequenceType):
    return _encode_dataset(value, type_spec)
  return _array(value)


def _encode_each(clients: Sequence[Any], member: tff.Type) -> list[Any]:
  encoded = []
  for index, value in enumerate(clients):
    try:
      encoded.append(encode(value, member, []))
    except TypeError as e:
      raise TypeError(f'Client {index}: {e}') from e
  return encoded


def _encode_dataset(value: Any, type_spec: tff.SequenceType) -> Any:
  """Encodes a dataset as a function from its element type to the dataset.

  The function is a `functools.partial`; a reference stays as it is.
  """
  if isinstance(value, references.Reference):
    return value
  if isinstance(value, rows_lib.RowBatches):
    return functools.partial(
      _from_rows, _arrays(value.own_rows()), value.batch_size
    )
  if isinstance(value, tf.data.Dataset):
    conformed = tff_datasets.conform_dataset(value, type_spec.element)
    graph = tff_datasets.graph_of(conformed)
    if graph is not None:
      return functools.partial(tff_datasets.dataset_from_graph, graph)
    value = list(value)
  if isinstance(value, (list, tuple)):
    return functools.partial(
      _from_elements, [_arrays(element) for element in value]
    )
  raise TypeError(
    f'Expected a dataset of {type_spec.element}, got {type(value).__name__}.'
  )


def decode(encoded: Any, type_spec: tff.Type, columns: Iterator[Any]) -> Any:
  """Decodes a value encoded by `encode`, in the Python containers of its type.

  Args:
    encoded: The result of `encode`, or of `leave_out`.
    type_spec: The value's type.
    columns: The clients' values, with references replaced by their data.
  """
  if isinstance(type_spec, tff.StructType):
    return _pack(type_spec)(
      [
        decode(part, part_type, columns)
        for part, (_, part_type) in zip(
          encoded, tff_names.struct_items(type_spec), strict=True
        )
      ]
    )
  if tff_names.is_at_clients(type_spec):
    member = type_spec.member
    return [decode(one, member, columns) for one in next(columns)]
  if isinstance(type_spec, tff.FederatedType):
    return decode(encoded, type_spec.member, columns)
  if isinstance(encoded, functools.partial):
    return encoded(type_spec.element)
  return encoded


def leave_out(
  encoded: Any, type_spec: tff.Type, is_read: Iterator[bool]
) -> Any:
  """Replaces parts that a computation does not read by `values.Unread`.

  Args:
    encoded: The result of `encode`.
    type_spec: The value's type.
    is_read: Whether each tensor or sequence is read, in order.
  """
  if isinstance(type_spec, tff.StructType):
    return tuple(
      leave_out(part, part_type, is_read)
      for part, (_, part_type) in zip(
        encoded, tff_names.struct_items(type_spec), strict=True
      )
    )
  if tff_names.is_at_clients(type_spec):
    return encoded
  if isinstance(type_spec, tff.FederatedType):
    return leave_out(encoded, type_spec.member, is_read)
  return encoded if next(is_read) else values.Unread


def copied(encoded: Any) -> Any:
  """Copies arrays out of Ray's memory, which is read-only and limited."""
  if isinstance(encoded, (tuple, list)):
    return type(encoded)(copied(part) for part in encoded)
  return np.array(encoded) if isinstance(encoded, np.ndarray) else encoded


def pickle_forms(computation: tff_names.ComputationProto) -> bytes:
  """Pickles `cohorts.forms_in` a computation.

  Returns:
    The forms; none of them if a model function cannot be pickled, so that the
    actors train clients one at a time.
  """
  forms = cohorts.forms_in(computation)
  try:
    return cloudpickle.dumps(forms)
  # Whatever `__reduce__` of what a model function holds may raise.
  except Exception as e:
    logging.warning(
      'Clients train one at a time on the cluster, as a model function cannot '
      'be pickled: %s',
      e,
    )
    return cloudpickle.dumps({})


def register_forms(pickled: bytes) -> None:
  """Declares the forms that `pickle_forms` pickled in another process."""
  try:
    cohorts.register_forms(cloudpickle.loads(pickled))
  # Whatever importing a user's module may raise.
  except Exception as e:
    logging.warning(
      'Clients train one at a time here, as a model function cannot be '
      'unpickled: %s',
      e,
    )
