"""The parts of a program under construction: nodes and what they compute."""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.graphs import graph as graphs

SERVER = 'server'
CLIENT = 'client'


@dataclasses.dataclass(eq=False)
class Node:
  """Computes tensors from tensors.

  Attributes:
    site: 'server', 'client', or the `Aggregation` whose fold it belongs to.
    inputs: What it reads.
    specs: Of what it yields.
    build: Adds the node to a TensorFlow graph under construction: takes the
      inputs' tensors and the wanted indices, returns the wanted tensors.
      `None` where the tensors come from outside.
    label: For error messages.
    ordered: Whether it must run for one client after another.
    graph: The TensorFlow graph that the node calls, if that is what it does.
    phase: When it runs.
    first_slot: Number of its first leaf.
  """

  site: Any
  inputs: list['Leaf']
  specs: list[tf.TensorSpec]
  build: Optional[Callable[[list[tf.Tensor], Sequence[int]], list[tf.Tensor]]]
  label: str
  ordered: bool = False
  graph: Optional[graphs.Graph] = None
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
class Federated:
  """A placed value; `value` has the leaves of one member.

  The leaves of an all-equal value at the clients are at the server.
  """

  placement: tff.framework.PlacementLiteral
  value: Any
  all_equal: bool


@dataclasses.dataclass(eq=False)
class Aggregation:
  """A left fold over the clients in their order.

  Attributes:
    zero: Where it starts (at the server).
    state: Stands for the value accumulated so far.
    update: The accumulation's result (at this fold's site).
    result: Receives the value after the last client (at the server).
  """

  zero: list[Leaf]
  state: Node
  update: list[Leaf]
  result: Node
  phase: int = 0


def flatten(value: Any) -> list[Leaf]:
  if isinstance(value, Leaf):
    return [value]
  if isinstance(value, tuple):
    return [leaf for element in value for leaf in flatten(element)]
  raise failures.UnsupportedComputationError(
    'The in-process runtime found a function or a placed value where TFF has'
    ' only tensors, sequences and structures of them.'
  )


def pack(type_spec: tff.Type, leaves: Iterator[Leaf]) -> Any:
  if isinstance(type_spec, tff.StructType):
    return tuple(pack(t, leaves) for _, t in tff_names.struct_items(type_spec))
  return next(leaves)


def build_nodes(
  nodes: Sequence[Node],
  known: dict[Leaf, tf.Tensor],
  wanted: Sequence[Leaf],
  listed: frozenset[Leaf] = frozenset(),
) -> list[tf.Tensor]:
  """Adds `nodes` to the graph under construction.

  Args:
    nodes: In an order in which each follows its inputs.
    known: Tensors of leaves that other nodes made.
    wanted: Leaves to return the tensors of; nodes that they do not need are
      left out.
    listed: Leaves in `known` that are lists of batches, not datasets.
  """
  needed = set(wanted)
  for node in reversed(nodes):
    if any(leaf in needed for leaf in node.leaves):
      needed.update(node.inputs)
  known = dict(known)
  for node in nodes:
    indices = [
      i
      for i, leaf in enumerate(node.leaves)
      if leaf in needed and leaf not in known
    ]
    if indices and node.build is not None:
      inputs = [known[leaf] for leaf in node.inputs]
      lists = [i for i, leaf in enumerate(node.inputs) if leaf in listed]
      if lists:
        assert node.graph is not None  # Only graphs take lists.
        built = node.graph.call(inputs, indices, lists)
      else:
        built = node.build(inputs, indices)
      for i, tensor in zip(indices, built):
        known[Leaf(node, i)] = tensor
  return [known[leaf] for leaf in wanted]
