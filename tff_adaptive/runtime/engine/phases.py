"""Sorts the nodes of a traced computation into passes; see `program.py`."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from tff_adaptive.runtime.engine import fused
from tff_adaptive.runtime.engine import nodes as nodes_lib


@dataclasses.dataclass
class Pass:
  """What one phase does: at the server, then over the clients.

  Slots number all leaves of a program.

  Attributes:
    server: Runs first.
    client: Runs for each client.
    fold: Runs on the clients' values, in order.
    zero: Slots where the accumulators start, at the server.
    total: Slots that receive the accumulators in the end, at the server.
    keep: Slots of a client's leaves that outlive this pass.
  """

  server: fused.Fused
  client: fused.Fused
  fold: fused.Fold
  zero: list[int]
  total: list[int]
  keep: list[int]


def plan(
  nodes: Sequence[nodes_lib.Node],
  aggregations: Sequence[nodes_lib.Aggregation],
  result: Any,
) -> list[Pass]:
  """The passes that compute a result.

  Args:
    nodes: All nodes, each after those that it needs, with their slots.
    aggregations: All aggregations.
    result: The symbolic result.
  """
  planner = _Planner(nodes, aggregations, result)
  planner.schedule()
  return planner.passes()


class _Planner:
  """The nodes that a result needs, and who needs what of whom."""

  def __init__(self, nodes: Any, aggregations: Any, result: Any):
    self._folds = {a: [n for n in nodes if n.site is a] for a in aggregations}
    self._result_of = {a.result: a for a in aggregations}
    self._wanted = frozenset(_result_leaves(result))
    needed = {leaf.node for leaf in self._wanted}
    for node in reversed(nodes):
      if node in needed:
        needed.update(leaf.node for leaf in self._dependencies(node))
    self._aggregations = [a for a in aggregations if a.result in needed]
    self._nodes = [
      n
      for n in nodes
      if n in needed and n.site in (nodes_lib.SERVER, nodes_lib.CLIENT)
    ]
    self._readers = collections.defaultdict(list)
    for node in self._nodes:
      for leaf in self._dependencies(node):
        self._readers[leaf].append(node)

  def _dependencies(self, node: nodes_lib.Node) -> list[nodes_lib.Leaf]:
    """What must be there before a node, or before an aggregation's result."""
    aggregation = self._result_of.get(node)
    if aggregation is None:
      return node.inputs
    folds = self._folds[aggregation]
    own = set(folds)
    read = [x for n in folds for x in n.inputs] + aggregation.update
    return aggregation.zero + [x for x in read if x.node not in own]

  def schedule(self) -> None:
    """Gives every node and aggregation its phase.

    As early as possible, then client work as late as possible: what is made in
    the pass that uses it need not be kept between passes.
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
    """The phase in which what a node depends on is read."""
    aggregation = self._result_of.get(node)
    return node.phase if aggregation is None else aggregation.phase

  def passes(self) -> list[Pass]:
    """The passes, in the order of their phases."""
    last = max((n.phase for n in self._nodes), default=0)
    return [self._pass(phase) for phase in range(last + 1)]

  def _pass(self, phase: int) -> Pass:
    server = self._built(nodes_lib.SERVER, phase)
    client = self._built(nodes_lib.CLIENT, phase)
    here = [a for a in self._aggregations if a.phase == phase]
    return Pass(
      server=fused.Fused(f'server_{phase}', server, self._used_outside(server)),
      client=fused.Fused(f'client_{phase}', client, self._used_outside(client)),
      fold=fused.Fold(
        f'fold_{phase}',
        [n for a in here for n in self._folds[a] if n.build is not None],
        [leaf for a in here for leaf in a.state.leaves],
        [leaf for a in here for leaf in a.update],
      ),
      zero=[leaf.slot for a in here for leaf in a.zero],
      total=[leaf.slot for a in here for leaf in a.result.leaves],
      keep=self._kept_after(phase),
    )

  def _built(self, site: Any, phase: int) -> list[nodes_lib.Node]:
    """What is computed at a site in a phase."""
    return [
      n
      for n in self._nodes
      if n.site is site and n.phase == phase and n.build is not None
    ]

  def _used_outside(
    self, nodes: Sequence[nodes_lib.Node]
  ) -> list[nodes_lib.Leaf]:
    """Leaves of some nodes that others, or the result, need."""
    own = set(nodes)
    return [
      leaf
      for node in nodes
      for leaf in node.leaves
      if leaf in self._wanted or not own.issuperset(self._readers[leaf])
    ]

  def _kept_after(self, phase: int) -> list[int]:
    """Slots of clients' leaves that later passes, or the result, need."""
    return [
      leaf.slot
      for node in self._nodes
      if node.site is nodes_lib.CLIENT and node.phase <= phase
      for leaf in node.leaves
      if leaf in self._wanted
      or any(self._read_in(n) > phase for n in self._readers[leaf])
    ]


def _result_leaves(value: Any) -> list[nodes_lib.Leaf]:
  if isinstance(value, nodes_lib.Federated):
    return nodes_lib.flatten(value.value)
  if isinstance(value, tuple):
    return [leaf for element in value for leaf in _result_leaves(element)]
  return nodes_lib.flatten(value)
