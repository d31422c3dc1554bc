"""Symbolic values: the intermediate representation of a computation.

A computation is compiled to a list of nodes, each of which computes tensors
from the tensors of earlier nodes. A symbolic value of an unplaced type is a
nested tuple of leaves, and a leaf is one of a node's tensors.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias, Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.graphs import graph as graph_lib


class Placement(enum.Enum):
  """Placement of a node."""

  SERVER = 'server'
  CLIENT = 'client'


class Inside:
  """The site of nodes in the body of an `InnerFunction`."""


SERVER = Placement.SERVER
CLIENT = Placement.CLIENT

# Where a node runs: once at the server, once per client, in an aggregation's
# accumulation (once per client, in order), or in a function inside a node.
Site: TypeAlias = Union[Placement, 'Aggregation', Inside]
UnplacedValue: TypeAlias = Union['Leaf', tuple['UnplacedValue', ...]]
SymbolicFunction: TypeAlias = Callable[
  [Union['SymbolicValue', None], Site], 'SymbolicValue'
]
SymbolicValue: TypeAlias = Union[
  'Leaf', 'PlacedValue', SymbolicFunction, tuple['SymbolicValue', ...]
]
# Adds a node to the current TensorFlow graph: maps the inputs' tensors and the
# wanted indices to the wanted tensors.
Build: TypeAlias = Callable[
  [Sequence[tf.Tensor], Sequence[int]], Sequence[tf.Tensor]
]

# Tensors of an invocation by slot, the number of a leaf: one list at the
# server, a dictionary for each client.
ServerTensors: TypeAlias = list[tf.Tensor | None]
ClientTensors: TypeAlias = dict[int, tf.Tensor]


@dataclasses.dataclass(eq=False)
class Node:
  """An operation on tensors.

  Attributes:
    site: Where it runs.
    inputs: Leaves that it takes.
    specs: Specs of the tensors that it returns.
    build: Adds the node to a TensorFlow graph; `None` for arguments and
      accumulators, whose tensors are given.
    label: Name in error messages.
    ordered: Whether it must run for clients one by one, in their order.
    graph: The TensorFlow graph that the node calls, if any.
    phase: The phase in which it runs.
    first_slot: Slot of its first leaf; the others follow.
  """

  site: Site
  inputs: Sequence['Leaf']
  specs: Sequence[tf.TensorSpec]
  build: Build | None
  label: str
  ordered: bool = False
  graph: graph_lib.Graph | None = None
  phase: int = 0
  first_slot: int = -1

  @property
  def leaves(self) -> list['Leaf']:
    return [Leaf(self, i) for i in range(len(self.specs))]


@dataclasses.dataclass(frozen=True)
class Leaf:
  """One of a node's tensors."""

  node: Node
  index: int

  @property
  def spec(self) -> tf.TensorSpec:
    return self.node.specs[self.index]

  @property
  def slot(self) -> int:
    return self.node.first_slot + self.index


@dataclasses.dataclass(frozen=True)
class PlacedValue:
  """A symbolic value of a federated type.

  The leaves of an all-equal value at the clients are at the server.

  Attributes:
    placement: `tff.SERVER` or `tff.CLIENTS`.
    value: The value of one member.
    all_equal: Whether all members have the same value.
  """

  placement: tff.framework.PlacementLiteral
  value: UnplacedValue
  all_equal: bool


@dataclasses.dataclass(eq=False)
class Aggregation:
  """A left fold over the clients in their order.

  Attributes:
    zero: Initial accumulators, at the server.
    state: Node that stands for the accumulators so far.
    update: Accumulators after one more client, at this aggregation's site.
    result: Node of the accumulators after the last client, at the server.
    phase: The phase in which clients are aggregated.
  """

  zero: Sequence[Leaf]
  state: Node
  update: Sequence[Leaf]
  result: Node
  phase: int = 0


def flatten(value: SymbolicValue | None) -> list[Leaf]:
  """Lists the leaves of an unplaced value.

  Raises:
    UnsupportedComputationError: If it contains a placed value or a function.
  """
  if isinstance(value, Leaf):
    return [value]
  if isinstance(value, tuple):
    return [leaf for element in value for leaf in flatten(element)]
  raise failures.UnsupportedComputationError(
    'The in-process runtime found a function or a placed value where TFF has'
    ' only tensors, sequences and structures of them.'
  )


def pack(type_spec: tff.Type, leaves: Iterable[Leaf]) -> UnplacedValue:
  """Packs leaves into the structure of an unplaced type; inverts `flatten`."""

  def take(part: tff.Type, remaining: Iterator[Leaf]) -> UnplacedValue:
    if isinstance(part, tff.StructType):
      return tuple(take(t, remaining) for _, t in tff_names.struct_items(part))
    return next(remaining)

  return take(type_spec, iter(leaves))


def needed_leaves(
  nodes: Sequence[Node],
  wanted: Iterable[Leaf],
  inputs_of: Callable[[Node], Iterable[Leaf]] = lambda node: node.inputs,
) -> set[Leaf]:
  """Returns all leaves that the wanted leaves depend on (liveness analysis).

  Args:
    nodes: Nodes in topological order.
    wanted: The wanted leaves.
    inputs_of: Maps a node to the leaves that it depends on.

  Returns:
    `wanted` and all leaves that they depend on through `nodes`.
  """
  needed = set(wanted)
  for node in reversed(nodes):
    if not needed.isdisjoint(node.leaves):
      needed.update(inputs_of(node))
  return needed


def read_from_outside(
  nodes: Collection[Node], also: Iterable[Leaf] = ()
) -> list[Leaf]:
  """Returns the leaves of other nodes that some nodes take, each once.

  Args:
    nodes: The nodes.
    also: Further leaves to include.
  """
  own = set(nodes)
  read = [leaf for node in nodes for leaf in node.inputs]
  return list(
    dict.fromkeys(leaf for leaf in [*read, *also] if leaf.node not in own)
  )


def size_of(leaves: Iterable[Leaf]) -> int | None:
  """Returns the size of leaves in bytes without datasets; `None` if unknown."""
  total = 0
  for leaf in leaves:
    if leaf.spec.dtype != tf.variant:
      elements = leaf.spec.shape.num_elements()
      if elements is None:
        return None
      total += leaf.spec.dtype.size * elements
  return total


def build_nodes(
  nodes: Sequence[Node],
  known: dict[Leaf, tf.Tensor],
  wanted: Sequence[Leaf],
  replaced: Collection[Leaf] = (),
) -> list[tf.Tensor]:
  """Adds nodes to the current TensorFlow graph.

  Args:
    nodes: Nodes in topological order.
    known: Tensors of leaves of other nodes.
    wanted: The leaves to compute; unneeded nodes are skipped.
    replaced: Dataset leaves whose tensors in `known` are stand-ins.

  Returns:
    The tensors of `wanted`.
  """
  needed = needed_leaves(nodes, wanted)
  known = dict(known)
  for node in nodes:
    indices = [
      i
      for i, leaf in enumerate(node.leaves)
      if leaf in needed and leaf not in known
    ]
    if indices and node.build is not None:
      inputs = [known[leaf] for leaf in node.inputs]
      others = [i for i, leaf in enumerate(node.inputs) if leaf in replaced]
      if others:
        assert node.graph is not None  # Only graphs accept stand-ins.
        built: Sequence[tf.Tensor] = node.graph.call(inputs, indices, others)
      else:
        built = node.build(inputs, indices)
      for i, tensor in zip(indices, built):
        known[Leaf(node, i)] = tensor
  return [known[leaf] for leaf in wanted]
