"""Conversion of a computation's arguments and results to tensors and back."""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import dataset_cache
from tff_adaptive.runtime.engine import executable as executable_lib
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import values

# Appends the unplaced and placed parts of an argument to a list.
_Split: TypeAlias = Callable[
  [values.PythonValue, list[values.PythonValue]], None
]
_Restore: TypeAlias = Callable[
  [nodes_lib.ServerTensors, list[nodes_lib.ClientTensors]], values.PythonValue
]


@dataclasses.dataclass(frozen=True)
class _Part:
  """An unplaced or placed part of an argument.

  Attributes:
    at_clients: Whether each client has a value of its own.
    slots: Slots of its tensors.
    ingest: Converts a value, or one client's value, to tensors.
  """

  at_clients: bool
  slots: list[int]
  ingest: values.Ingest


class Signature:
  """Converts a computation's arguments to tensors, and its results back.

  Attributes:
    parts: The unplaced and placed parts of the argument.
  """

  def __init__(
    self,
    executable: executable_lib.Executable,
    type_signature: tff.FunctionType,
    datasets: dataset_cache.DatasetCache,
  ):
    """Compiles the conversions.

    Args:
      executable: The compiled computation.
      type_signature: Its type, which names Python containers.
      datasets: Cache of datasets.
    """
    self.parts: list[_Part] = []
    self._split: _Split = lambda value, out: None
    if type_signature.parameter is not None:
      members: list[tff.Type] = []
      self._split = _compile_parts(type_signature.parameter, members)
      self.parts = [
        _Part(
          node.site is nodes_lib.CLIENT,
          [leaf.slot for leaf in node.leaves],
          values.compile_ingest(
            member,
            datasets.client_data
            if node.site is nodes_lib.CLIENT
            else datasets.variant,
          ),
        )
        for node, member in zip(executable.arguments, members)
      ]
    self._restore = _compile_result(executable.result, type_signature.result)

  def num_clients(self, argument: values.PythonValue) -> int | None:
    """Returns an argument's number of clients; `None` if it shows none.

    Raises:
      TypeError: If a value at clients is not a list.
      ValueError: If values at clients have different lengths.
    """
    if not any(part.at_clients for part in self.parts):
      return None
    counts = set()
    for part, value in zip(self.parts, self._split_argument(argument)):
      if part.at_clients:
        if not isinstance(value, (list, tuple)):
          raise TypeError(
            'Expected a list or tuple with one value per client, got'
            f' {type(value).__name__}.'
          )
        counts.add(len(value))
    if len(counts) > 1:
      raise ValueError(
        'The arguments disagree about the number of clients: they have'
        f' {sorted(counts)} elements.'
      )
    return counts.pop()

  def ingest(
    self,
    argument: values.PythonValue,
    server: nodes_lib.ServerTensors,
    clients: list[nodes_lib.ClientTensors],
  ) -> None:
    """Converts an argument and stores its tensors in server and client slots.

    Raises:
      TypeError: If a value has the wrong type; the message names the client.
    """
    for part, value in zip(self.parts, self._split_argument(argument)):
      if part.at_clients:
        # Clients' values are stacked there.
        with tf.device('/device:CPU:0'):
          for index, (local, one) in enumerate(zip(clients, value)):
            leaves: list[tf.Tensor] = []
            try:
              part.ingest(one, leaves)
            except TypeError as e:
              raise TypeError(f'Client {index}: {e}') from e
            local.update(zip(part.slots, leaves))
      else:
        leaves = []
        part.ingest(value, leaves)
        for slot, leaf in zip(part.slots, leaves):
          server[slot] = leaf

  def restore(
    self,
    server: nodes_lib.ServerTensors,
    clients: list[nodes_lib.ClientTensors],
  ) -> values.PythonValue:
    """Converts the tensors of the result to its Python value."""
    return self._restore(server, clients)

  def _split_argument(
    self, argument: values.PythonValue
  ) -> list[values.PythonValue]:
    parts: list[values.PythonValue] = []
    self._split(argument, parts)
    return parts


def _compile_parts(type_spec: tff.Type, members: list[tff.Type]) -> _Split:
  """Compiles the split of arguments into the parts of `Tracer.argument`.

  Args:
    type_spec: Type of the argument.
    members: Receives the unplaced type of each part.
  """
  if isinstance(type_spec, tff.StructType):
    split = values.compile_split(type_spec)
    inner = [
      _compile_parts(element, members)
      for _, element in tff_names.struct_items(type_spec)
    ]

    def parts(value: values.PythonValue, out: list[values.PythonValue]) -> None:
      for part, element in zip(inner, split(value)):
        part(element, out)

    return parts
  members.append(
    type_spec.member if isinstance(type_spec, tff.FederatedType) else type_spec
  )
  return lambda value, out: out.append(value)


def _compile_result(
  value: nodes_lib.SymbolicValue, type_spec: tff.Type
) -> _Restore:
  """Compiles the conversion of the slots' tensors to a Python value.

  Args:
    value: The symbolic result, or a part of it.
    type_spec: Its type, which names Python containers.
  """
  if isinstance(value, nodes_lib.PlacedValue):
    slots = [leaf.slot for leaf in nodes_lib.flatten(value.value)]
    of_clients = type_spec.placement is tff.CLIENTS and not type_spec.all_equal
    # Those of clients that trained together are parts of common tensors, which
    # a client's own would keep in memory.
    restore = values.compile_restore(type_spec.member, copy=of_clients)
    if of_clients:
      return lambda server, clients: [
        restore(
          iter(
            [
              dataset_cache.dataset_of(
                local[slot] if slot in local else server[slot]
              )
              for slot in slots
            ]
          )
        )
        for local in clients
      ]
    return lambda server, clients: restore(
      iter([server[slot] for slot in slots])
    )
  if isinstance(value, tuple):
    parts = [
      _compile_result(element, element_type)
      for element, (_, element_type) in zip(
        value, tff_names.struct_items(type_spec)
      )
    ]
    pack = values.compile_pack(type_spec)
    return lambda server, clients: pack(
      [part(server, clients) for part in parts]
    )
  (slot,) = (leaf.slot for leaf in nodes_lib.flatten(value))
  restore = values.compile_restore(type_spec)
  return lambda server, clients: restore(iter([server[slot]]))
