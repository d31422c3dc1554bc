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
import threading
from typing import Any

import tensorflow_federated as tff

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import phases as planning
from tff_adaptive.runtime.engine import tracing
from tff_adaptive.runtime.graphs import graph as graphs


class Program:
  """A compiled computation, ready to run.

  Attributes:
    arguments: Kind and node of each part of the argument; see
      `Tracer.argument`.
    num_slots: How many leaves there are in all, which slots number.
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
          proto if compiled else tff_names.optimized_graph(block)
        )
      return by_graph[key]

    parameter_type = comp.type_signature.parameter
    block = (
      comp.to_building_block()
      if compiled
      else tff_names.expand_intrinsics(comp)
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
    for node in tracer.nodes:
      node.first_slot = self.num_slots
      self.num_slots += len(node.specs)
    self.passes = planning.plan(tracer.nodes, tracer.aggregations, self.result)
    ordered = any(
      phase.server.ordered or phase.client.ordered or phase.fold.ordered
      for phase in self.passes
    )
    self.lock: contextlib.AbstractContextManager = contextlib.nullcontext()
    if ordered:
      self.lock = threading.Lock()


def load_graph(proto: Any) -> graphs.Graph:
  """The `Graph` of a `computation_pb2.TensorFlow` message."""
  names = tff_names.binding_names
  return graphs.Graph(
    tff_names.unpack_graph_def(proto.graph_def),
    proto.initialize_op,
    proto.session_token_tensor_name,
    names(proto.parameter) if proto.HasField('parameter') else [],
    names(proto.result),
  )
