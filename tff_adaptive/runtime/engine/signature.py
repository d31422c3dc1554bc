"""How arguments and results of a computation become tensors and back."""

from collections.abc import Callable
from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import executable as program_lib
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import values


class Signature:
  """How a computation's arguments and results become tensors and back."""

  def __init__(
    self,
    program: program_lib.Program,
    type_signature: Any,
    datasets: values.DatasetCache,
  ):
    """Compiles the conversions.

    Args:
      program: The compiled computation.
      type_signature: Its `tff.FunctionType`, with Python containers.
      datasets: Datasets seen before.
    """
    self._parts: list[tuple[bool, list[int], Callable]] = []
    self._parameter = type_signature.parameter
    self._split: Callable = lambda value, out: None
    if self._parameter is not None:
      members: list[tff.Type] = []
      self._split = _compile_parts(self._parameter, members)
      for (kind, node), member in zip(program.arguments, members):
        slots = [leaf.slot for leaf in node.leaves]
        ingest = values.compile_ingest(member, datasets)
        self._parts.append((kind == 'client', slots, ingest))
    self._restore = _compile_result(program.result, type_signature.result)

  def num_clients(self, argument: Any) -> Optional[int]:
    if self._parameter is None or not any(part[0] for part in self._parts):
      return None
    parts: list[Any] = []
    self._split(argument, parts)
    counts = set()
    for (at_clients, _, _), value in zip(self._parts, parts):
      if at_clients:
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

  def ingest(self, argument: Any, server: list, clients: list[dict]) -> None:
    """Puts the argument's tensors into the slots of server and clients."""
    if self._parameter is None:
      return
    parts: list[Any] = []
    self._split(argument, parts)
    for (at_clients, slots, ingest), value in zip(self._parts, parts):
      if at_clients:
        for index, (store, one) in enumerate(zip(clients, value)):
          leaves: list[tf.Tensor] = []
          try:
            ingest(one, leaves)
          except TypeError as e:
            raise TypeError(f'Client {index}: {e}') from e
          store.update(zip(slots, leaves))
      else:
        leaves = []
        ingest(value, leaves)
        for slot, leaf in zip(slots, leaves):
          server[slot] = leaf

  def restore(self, server: list, clients: list[dict]) -> Any:
    """The Python value of the result."""
    return self._restore(server, clients)


def _compile_parts(type_spec: tff.Type, members: list) -> Callable:
  """Splits arguments as `Tracer.argument` numbers their parts.

  Args:
    type_spec: Of the argument.
    members: Receives the unplaced type of each part.

  Returns:
    A function of a value and a list that receives the parts.
  """
  if isinstance(type_spec, tff.FederatedType):
    members.append(type_spec.member)
    return lambda value, out: out.append(value)
  if isinstance(type_spec, tff.StructType):
    split = values.compile_split(type_spec)
    inner = [
      _compile_parts(element, members)
      for _, element in tff_names.struct_items(type_spec)
    ]

    def parts(value: Any, out: Any) -> None:
      for part, element in zip(inner, split(value)):
        part(element, out)

    return parts
  members.append(type_spec)
  return lambda value, out: out.append(value)


def _compile_result(value: Any, type_spec: tff.Type) -> Callable:
  """A function from the slots of server and clients to a Python value."""
  if isinstance(value, nodes_lib.Federated):
    slots = [leaf.slot for leaf in nodes_lib.flatten(value.value)]
    restore = values.compile_restore(type_spec.member)
    if type_spec.placement is tff.CLIENTS and not type_spec.all_equal:
      return lambda server, clients: [
        restore(
          iter(
            [store[slot] if slot in store else server[slot] for slot in slots]
          )
        )
        for store in clients
      ]
    return lambda server, clients: restore(
      iter([server[slot] for slot in slots])
    )
  if isinstance(type_spec, tff.StructType):
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
  restore = values.compile_restore(type_spec)
  return lambda server, clients: restore(iter([server[value.slot]]))
