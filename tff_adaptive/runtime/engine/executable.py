"""A TFF computation compiled to a few TensorFlow functions.

TFF's compiler reduces a computation to a few intrinsics over TensorFlow graphs.
`tracing.py` evaluates it symbolically to a list of nodes (`nodes.py`), which
run once at the server, once per client, or once per client in an aggregation's
accumulation. `phases.py` divides the nodes into phases and fuses those of one
phase and placement into one function (`fused.py`). A client's intermediate
values are freed after its accumulation unless a later phase or the result needs
them, so memory does not grow with the cohort.
"""

import contextlib
import threading

import tensorflow_federated as tff

from tff_adaptive import cohorts
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import phases
from tff_adaptive.runtime.engine import tracing
from tff_adaptive.runtime.graphs import graph as graph_lib


class Executable:
  """A compiled computation, ready to run.

  Attributes:
    arguments: One node per unplaced or placed part of the argument, in order.
    num_slots: Number of leaves; each has a slot.
    phases: The phases in order.
    lock: Held during an invocation if some kernel keeps state between calls.
    result: The symbolic result.
  """

  def __init__(
    self, comp: tff.framework.ConcreteComputation, once: bool = False
  ):
    """Traces a computation and fuses its nodes.

    Args:
      comp: The computation.
      once: As in `tracing.Tracer`.
    """
    block = tff_names.expand_intrinsics(comp)
    tracer = tracing.Tracer(_GraphLoader(), once)
    argument: nodes_lib.SymbolicValue | None = None
    self.arguments: list[nodes_lib.Node] = []
    if comp.type_signature.parameter is not None:
      argument, self.arguments = tracer.argument(comp.type_signature.parameter)
    function = tracer.evaluate(block, {}, nodes_lib.SERVER)
    self.result: nodes_lib.SymbolicValue = function(argument, nodes_lib.SERVER)
    nodes = tracer.builder.nodes
    self.num_slots = 0
    for node in nodes:
      node.first_slot = self.num_slots
      self.num_slots += len(node.specs)
    self.phases = phases.divide(nodes, tracer.builder.aggregations, self.result)
    self.lock: contextlib.AbstractContextManager = contextlib.nullcontext()
    if any(phase.ordered for phase in self.phases):
      self.lock = threading.Lock()

  @property
  def aggregates(self) -> bool:
    """Whether the result needs an aggregation."""
    return any(phase.total for phase in self.phases)

  def read_at_server(self) -> list[bool]:
    """Returns for each tensor of the server's arguments whether it is read."""
    read = {leaf.slot for leaf in phases.result_leaves(self.result)}
    for phase in self.phases:
      read.update(phase.zero)
      for leaves in (
        phase.server.inputs,
        phase.client.inputs,
        phase.fold.inputs,
        phase.fold.shared,
      ):
        read.update(leaf.slot for leaf in leaves)
    return [
      leaf.slot in read
      for node in self.arguments
      if node.site is nodes_lib.SERVER
      for leaf in node.leaves
    ]


class _GraphLoader:
  """Loads a computation's graphs, equal ones once."""

  def __init__(self) -> None:
    self._loaded: dict[bytes, graph_lib.Graph] = {}

  def __call__(
    self, block: tff.framework.CompiledComputation
  ) -> graph_lib.Graph:
    proto = block.proto.tensorflow
    key = proto.SerializeToString(deterministic=True)
    if key not in self._loaded:
      graph = _load_graph(tff_names.optimized_graph(block))
      graph.cohort_form = cohorts.form_of(block)
      self._loaded[key] = graph
    return self._loaded[key]


def _load_graph(proto: tff_names.TensorFlowProto) -> graph_lib.Graph:
  names = tff_names.binding_names
  return graph_lib.Graph(
    tff_names.unpack_graph_def(proto),
    proto.initialize_op,
    proto.session_token_tensor_name,
    names(proto.parameter) if proto.HasField('parameter') else [],
    names(proto.result),
  )
