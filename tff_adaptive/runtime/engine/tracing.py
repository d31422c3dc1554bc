"""Symbolic evaluation of a computation's building blocks.

See `program.py` for what becomes of the nodes.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import intrinsics
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import values
from tff_adaptive.runtime.graphs import graph as graphs


class Tracer:
  """Symbolic evaluation of building blocks.

  Attributes:
    nodes: In an order in which each follows its inputs.
    aggregations: In the same sense.
  """

  def __init__(self, graph_of: Callable[[Any], graphs.Graph]):
    self._graph_of = graph_of
    self.nodes: list[nodes_lib.Node] = []
    self.aggregations: list[nodes_lib.Aggregation] = []

  def node(self, *arguments: Any, **keywords: Any) -> nodes_lib.Node:
    node = nodes_lib.Node(*arguments, **keywords)
    self.nodes.append(node)
    return node

  def argument(
    self, type_spec: tff.Type
  ) -> tuple[Any, list[tuple[str, nodes_lib.Node]]]:
    """The symbolic argument of a computation.

    Returns:
      The value and, for each unplaced or placed part in order, its kind
      ('server', 'client' or 'all_equal') and the node that stands for it.
    """
    if isinstance(type_spec, tff.FederatedType):
      member = type_spec.member
      if type_spec.placement is tff.CLIENTS and not type_spec.all_equal:
        kind, site = 'client', nodes_lib.CLIENT
      else:
        kind, site = 'server', nodes_lib.SERVER
      node = self.node(
        site, [], values.leaf_specs(member), None, f'{kind} argument'
      )
      value = nodes_lib.pack(member, iter(node.leaves))
      placed = nodes_lib.Federated(
        type_spec.placement, value, type_spec.all_equal
      )
      return placed, [(kind, node)]
    if isinstance(type_spec, tff.StructType):
      elements, parts = [], []
      for _, element_type in tff_names.struct_items(type_spec):
        element, more = self.argument(element_type)
        elements.append(element)
        parts.extend(more)
      return tuple(elements), parts
    node = self.node(
      nodes_lib.SERVER, [], values.leaf_specs(type_spec), None, 'argument'
    )
    return nodes_lib.pack(type_spec, iter(node.leaves)), [('server', node)]

  def evaluate(self, block: Any, scope: dict[str, Any], site: Any) -> Any:
    """The symbolic value of `block`.

    Functions become Python functions of an argument and a site.
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
      scope = dict(scope)
      for name, value in block.locals:
        scope[name] = self.evaluate(value, scope, site)
      return self.evaluate(block.result, scope, site)
    if isinstance(block, framework.Lambda):

      def function(argument: Any, site: Any) -> Any:
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

  def _literal(self, block: Any, site: Any) -> nodes_lib.Leaf:
    value = tff_names.literal_value(block)
    spec = tff_names.tensor_spec(block.type_signature)
    return self.node(
      site,
      [],
      [spec],
      lambda inputs, wanted: [tf.constant(value, spec.dtype)],
      'literal',
    ).leaves[0]

  def _graph(self, block: Any, argument: Any, site: Any) -> Any:
    kind = block.proto.WhichOneof('computation')
    if kind != 'tensorflow':
      raise failures.UnsupportedComputationError(
        f'The in-process runtime runs TensorFlow, and was given {kind!r} code'
        ' (of a JAX computation, most likely).'
      )
    graph = self._graph_of(block)
    inputs = [] if argument is None else nodes_lib.flatten(argument)
    result = block.type_signature.result
    node = self.node(
      site,
      inputs,
      values.leaf_specs(result),
      graph.call,
      'a TensorFlow graph',
      ordered=graph.ordered,
      graph=graph,
    )
    return nodes_lib.pack(result, iter(node.leaves))

  def _intrinsic(self, block: Any, argument: Any, site: Any) -> Any:
    handler = intrinsics.HANDLERS.get(block.uri)
    if handler is None:
      raise failures.UnsupportedComputationError(
        f'The in-process runtime does not support the intrinsic'
        f' {block.uri!r}; it supports {", ".join(sorted(intrinsics.HANDLERS))}.'
      )
    return handler(self, block.type_signature, argument, site)

  def fold(
    self, value: nodes_lib.Federated, zero: Any, zero_type: Any, accumulate: Any
  ) -> Any:
    """Adds an aggregation; returns its total, at the server."""
    specs = values.leaf_specs(zero_type)
    state = self.node(None, [], specs, None, 'an accumulator')
    total = self.node(nodes_lib.SERVER, [], specs, None, 'an aggregate')
    aggregation = nodes_lib.Aggregation(
      nodes_lib.flatten(zero), state, [], total
    )
    state.site = aggregation
    packed = nodes_lib.pack(zero_type, iter(state.leaves))
    aggregation.update = nodes_lib.flatten(
      accumulate((packed, value.value), aggregation)
    )
    self.aggregations.append(aggregation)
    # The total must follow what it is made of.
    self.nodes.remove(total)
    self.nodes.append(total)
    return nodes_lib.pack(zero_type, iter(total.leaves))

  def inner(self, specs: Any, body: Any) -> 'Inner':
    """Evaluates a function that a node will call by itself."""
    start = len(self.nodes)
    site = object()
    parameters = self.node(site, [], specs, None, 'parameter')
    results = nodes_lib.flatten(body(parameters.leaves, site))
    inside = [n for n in self.nodes[start:] if n.site is site]
    self.nodes[start:] = [n for n in self.nodes[start:] if n.site is not site]
    return Inner(inside, parameters.leaves, results)


class Inner:
  """A function inside of a node.

  Attributes:
    captured: What it reads besides its parameters.
    ordered: See `nodes_lib.Node`.
  """

  def __init__(
    self,
    nodes: list[nodes_lib.Node],
    parameters: list[nodes_lib.Leaf],
    results: list[nodes_lib.Leaf],
  ):
    self._nodes = nodes
    self._parameters = parameters
    self._results = results
    own = set(nodes)
    read = [leaf for node in nodes for leaf in node.inputs] + results
    self.captured = list(
      dict.fromkeys(leaf for leaf in read if leaf.node not in own)
    )
    self.ordered = any(node.ordered for node in nodes)

  def build(
    self, arguments: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]
  ) -> list[tf.Tensor]:
    """Adds the function's body to the graph under construction."""
    leaves = self._parameters + self.captured
    # The identity moves tensors of an outer graph into this one.
    known = {
      leaf: tf.identity(tensor)
      for leaf, tensor in zip(leaves, [*arguments, *captured])
    }
    return nodes_lib.build_nodes(self._nodes, known, self._results)
