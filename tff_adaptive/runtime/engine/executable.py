"""A TFF computation compiled to a few TensorFlow functions.

TFF's compiler reduces a computation to a few intrinsics over TensorFlow graphs.
A `Tracer` evaluates it symbolically to a list of nodes (`nodes.py`), which run
once at the server, once per client, or once per client in an aggregation's
accumulation. `phases.py` divides the nodes into phases and fuses those of one
phase and placement into one function (`fused.py`). A client's intermediate
values are freed after its accumulation unless a later phase or the result needs
them, so memory does not grow with the cohort.
"""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import cohorts
from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import builder as builder_lib
from tff_adaptive.runtime.engine import intrinsics
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import phases
from tff_adaptive.runtime.engine import values
from tff_adaptive.runtime.graphs import graph as graph_lib

_Scope: TypeAlias = Mapping[str, nodes_lib.SymbolicValue | None]


class Tracer:
  """Evaluates TFF's building blocks to symbolic values.

  Structures, selections, lambdas, zips and broadcasts are resolved; only nodes
  in `builder` remain.

  Attributes:
    builder: The nodes and aggregations so far.
  """

  def __init__(self, once: bool = False):
    """Creates a tracer without nodes.

    Args:
      once: Whether repeated calls of a graph at the same site with the same
        inputs are merged, even if the graph draws random numbers.
    """
    self._once = once
    self._calls: dict[object, nodes_lib.Node] = {}
    self._loaded: dict[bytes, graph_lib.Graph] = {}
    self.builder = builder_lib.Builder()

  def argument(
    self, type_spec: tff.Type
  ) -> tuple[nodes_lib.SymbolicValue, list[nodes_lib.Node]]:
    """Builds the symbolic argument of a computation.

    Returns:
      The symbolic value, and one node per unplaced or placed part of the
      argument, in order.
    """
    if isinstance(type_spec, tff.StructType):
      elements: list[nodes_lib.SymbolicValue] = []
      parts = []
      for _, element_type in tff_names.struct_items(type_spec):
        element, more = self.argument(element_type)
        elements.append(element)
        parts.extend(more)
      return tuple(elements), parts
    if not isinstance(type_spec, tff.FederatedType):
      node = self.builder.add(
        nodes_lib.SERVER, [], values.leaf_specs(type_spec), None, 'argument'
      )
      return nodes_lib.pack(type_spec, node.leaves), [node]
    at_clients = type_spec.placement is tff.CLIENTS and not type_spec.all_equal
    site = nodes_lib.CLIENT if at_clients else nodes_lib.SERVER
    member = type_spec.member
    node = self.builder.add(
      site, [], values.leaf_specs(member), None, f'{site.value} argument'
    )
    value = nodes_lib.pack(member, node.leaves)
    placed = nodes_lib.PlacedValue(
      type_spec.placement, value, type_spec.all_equal
    )
    return placed, [node]

  def evaluate(
    self,
    block: tff.framework.ComputationBuildingBlock,
    scope: _Scope,
    site: nodes_lib.Site,
  ) -> Any:
    """Evaluates a building block.

    Args:
      block: The building block.
      scope: Values of bound names.
      site: Site of nodes without a placement.

    Returns:
      Its `SymbolicValue`, of a kind that follows from the block's TFF type
      (Python's types cannot express this).
    """
    framework = tff.framework
    if isinstance(block, framework.Reference):
      return scope[block.name]
    if isinstance(block, framework.Selection):
      source = self.evaluate(block.source, scope, site)
      return source[block.as_index()]
    if isinstance(block, framework.Struct):
      return tuple(self.evaluate(e, scope, site) for e in block)
    if isinstance(block, framework.Call):
      function = self.evaluate(block.function, scope, site)
      argument = None
      if block.argument is not None:
        argument = self.evaluate(block.argument, scope, site)
      return function(argument, site)
    if isinstance(block, framework.Block):
      local = dict(scope)
      for name, value in block.locals:
        local[name] = self.evaluate(value, local, site)
      return self.evaluate(block.result, local, site)
    return self._function_or_literal(block, scope, site)

  def _function_or_literal(
    self,
    block: tff.framework.ComputationBuildingBlock,
    scope: _Scope,
    site: nodes_lib.Site,
  ) -> nodes_lib.SymbolicFunction | nodes_lib.Leaf:
    framework = tff.framework
    if isinstance(block, framework.Lambda):

      def function(
        argument: nodes_lib.SymbolicValue | None, site: nodes_lib.Site
      ) -> nodes_lib.SymbolicValue:
        inner = scope
        if block.parameter_name is not None:
          inner = {**scope, block.parameter_name: argument}
        return self.evaluate(block.result, inner, site)

      return function
    if isinstance(block, framework.Intrinsic):
      return lambda argument, site: self._intrinsic(block, argument, site)
    if isinstance(block, framework.CompiledComputation):
      return lambda argument, site: self._graph(block, argument, site)
    if isinstance(block, framework.Literal):
      return self._literal(block, site)
    if isinstance(block, framework.Data):
      raise failures.UnsupportedComputationError(
        'The in-process runtime cannot load `tff.data` references; pass the'
        ' data as an argument.'
      )
    raise failures.UnsupportedComputationError(
      f'The in-process runtime cannot evaluate a {type(block).__name__}.'
    )

  def _literal(
    self, block: tff.framework.Literal, site: nodes_lib.Site
  ) -> nodes_lib.Leaf:
    spec = tff_names.tensor_spec(block.type_signature)
    return self.builder.add(
      site,
      [],
      [spec],
      lambda inputs, wanted: [tf.constant(block.value, spec.dtype)],
      'literal',
    ).leaves[0]

  def _graph(
    self,
    block: tff.framework.CompiledComputation,
    argument: nodes_lib.SymbolicValue | None,
    site: nodes_lib.Site,
  ) -> nodes_lib.UnplacedValue:
    kind = block.proto.WhichOneof('computation')
    if kind != 'tensorflow':
      raise failures.UnsupportedComputationError(
        f'The in-process runtime runs TensorFlow only, got {kind!r} code (most '
        'likely of a JAX computation).'
      )
    graph = self._loaded_graph(block)
    result = block.type_signature.result
    inputs = [] if argument is None else nodes_lib.flatten(argument)
    key = (id(graph), site, tuple(inputs))
    node = self._calls.get(key) if self._once else None
    if node is None:
      node = self._calls[key] = self.builder.add(
        site,
        inputs,
        values.leaf_specs(result),
        graph.call,
        'a TensorFlow graph',
        ordered=graph.ordered,
        graph=graph,
      )
    return nodes_lib.pack(result, node.leaves)

  def _loaded_graph(
    self, block: tff.framework.CompiledComputation
  ) -> graph_lib.Graph:
    """Loads a building block's TensorFlow graph, equal ones once."""
    key = block.proto.tensorflow.SerializeToString(deterministic=True)
    if key not in self._loaded:
      proto = tff_names.optimized_graph(block)
      names = tff_names.binding_names
      self._loaded[key] = graph_lib.Graph(
        tff_names.unpack_graph_def(proto),
        proto.initialize_op,
        proto.session_token_tensor_name,
        names(proto.parameter) if proto.HasField('parameter') else [],
        names(proto.result),
      )
      self._loaded[key].cohort_form = cohorts.form_of(block)
    return self._loaded[key]

  def _intrinsic(
    self,
    block: tff.framework.Intrinsic,
    argument: nodes_lib.SymbolicValue | None,
    site: nodes_lib.Site,
  ) -> nodes_lib.SymbolicValue:
    handler = intrinsics.HANDLERS.get(block.uri)
    if handler is None:
      raise failures.UnsupportedComputationError(
        f'The in-process runtime does not support the intrinsic'
        f' {block.uri!r}; it supports {", ".join(sorted(intrinsics.HANDLERS))}.'
      )
    return handler(self.builder, block.type_signature, argument, site)


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
      once: As in `Tracer`.
    """
    block = tff_names.expand_intrinsics(comp)
    tracer = Tracer(once)
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
    self.phases = phases.Division(
      nodes, tracer.builder.aggregations, self.result
    ).phases()
    self.lock: contextlib.AbstractContextManager = (
      threading.Lock()
      if any(phase.ordered for phase in self.phases)
      else contextlib.nullcontext()
    )

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
