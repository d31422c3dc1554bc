"""Division of a computation's nodes into phases.

Phase p of the server needs nothing but arguments and the results of
aggregations of phases before p; then the clients compute what the aggregations
of phase p need, whose results are there in phase p + 1. All server nodes of a
phase become one TensorFlow function, all client nodes another, and all
accumulations a third. So a round of tff.learning's FedAvg is one call per
client, one accumulation per client, and two calls at the server.
"""

import collections
import dataclasses
from collections.abc import Sequence

from tff_adaptive.runtime.engine import fused
from tff_adaptive.runtime.engine import nodes as nodes_lib


@dataclasses.dataclass
class Phase:
  """The functions of one phase, and the slots between them.

  Attributes:
    server: Runs first, once.
    client: Runs for each client.
    fold: Runs on the clients' values, in order.
    zero: Slots of the initial accumulators, at the server.
    total: Slots that receive the accumulators in the end, at the server.
    keep: Slots of a client's leaves that outlive this phase.
  """

  server: fused.Fused
  client: fused.Fused
  fold: fused.Fold
  zero: list[int]
  total: list[int]
  keep: list[int]

  @property
  def ordered(self) -> bool:
    """Whether some kernel keeps state between calls."""
    return self.server.ordered or self.client.ordered or self.fold.ordered


def divide(
  nodes: Sequence[nodes_lib.Node],
  aggregations: Sequence[nodes_lib.Aggregation],
  result: nodes_lib.SymbolicValue,
) -> list[Phase]:
  """Divides the nodes that a result needs into phases.

  Args:
    nodes: All nodes, each after those that it needs, with their slots.
    aggregations: All aggregations.
    result: The symbolic result.

  Returns:
    The phases, in order.
  """
  division = _Division(nodes, aggregations, result)
  division.assign_phases()
  return division.phases()


class _Division:
  """The nodes that a result needs, and which of them read which."""

  def __init__(
    self,
    nodes: Sequence[nodes_lib.Node],
    aggregations: Sequence[nodes_lib.Aggregation],
    result: nodes_lib.SymbolicValue,
  ):
    self._folds = {a: [n for n in nodes if n.site is a] for a in aggregations}
    self._result_of = {a.result: a for a in aggregations}
    self._wanted = frozenset(result_leaves(result))
    needed = {
      leaf.node
      for leaf in nodes_lib.needed_leaves(
        nodes, self._wanted, self._dependencies
      )
    }
    self._aggregations = [a for a in aggregations if a.result in needed]
    self._nodes = [
      n
      for n in nodes
      if n in needed and isinstance(n.site, nodes_lib.Placement)
    ]
    self._readers = collections.defaultdict(list)
    for node in self._nodes:
      for leaf in self._dependencies(node):
        self._readers[leaf].append(node)

  def _dependencies(self, node: nodes_lib.Node) -> Sequence[nodes_lib.Leaf]:
    """Lists the leaves that a node, or an aggregation's result, depends on."""
    aggregation = self._result_of.get(node)
    if aggregation is None:
      return node.inputs
    read = nodes_lib.read_from_outside(
      self._folds[aggregation], aggregation.update
    )
    return [*aggregation.zero, *read]

  def assign_phases(self) -> None:
    """Gives every node and aggregation its phase.

    As early as possible, then client work as late as possible: what is computed
    in the phase that uses it need not be kept between phases.
    """
    for node in self._nodes:
      ready = max((x.node.phase for x in self._dependencies(node)), default=0)
      if node in self._result_of:
        self._result_of[node].phase = ready
        ready += 1
      node.phase = ready
    for node in reversed(self._nodes):
      if (
        node.site is nodes_lib.CLIENT
        and node.build is not None
        and self._wanted.isdisjoint(node.leaves)
      ):
        first_read = min(
          self._read_in(reader)
          for leaf in node.leaves
          for reader in self._readers[leaf]
        )
        node.phase = max(node.phase, first_read)

  def _read_in(self, node: nodes_lib.Node) -> int:
    """Returns the phase in which a node's dependencies are read."""
    aggregation = self._result_of.get(node)
    return node.phase if aggregation is None else aggregation.phase

  def phases(self) -> list[Phase]:
    """Makes the phases, in order."""
    last = max((n.phase for n in self._nodes), default=0)
    return [self._phase(number) for number in range(last + 1)]

  def _phase(self, number: int) -> Phase:
    server = self._built(nodes_lib.SERVER, number)
    client = self._built(nodes_lib.CLIENT, number)
    here = [a for a in self._aggregations if a.phase == number]
    return Phase(
      server=fused.Fused(
        f'server_{number}', server, self._used_outside(server)
      ),
      client=fused.Fused(
        f'client_{number}', client, self._used_outside(client)
      ),
      fold=fused.Fold(
        f'fold_{number}',
        [n for a in here for n in self._folds[a] if n.build is not None],
        [leaf for a in here for leaf in a.state.leaves],
        [leaf for a in here for leaf in a.update],
      ),
      zero=[leaf.slot for a in here for leaf in a.zero],
      total=[leaf.slot for a in here for leaf in a.result.leaves],
      keep=self._kept_after(number),
    )

  def _built(
    self, place: nodes_lib.Placement, number: int
  ) -> list[nodes_lib.Node]:
    """Lists the nodes that are computed at a place in a phase."""
    return [
      n
      for n in self._nodes
      if n.site is place and n.phase == number and n.build is not None
    ]

  def _used_outside(
    self, nodes: Sequence[nodes_lib.Node]
  ) -> list[nodes_lib.Leaf]:
    """Lists the leaves of some nodes that others, or the result, need."""
    own = set(nodes)
    return [
      leaf
      for node in nodes
      for leaf in node.leaves
      if leaf in self._wanted or not own.issuperset(self._readers[leaf])
    ]

  def _kept_after(self, number: int) -> list[int]:
    """Lists the slots at clients that later phases, or the result, need."""
    return [
      leaf.slot
      for node in self._nodes
      if node.site is nodes_lib.CLIENT and node.phase <= number
      for leaf in node.leaves
      if leaf in self._wanted
      or any(self._read_in(n) > number for n in self._readers[leaf])
    ]


def result_leaves(value: nodes_lib.SymbolicValue) -> list[nodes_lib.Leaf]:
  """Lists the leaves of a result, placed or not."""
  if isinstance(value, nodes_lib.PlacedValue):
    return nodes_lib.flatten(value.value)
  if isinstance(value, tuple):
    return [leaf for element in value for leaf in result_leaves(element)]
  return nodes_lib.flatten(value)
