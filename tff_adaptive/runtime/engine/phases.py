"""Division of a computation's nodes into phases.

In phase p the server's nodes depend only on arguments and on aggregations of
earlier phases; then clients compute the inputs of the aggregations of phase p,
whose results are available in phase p + 1. All server nodes of a phase become
one TensorFlow function, all client nodes another, and all accumulations a
third. So a round of tff.learning's FedAvg is one call and one accumulation per
client, and two calls at the server.
"""

import collections
import dataclasses
import functools
from collections.abc import Sequence

import tensorflow as tf

from tff_adaptive.runtime import failures
from tff_adaptive.runtime.engine import fused
from tff_adaptive.runtime.engine import lockstep
from tff_adaptive.runtime.engine import nodes as nodes_lib


@dataclasses.dataclass
class Phase:
  """The functions of one phase, and the slots that connect them.

  Attributes:
    server: Runs first, once.
    client: Runs for each client.
    fold: Accumulates the clients' values, in order.
    zero: Slots of the initial accumulators, at the server.
    total: Slots of the final accumulators, at the server.
    keep: Slots of a client's leaves that are needed after this phase.
    together: The client function for several clients; `None` if there is none.
    alone_because: Why not, or not in a round; empty for clients without data,
      and once said.
    said: What was said of it.
  """

  server: fused.Fused
  client: fused.Fused
  fold: fused.Fold
  zero: list[int]
  total: list[int]
  keep: list[int]
  together: lockstep.Together | None = None
  alone_because: str = ''
  said: set[str] = dataclasses.field(default_factory=set)

  def __post_init__(self) -> None:
    try:
      self.together = lockstep.Together(self.client)
    except failures.CannotVectorize as e:
      self.alone_because = str(e)

  @property
  def reads_data(self) -> bool:
    """Whether clients read their data."""
    return any(leaf.spec.dtype == tf.variant for leaf in self.client.inputs)

  @functools.cached_property
  def loops(self) -> bool:
    """Whether a client's step over a batch has a loop of its own."""
    return any(
      node.graph is not None and node.graph.has_nested_loops
      for node in self.client.nodes
    )

  @property
  def ordered(self) -> bool:
    """Whether some kernel keeps state between calls."""
    return self.server.ordered or self.client.ordered or self.fold.ordered


class Division:
  """The nodes that a result needs, divided into phases."""

  def __init__(
    self,
    nodes: Sequence[nodes_lib.Node],
    aggregations: Sequence[nodes_lib.Aggregation],
    result: nodes_lib.SymbolicValue,
  ):
    """Assigns nodes and aggregations to phases.

    Args:
      nodes: All nodes in topological order, with their slots.
      aggregations: All aggregations, likewise.
      result: The symbolic result.
    """
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
    self._assign_phases()

  def _dependencies(self, node: nodes_lib.Node) -> Sequence[nodes_lib.Leaf]:
    """Returns the leaves that a node or an aggregation's result depends on."""
    aggregation = self._result_of.get(node)
    if aggregation is None:
      return node.inputs
    read = nodes_lib.read_from_outside(
      self._folds[aggregation], aggregation.update
    )
    return [*aggregation.zero, *read]

  def _assign_phases(self) -> None:
    """Assigns each node and aggregation to a phase.

    Nodes run as early as possible, client nodes then as late as possible: a
    value computed in the phase that uses it need not be kept between phases.
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
    """Returns the phase in which a node's inputs are used."""
    aggregation = self._result_of.get(node)
    return node.phase if aggregation is None else aggregation.phase

  def phases(self) -> list[Phase]:
    """Builds the phases, in order."""
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
      # At clients, for later phases or the result.
      keep=[
        leaf.slot
        for node in self._nodes
        if node.site is nodes_lib.CLIENT and node.phase <= number
        for leaf in node.leaves
        if leaf in self._wanted
        or any(self._read_in(n) > number for n in self._readers[leaf])
      ],
    )

  def _built(
    self, place: nodes_lib.Placement, number: int
  ) -> list[nodes_lib.Node]:
    """Returns the nodes to build at a site in a phase."""
    return [
      n
      for n in self._nodes
      if n.site is place and n.phase == number and n.build is not None
    ]

  def _used_outside(
    self, nodes: Sequence[nodes_lib.Node]
  ) -> list[nodes_lib.Leaf]:
    """Returns the leaves of some nodes that other nodes or the result use."""
    own = set(nodes)
    return [
      leaf
      for node in nodes
      for leaf in node.leaves
      if leaf in self._wanted or not own.issuperset(self._readers[leaf])
    ]


def result_leaves(value: nodes_lib.SymbolicValue) -> list[nodes_lib.Leaf]:
  """Returns the leaves of a result, placed or unplaced."""
  if isinstance(value, nodes_lib.PlacedValue):
    return nodes_lib.flatten(value.value)
  if isinstance(value, tuple):
    return [leaf for element in value for leaf in result_leaves(element)]
  return nodes_lib.flatten(value)
