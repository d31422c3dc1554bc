"""From a TFF computation to a plan of a few fused TensorFlow functions.

TFF's compiler expresses a computation in a few intrinsics over TensorFlow
graphs. `tracing.py` evaluates it symbolically: structures, selections, lambdas,
zips and broadcasts vanish, and what remains is a graph of nodes, each of which
computes some tensors from others, at one of three sites:

  server  once per invocation
  client  once per client
  fold    once per client, in the clients' order: an aggregation's accumulation

Then the nodes are sorted into phases. Phase p of the server needs nothing but
arguments and the results of aggregations of phases before p; pass p over the
clients yields what the aggregations of phase p need; their results are there
in phase p + 1. All server nodes of a phase become one TensorFlow function, all
client nodes of a pass another, and all folds of a pass a third. So a round of
tff.learning's FedAvg is one call per client, one fold per client, and two calls
at the server. A client's intermediate values live until its fold, unless a
later pass or the result needs them; hence memory does not grow with the cohort.
"""

import contextlib
import dataclasses
import threading
from typing import Any

import tensorflow_federated as tff

from tff_adaptive.runtime import _tff
from tff_adaptive.runtime import fused
from tff_adaptive.runtime import graphs
from tff_adaptive.runtime import nodes as nodes_lib
from tff_adaptive.runtime import tracing


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


class Program:
  """A compiled computation, ready to run.

  Attributes:
    arguments: Kind and node of each part of the argument; see
      `Tracer.argument`.
    passes: In the order of their phases.
    lock: Held during an invocation if some kernel keeps state between calls.
    result: The symbolic result.
  """

  def __init__(
    self, comp: tff.framework.ConcreteComputation, compiled: bool = False
  ):
    """Traces and fuses.

    Args:
      comp: The computation.
      compiled: Whether TFF's native compiler has seen it already.
    """
    by_graph = {}

    def graph_of(block: Any) -> graphs.Graph:
      proto = block.proto.tensorflow
      key = proto.SerializeToString(deterministic=True)
      if key not in by_graph:
        by_graph[key] = load_graph(
          proto if compiled else _tff.optimized_graph(block)
        )
      return by_graph[key]

    parameter_type = comp.type_signature.parameter
    block = (
      comp.to_building_block() if compiled else _tff.expand_intrinsics(comp)
    )
    tracer = tracing.Tracer(graph_of)
    self.num_slots = 0
    argument: Any = None
    self.arguments: list[tuple[str, nodes_lib.Node]] = []
    if parameter_type is not None:
      argument, self.arguments = tracer.argument(parameter_type)
    self.result = tracer.evaluate(block, {}, nodes_lib.SERVER)(
      argument, nodes_lib.SERVER
    )
    self._plan(tracer)
    ordered = any(
      phase.server.ordered or phase.client.ordered or phase.fold.ordered
      for phase in self.passes
    )
    self.lock: contextlib.AbstractContextManager = contextlib.nullcontext()
    if ordered:
      self.lock = threading.Lock()

  def _plan(self, tracer: tracing.Tracer) -> None:
    nodes = tracer.nodes
    for node in nodes:
      node.first_slot = self.num_slots
      self.num_slots += len(node.specs)
    folds = {a: [n for n in nodes if n.site is a] for a in tracer.aggregations}
    result_of = {a.result: a for a in tracer.aggregations}

    def fold_inputs(aggregation: Any) -> Any:
      own = set(folds[aggregation])
      read = [x for n in folds[aggregation] for x in n.inputs]
      return [x for x in read + aggregation.update if x.node not in own]

    def dependencies(node: Any) -> Any:
      if node in result_of:
        aggregation = result_of[node]
        return aggregation.zero + fold_inputs(aggregation)
      return node.inputs

    wanted = _result_leaves(self.result)
    needed = {leaf.node for leaf in wanted}
    for node in reversed(nodes):
      if node in needed:
        needed.update(leaf.node for leaf in dependencies(node))
    nodes = [
      n
      for n in nodes
      if n in needed and n.site in (nodes_lib.SERVER, nodes_lib.CLIENT)
    ]

    # As early as possible, then client work as late as possible: what is made
    # in the pass that uses it need not be kept between passes.
    for node in nodes:
      ready = max((x.node.phase for x in dependencies(node)), default=0)
      if node in result_of:
        result_of[node].phase = ready
        ready += 1
      node.phase = ready
    wanted_set = set(wanted)
    uses: dict[nodes_lib.Node, list[int]] = {node: [] for node in nodes}
    for node in reversed(nodes):
      if node.site is nodes_lib.CLIENT and node.build is not None:
        if not any(leaf in wanted_set for leaf in node.leaves):
          node.phase = max(node.phase, min(uses[node]))
      when = result_of[node].phase if node in result_of else node.phase
      for leaf in dependencies(node):
        uses[leaf.node].append(when)

    aggregations = [a for a in tracer.aggregations if a.result in needed]
    last = max((n.phase for n in nodes), default=0)
    self.passes = []
    for phase in range(last + 1):
      here = [a for a in aggregations if a.phase == phase]

      def used_outside(node: Any, own: Any) -> Any:
        return [
          leaf
          for leaf in node.leaves
          if leaf in wanted_set
          or any(
            leaf in dependencies(other) for other in nodes if other not in own
          )
        ]

      server = [
        n
        for n in nodes
        if n.site is nodes_lib.SERVER
        and n.phase == phase
        and n.build is not None
      ]
      client = [
        n
        for n in nodes
        if n.site is nodes_lib.CLIENT
        and n.phase == phase
        and n.build is not None
      ]
      own_server, own_client = set(server), set(client)
      later = [
        n
        for n in nodes
        if (n.site is nodes_lib.CLIENT and n.phase > phase)
        or (n in result_of and result_of[n].phase > phase)
      ]
      keep = [
        leaf
        for node in nodes
        if node.site is nodes_lib.CLIENT and node.phase <= phase
        for leaf in node.leaves
        if leaf in wanted_set or any(leaf in dependencies(n) for n in later)
      ]
      self.passes.append(
        Pass(
          server=fused.Fused(
            f'server_{phase}',
            server,
            [x for n in server for x in used_outside(n, own_server)],
          ),
          client=fused.Fused(
            f'client_{phase}',
            client,
            [x for n in client for x in used_outside(n, own_client)],
          ),
          fold=fused.Fold(
            f'fold_{phase}',
            [n for a in here for n in folds[a] if n.build is not None],
            [leaf for a in here for leaf in a.state.leaves],
            [leaf for a in here for leaf in a.update],
          ),
          zero=[leaf.slot for a in here for leaf in a.zero],
          total=[leaf.slot for a in here for leaf in a.result.leaves],
          keep=[leaf.slot for leaf in keep],
        )
      )


def _result_leaves(value: Any) -> list[nodes_lib.Leaf]:
  if isinstance(value, nodes_lib.Federated):
    return nodes_lib.flatten(value.value)
  if isinstance(value, tuple):
    return [leaf for element in value for leaf in _result_leaves(element)]
  return nodes_lib.flatten(value)


def load_graph(proto: Any) -> graphs.Graph:
  """The `Graph` of a `computation_pb2.TensorFlow` message."""
  names = _tff.binding_names
  return graphs.Graph(
    _tff.unpack_graph_def(proto.graph_def),
    proto.initialize_op,
    proto.session_token_tensor_name,
    names(proto.parameter) if proto.HasField('parameter') else [],
    names(proto.result),
  )
