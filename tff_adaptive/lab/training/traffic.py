"""Bytes that a client receives and sends in a round.

Measured on the computation that TFF runs, not estimated from the model: a round
is flattened into its federated operations, and the sizes of the types that
these broadcast and aggregate are summed. Clients' metrics are included.
Excluded are values that only a simulation collects (`processes.drift`), and
non-trainable weights, which clients have from the start; but the server's
corrections of such weights (`adapters`) are included.
"""

import dataclasses
import math

import numpy as np
import tensorflow_federated as tff

from tff_adaptive import processes
from tff_adaptive.processes import drift


@dataclasses.dataclass(frozen=True)
class Traffic:
  """Bytes per client and round.

  Attributes:
    down: From the server to one client.
    up: From one client to the server.
  """

  down: int
  up: int


# Operations that move values from the clients to the server. Every argument
# placed at the clients is sent; other arguments (zeros, merge functions,
# moduli) are known to the server.
_UP = frozenset(
  {
    'federated_aggregate',
    'federated_max',
    'federated_mean',
    'federated_min',
    'federated_secure_modular_sum',
    'federated_secure_sum',
    'federated_secure_sum_bitwidth',
    'federated_sum',
    'federated_weighted_mean',
  }
)
# The products of adapters, which the server can compute from what is sent, and
# from which it computes a correction of their size.
_PRODUCTS = 'products'
_NOT_SENT = frozenset({drift.SIMULATED, _PRODUCTS, 'non_trainable'})
_SELECT = frozenset({'federated_select', 'federated_secure_select'})


def size_of(type_signature: tff.Type) -> int:
  """Computes the in-memory size of a value of a type, in bytes.

  Raises:
    ValueError: If the type has an unknown dimension or a variable length.
  """
  if isinstance(type_signature, tff.FederatedType):
    return size_of(type_signature.member)
  if isinstance(type_signature, tff.StructType):
    return sum(
      size_of(child)
      for name, child in tff.structure.to_elements(type_signature)
      if name not in _NOT_SENT
    )
  if isinstance(type_signature, tff.TensorType):
    shape, dtype = type_signature.shape, np.dtype(type_signature.dtype)
    if shape is None or any(d is None for d in shape) or not dtype.itemsize:
      raise ValueError(f'{type_signature} has no fixed size.')
    return math.prod(shape) * dtype.itemsize
  raise ValueError(f'{type_signature} has no fixed size.')


def _corrections(type_signature: tff.Type) -> int:
  """Computes the bytes of the corrections made from sums of products."""
  if isinstance(type_signature, tff.FederatedType):
    return _corrections(type_signature.member)
  if not isinstance(type_signature, tff.StructType):
    return 0
  return sum(
    size_of(child) if name == _PRODUCTS else _corrections(child)
    for name, child in tff.structure.to_elements(type_signature)
  )


def _children(operation: tff.framework.Call) -> list[tff.Type]:
  """Returns the types of an operation's arguments."""
  argument = operation.argument.type_signature
  if isinstance(argument, tff.StructType):
    return list(argument.children())
  return [argument]


def of_process(process: processes.Process) -> Traffic:
  """Measures the traffic of one client in one round of a process.

  Args:
    process: A learning process. A `BufferedLearningProcess` broadcasts nothing;
      its clients receive messages instead.

  Raises:
    ValueError: If something sent has no fixed size.
  """
  traffic = of_round(process.next)
  personal = getattr(process, 'personal_weights', None)
  if personal is not None:
    # Variables that stay on clients are sent as zeros in a simulation.
    _, state = personal.type_signature.parameter
    stays = size_of(state) - size_of(state['seen'])
    traffic = Traffic(down=traffic.down - stays, up=traffic.up - stays)
  if not isinstance(process, processes.BufferedLearningProcess):
    return traffic
  message = size_of(process.message.type_signature.result)
  return dataclasses.replace(traffic, down=traffic.down + message)


def of_round(next_computation: tff.Computation) -> Traffic:
  """Measures the traffic of one client in one round.

  Args:
    next_computation: A process's `next`.

  Raises:
    ValueError: If something sent has no fixed size.
  """
  flat = tff.framework.to_call_dominant(next_computation.to_building_block())
  down = up = 0

  def visit(
    block: tff.framework.ComputationBuildingBlock,
  ) -> tuple[tff.framework.ComputationBuildingBlock, bool]:
    nonlocal down, up
    if isinstance(block, tff.framework.Call) and isinstance(
      block.function, tff.framework.Intrinsic
    ):
      operation = block.function.uri
      if operation == 'federated_broadcast':
        down += size_of(block.argument.type_signature)
      elif operation in _UP:
        sent = [
          t
          for t in _children(block)
          if isinstance(t, tff.FederatedType) and t.placement is tff.CLIENTS
        ]
        up += sum(map(size_of, sent))
        down += sum(map(_corrections, sent))
      elif operation in _SELECT:
        keys, _, _, select_fn = _children(block)
        up += size_of(keys)
        down += math.prod(keys.member.shape) * size_of(select_fn.result)
    return block, False

  tff.framework.transform_postorder(flat, visit)
  return Traffic(down=down, up=up)
