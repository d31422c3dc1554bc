"""From a TFF computation to a plan of a few fused TensorFlow functions.

TFF's compiler expresses a computation in a few intrinsics over TensorFlow
graphs. `Tracer` evaluates it symbolically: structures, selections, lambdas, zips
and broadcasts vanish, and what remains is a graph of nodes, each of which
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
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import _tff
from tff_adaptive.runtime import errors
from tff_adaptive.runtime import graphs
from tff_adaptive.runtime import values

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
  raise errors.UnsupportedComputationError(
    'The in-process runtime found a function or a placed value where TFF has'
    ' only tensors, sequences and structures of them.'
  )


def _pack(type_spec: tff.Type, leaves: Iterator[Leaf]) -> Any:
  if isinstance(type_spec, tff.StructType):
    return tuple(_pack(t, leaves) for _, t in _tff.struct_items(type_spec))
  return next(leaves)


class Tracer:
  """Symbolic evaluation of building blocks.

  Attributes:
    nodes: In an order in which each follows its inputs.
    aggregations: In the same sense.
  """

  def __init__(self, graph_of: Callable[[Any], graphs.Graph]):
    self._graph_of = graph_of
    self.nodes: list[Node] = []
    self.aggregations: list[Aggregation] = []

  # Nodes.

  def node(self, *arguments: Any, **keywords: Any) -> Node:
    node = Node(*arguments, **keywords)
    self.nodes.append(node)
    return node

  def argument(self, type_spec: tff.Type) -> tuple[Any, list[tuple[str, Node]]]:
    """The symbolic argument of a computation.

    Returns:
      The value and, for each unplaced or placed part in order, its kind
      ('server', 'client' or 'all_equal') and the node that stands for it.
    """
    if isinstance(type_spec, tff.FederatedType):
      member = type_spec.member
      if type_spec.placement is tff.CLIENTS and not type_spec.all_equal:
        kind, site = 'client', CLIENT
      else:
        kind, site = 'server', SERVER
      node = self.node(
        site, [], values.leaf_specs(member), None, f'{kind} argument'
      )
      value = _pack(member, iter(node.leaves))
      placed = Federated(type_spec.placement, value, type_spec.all_equal)
      return placed, [(kind, node)]
    if isinstance(type_spec, tff.StructType):
      elements, parts = [], []
      for _, element_type in _tff.struct_items(type_spec):
        element, more = self.argument(element_type)
        elements.append(element)
        parts.extend(more)
      return tuple(elements), parts
    node = self.node(SERVER, [], values.leaf_specs(type_spec), None, 'argument')
    return _pack(type_spec, iter(node.leaves)), [('server', node)]

  # Building blocks.

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
      raise errors.UnsupportedComputationError(
        'The in-process runtime cannot load `tff.data` references; pass the'
        ' data as an argument.'
      )
    raise errors.UnsupportedComputationError(
      f'The in-process runtime cannot evaluate a {type(block).__name__}.'
    )

  def _literal(self, block: Any, site: Any) -> Leaf:
    value = _tff.literal_value(block)
    spec = _tff.tensor_spec(block.type_signature)
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
      raise errors.UnsupportedComputationError(
        f'The in-process runtime runs TensorFlow, and was given {kind!r} code'
        ' (of a JAX computation, most likely).'
      )
    graph = self._graph_of(block)
    inputs = [] if argument is None else flatten(argument)
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
    return _pack(result, iter(node.leaves))

  # Intrinsics.

  def _intrinsic(self, block: Any, argument: Any, site: Any) -> Any:
    handler = _INTRINSICS.get(block.uri)
    if handler is None:
      raise errors.UnsupportedComputationError(
        f'The in-process runtime does not support the intrinsic'
        f' {block.uri!r}; it supports {", ".join(sorted(_INTRINSICS))}.'
      )
    return handler(self, block.type_signature, argument, site)

  def _federated_aggregate(
    self, type_spec: Any, argument: Any, site: Any
  ) -> Any:
    value, zero, accumulate, _, report = argument
    total = self.fold(
      value,
      zero,
      type_spec.parameter[1],
      accumulate,
    )
    return Federated(tff.SERVER, report(total, SERVER), True)

  def fold(
    self, value: Federated, zero: Any, zero_type: Any, accumulate: Any
  ) -> Any:
    """Adds an aggregation; returns its total, at the server."""
    specs = values.leaf_specs(zero_type)
    state = self.node(None, [], specs, None, 'an accumulator')
    total = self.node(SERVER, [], specs, None, 'an aggregate')
    aggregation = Aggregation(flatten(zero), state, [], total)
    state.site = aggregation
    packed = _pack(zero_type, iter(state.leaves))
    aggregation.update = flatten(accumulate((packed, value.value), aggregation))
    self.aggregations.append(aggregation)
    # The total must follow what it is made of.
    self.nodes.remove(total)
    self.nodes.append(total)
    return _pack(zero_type, iter(total.leaves))

  def _map(self, type_spec: Any, argument: Any, site: Any) -> Any:
    function, value = argument
    if value.placement is tff.SERVER:
      return Federated(tff.SERVER, function(value.value, SERVER), True)
    return Federated(tff.CLIENTS, function(value.value, CLIENT), False)

  def _map_all_equal(self, type_spec: Any, argument: Any, site: Any) -> Any:
    function, value = argument
    return Federated(tff.CLIENTS, function(value.value, SERVER), True)

  def _broadcast(self, type_spec: Any, argument: Any, site: Any) -> Any:
    return Federated(tff.CLIENTS, argument.value, True)

  def _eval_at_clients(self, type_spec: Any, argument: Any, site: Any) -> Any:
    return Federated(tff.CLIENTS, argument(None, CLIENT), False)

  def _eval_at_server(self, type_spec: Any, argument: Any, site: Any) -> Any:
    return Federated(tff.SERVER, argument(None, SERVER), True)

  def _value_at_clients(self, type_spec: Any, argument: Any, site: Any) -> Any:
    return Federated(tff.CLIENTS, argument, True)

  def _value_at_server(self, type_spec: Any, argument: Any, site: Any) -> Any:
    return Federated(tff.SERVER, argument, True)

  def _zip(self, type_spec: Any, argument: Any, site: Any) -> Any:
    all_equal = True

    def strip(value: Any) -> Any:
      nonlocal all_equal
      if isinstance(value, Federated):
        all_equal = all_equal and value.all_equal
        return value.value
      return tuple(strip(element) for element in value)

    stripped = strip(argument)
    return Federated(type_spec.result.placement, stripped, all_equal)

  def _secure_sum(self, type_spec: Any, argument: Any, site: Any) -> Any:
    value, bound = argument
    return self._checked_sum(
      type_spec, value, bound, lambda b, dtype: tf.cast(b, dtype)
    )

  def _secure_sum_bitwidth(
    self, type_spec: Any, argument: Any, site: Any
  ) -> Any:
    value, bits = argument
    return self._checked_sum(
      type_spec,
      value,
      bits,
      lambda b, dtype: tf.cast(2 ** tf.cast(b, tf.int64) - 1, dtype),
    )

  def _checked_sum(
    self, type_spec: Any, value: Any, bound: Any, maximum: Any
  ) -> Any:
    """A plain sum that refuses, like the protocol, too large summands."""
    member = type_spec.result.member
    leaves = flatten(value.value)
    bounds = flatten(bound)
    if len(bounds) == 1:
      bounds = bounds * len(leaves)

    def build(inputs: Any, wanted: Any) -> Any:
      summands, limits = inputs[: len(leaves)], inputs[len(leaves) :]
      checked = []
      for summand, limit in zip(summands, limits):
        # In 64 bits: a limit may be out of the summand's range.
        limit = maximum(limit, tf.int64)
        check = tf.debugging.Assert(
          tf.reduce_all(tf.cast(summand, tf.int64) <= limit),
          [
            'A client value is larger than the maximum stated for the'
            ' secure sum:',
            summand,
            'maximum:',
            limit,
          ],
        )
        with tf.control_dependencies([check]):
          checked.append(tf.identity(summand))
      return [checked[i] for i in wanted]

    checked = self.node(
      CLIENT,
      leaves + bounds,
      [leaf.spec for leaf in leaves],
      build,
      'federated_secure_sum',
    ).leaves
    return self._sum(member, checked)

  def _zeros(self, type_spec: Any, site: Any) -> list[Leaf]:
    specs = values.leaf_specs(type_spec)
    return self.node(
      site,
      [],
      specs,
      lambda inputs, wanted: [
        tf.zeros(specs[i].shape, specs[i].dtype) for i in wanted
      ],
      'zero',
    ).leaves

  def _add(self, type_spec: Any, pair: Any, site: Any) -> Any:
    left, right = (flatten(value) for value in pair)
    node = self.node(
      site,
      left + right,
      values.leaf_specs(type_spec),
      lambda inputs, wanted: [
        inputs[i] + inputs[len(left) + i] for i in wanted
      ],
      'sum',
    )
    return _pack(type_spec, iter(node.leaves))

  def _sum(self, member: Any, leaves: Any) -> Federated:
    value = Federated(tff.CLIENTS, _pack(member, iter(leaves)), False)
    zero = _pack(member, iter(self._zeros(member, SERVER)))
    total = self.fold(
      value, zero, member, lambda pair, site: self._add(member, pair, site)
    )
    return Federated(tff.SERVER, total, True)

  def _secure_modular_sum(
    self, type_spec: Any, argument: Any, site: Any
  ) -> Any:
    value, modulus = argument
    member = type_spec.result.member
    total = self._sum(member, flatten(value.value))
    leaves = flatten(total.value)
    moduli = flatten(modulus)
    if len(moduli) == 1:
      moduli = moduli * len(leaves)
    reduced = self.node(
      SERVER,
      leaves + moduli,
      [leaf.spec for leaf in leaves],
      lambda inputs, wanted: [
        tf.math.floormod(
          inputs[i], tf.cast(inputs[len(leaves) + i], inputs[i].dtype)
        )
        for i in wanted
      ],
      'federated_secure_modular_sum',
    )
    return Federated(tff.SERVER, _pack(member, iter(reduced.leaves)), True)

  def _select(self, type_spec: Any, argument: Any, site: Any) -> Any:
    keys, _, state, select = argument
    element = type_spec.result.member.element
    # The key's range is the caller's promise; what a key outside of it means
    # is up to `select`, as in TFF's own runtime.
    inner = self._inner(
      [tf.TensorSpec([], tf.int32)],
      lambda parameters, site: select((state.value, parameters[0]), site),
    )
    order = _tff.component_order(element)

    def build(inputs: Any, wanted: Any) -> Any:
      keys, *captured = inputs

      def one(key: Any) -> Any:
        results = inner.build([key], captured)
        return tuple(results[i] for i in order)

      dataset = tf.data.Dataset.from_tensor_slices(keys).map(one)
      return [tf.data.experimental.to_variant(dataset)]

    node = self.node(
      CLIENT,
      [*flatten(keys.value), *inner.captured],
      [tf.TensorSpec([], tf.variant)],
      build,
      'federated_select',
      ordered=inner.ordered,
    )
    return Federated(tff.CLIENTS, node.leaves[0], False)

  def _sequence_map(self, type_spec: Any, argument: Any, site: Any) -> Any:
    function, sequence = argument
    source = type_spec.parameter[1].element
    inner = self._inner(
      values.leaf_specs(source),
      lambda parameters, site: function(_pack(source, iter(parameters)), site),
    )
    order = _tff.component_order(type_spec.result.element)

    def build(inputs: Any, wanted: Any) -> Any:
      variant, *captured = inputs

      def one(*components: Any) -> Any:
        arguments = _tff.from_components(components, source)
        results = inner.build(arguments, captured)
        return tuple(results[i] for i in order)

      dataset = _tff.flat_dataset(variant, source).map(one)
      return [tf.data.experimental.to_variant(dataset)]

    node = self.node(
      site,
      [sequence, *inner.captured],
      [tf.TensorSpec([], tf.variant)],
      build,
      'sequence_map',
      ordered=inner.ordered,
    )
    return node.leaves[0]

  def _sequence_reduce(self, type_spec: Any, argument: Any, site: Any) -> Any:
    sequence, zero, function = argument
    return self._reduce(
      sequence,
      type_spec.parameter[0].element,
      flatten(zero),
      type_spec.result,
      function,
      site,
    )

  def _sequence_sum(self, type_spec: Any, argument: Any, site: Any) -> Any:
    element = type_spec.result
    return self._reduce(
      argument,
      element,
      self._zeros(element, site),
      element,
      lambda pair, site: self._add(element, pair, site),
      site,
    )

  def _reduce(
    self,
    sequence: Any,
    source: Any,
    zero: Any,
    state_type: Any,
    function: Any,
    site: Any,
  ) -> Any:
    specs = values.leaf_specs(state_type)

    def body(parameters: Any, site: Any) -> Any:
      parameters = iter(parameters)
      return function(
        (_pack(state_type, parameters), _pack(source, parameters)), site
      )

    inner = self._inner(specs + values.leaf_specs(source), body)

    def build(inputs: Any, wanted: Any) -> Any:
      variant, state = inputs[0], inputs[1 : 1 + len(specs)]
      captured = inputs[1 + len(specs) :]

      def step(state: Any, components: Any) -> Any:
        arguments = _tff.from_components(components, source)
        return tuple(inner.build([*state, *arguments], captured))

      result = _tff.flat_dataset(variant, source).reduce(tuple(state), step)
      return [result[i] for i in wanted]

    node = self.node(
      site,
      [sequence, *zero, *inner.captured],
      specs,
      build,
      'sequence_reduce',
      ordered=inner.ordered,
    )
    return _pack(state_type, iter(node.leaves))

  def _inner(self, specs: Any, body: Any) -> '_Inner':
    """Evaluates a function that a node will call by itself."""
    start = len(self.nodes)
    site = object()
    parameters = self.node(site, [], specs, None, 'parameter')
    results = flatten(body(parameters.leaves, site))
    inside = [n for n in self.nodes[start:] if n.site is site]
    self.nodes[start:] = [n for n in self.nodes[start:] if n.site is not site]
    return _Inner(inside, parameters.leaves, results)


class _Inner:
  """A function inside of a node.

  Attributes:
    captured: What it reads besides its parameters.
    ordered: See `Node`.
  """

  def __init__(
    self, nodes: list[Node], parameters: list[Leaf], results: list[Leaf]
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
    return build_nodes(self._nodes, known, self._results)


_INTRINSICS = {
  'federated_aggregate': Tracer._federated_aggregate,
  'federated_apply': Tracer._map,
  'federated_broadcast': Tracer._broadcast,
  'federated_eval_at_clients': Tracer._eval_at_clients,
  'federated_eval_at_server': Tracer._eval_at_server,
  'federated_map': Tracer._map,
  'federated_map_all_equal': Tracer._map_all_equal,
  'federated_secure_modular_sum': Tracer._secure_modular_sum,
  'federated_secure_select': Tracer._select,
  'federated_secure_sum': Tracer._secure_sum,
  'federated_secure_sum_bitwidth': Tracer._secure_sum_bitwidth,
  'federated_select': Tracer._select,
  'federated_value_at_clients': Tracer._value_at_clients,
  'federated_value_at_server': Tracer._value_at_server,
  'federated_zip_at_clients': Tracer._zip,
  'federated_zip_at_server': Tracer._zip,
  'sequence_map': Tracer._sequence_map,
  'sequence_reduce': Tracer._sequence_reduce,
  'sequence_sum': Tracer._sequence_sum,
}


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


class Fused:
  """Nodes of one site and phase as one TensorFlow function.

  Attributes:
    inputs: Leaves to pass, in order.
    outputs: Leaves that come back, in order; without any, there is nothing to
      run.
    ordered: See `Node`.
    listable: Those of the `inputs` for which a list of batches may be passed
      instead of a dataset; see `graphs.py`.
  """

  def __init__(self, name: str, nodes: Sequence[Node], outputs: Sequence[Leaf]):
    own = set(nodes)
    self._name = name
    self._nodes = nodes
    self.outputs = [leaf for leaf in outputs if leaf.node in own]
    self.ordered = any(node.ordered for node in nodes)
    needed = set(self.outputs)
    for node in reversed(nodes):
      if any(leaf in needed for leaf in node.leaves):
        needed.update(node.inputs)
    self.inputs = sorted(
      (leaf for leaf in needed if leaf.node not in own),
      key=lambda leaf: leaf.slot,
    )
    self.listable = frozenset(
      leaf for leaf in self.inputs if self._is_listable(leaf)
    )
    self._functions: dict[bool, _tff.FastFunction] = {}

  def _is_listable(self, leaf: Leaf) -> bool:
    if leaf.spec.dtype != tf.variant:
      return False
    uses = [
      (node, i)
      for node in self._nodes
      for i, source in enumerate(node.inputs)
      if source == leaf
    ]
    return all(
      node.graph is not None and node.graph.listable(i) for node, i in uses
    )

  def _function(self, listed: bool) -> '_tff.FastFunction':
    if listed not in self._functions:
      lists = self.listable if listed else frozenset()

      def body(*tensors: Any) -> Any:
        known = dict(zip(self.inputs, tensors))
        return build_nodes(self._nodes, known, self.outputs, lists)

      body.__name__ = self._name
      self._functions[listed] = _tff.FastFunction(
        tf.compat.v1.wrap_function(body, [leaf.spec for leaf in self.inputs])
      )
    return self._functions[listed]

  def __call__(
    self, arguments: list[tf.Tensor], device: str = '', listed: bool = False
  ) -> list[tf.Tensor]:
    """The outputs' tensors, computed on `device` or where TensorFlow likes.

    Args:
      arguments: In the order of `inputs`.
      device: Full name of a device.
      listed: Whether lists of batches are passed for all `listable` inputs.
    """
    return self._function(listed)(arguments, device)

  def prepare(self, listed: bool) -> None:
    """Traces ahead of calls from several threads."""
    self._function(listed)


class Fold:
  """All folds of a pass as one function, for several clients at once.

  Calling a function costs more than adding small values, so a call takes
  several clients, one after another inside; the result is the same.

  Attributes:
    state: Leaves of the accumulators.
    inputs: Leaves to pass per client.
    shared: Leaves to pass once.
    ordered: See `Node`.
  """

  def __init__(
    self,
    name: str,
    nodes: Sequence[Node],
    state: Sequence[Leaf],
    update: Sequence[Leaf],
  ):
    own = set(nodes)
    self._name = name
    self._nodes = nodes
    self._update = update
    self.state = list(state)
    self.ordered = any(node.ordered for node in nodes)
    read = [leaf for node in nodes for leaf in node.inputs] + list(update)
    outside = dict.fromkeys(
      leaf for leaf in read if leaf.node not in own and leaf not in state
    )
    self.inputs = [leaf for leaf in outside if leaf.node.site == CLIENT]
    self.shared = [leaf for leaf in outside if leaf.node.site == SERVER]
    self._functions: dict[int, _tff.FastFunction] = {}

  def __call__(
    self,
    totals: list[tf.Tensor],
    shared: list[tf.Tensor],
    clients: list[list[tf.Tensor]],
    device: str = '',
  ) -> list[tf.Tensor]:
    """The accumulators after `clients`, each in the order of `inputs`."""
    if not totals:
      return totals
    count = len(clients)
    if count not in self._functions:
      self._functions[count] = self._trace(count)
    arguments = totals + shared
    for client in clients:
      arguments += client
    return self._functions[count](arguments, device)

  def _trace(self, count: int) -> '_tff.FastFunction':
    leaves = self.state + self.shared + self.inputs * count

    def body(*tensors: Any) -> Any:
      remaining = iter(tensors)
      state = [next(remaining) for _ in self.state]
      known = {leaf: next(remaining) for leaf in self.shared}
      for _ in range(count):
        known.update(zip(self.state, state))
        known.update((leaf, next(remaining)) for leaf in self.inputs)
        state = build_nodes(self._nodes, known, self._update)
      return state

    body.__name__ = f'{self._name}_of_{count}'
    return _tff.FastFunction(
      tf.compat.v1.wrap_function(body, [leaf.spec for leaf in leaves])
    )


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

  server: Fused
  client: Fused
  fold: Fold
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
    tracer = Tracer(graph_of)
    self.num_slots = 0
    argument: Any = None
    self.arguments: list[tuple[str, Node]] = []
    if parameter_type is not None:
      argument, self.arguments = tracer.argument(parameter_type)
    self.result = tracer.evaluate(block, {}, SERVER)(argument, SERVER)
    self._plan(tracer)
    ordered = any(
      phase.server.ordered or phase.client.ordered or phase.fold.ordered
      for phase in self.passes
    )
    self.lock: contextlib.AbstractContextManager = contextlib.nullcontext()
    if ordered:
      self.lock = threading.Lock()

  def _plan(self, tracer: Tracer) -> None:
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
    nodes = [n for n in nodes if n in needed and n.site in (SERVER, CLIENT)]

    # As early as possible, then client work as late as possible: what is made
    # in the pass that uses it need not be kept between passes.
    for node in nodes:
      ready = max((x.node.phase for x in dependencies(node)), default=0)
      if node in result_of:
        result_of[node].phase = ready
        ready += 1
      node.phase = ready
    wanted_set = set(wanted)
    uses: dict[Node, list[int]] = {node: [] for node in nodes}
    for node in reversed(nodes):
      if node.site is CLIENT and node.build is not None:
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
        if n.site is SERVER and n.phase == phase and n.build is not None
      ]
      client = [
        n
        for n in nodes
        if n.site is CLIENT and n.phase == phase and n.build is not None
      ]
      own_server, own_client = set(server), set(client)
      later = [
        n
        for n in nodes
        if (n.site is CLIENT and n.phase > phase)
        or (n in result_of and result_of[n].phase > phase)
      ]
      keep = [
        leaf
        for node in nodes
        if node.site is CLIENT and node.phase <= phase
        for leaf in node.leaves
        if leaf in wanted_set or any(leaf in dependencies(n) for n in later)
      ]
      self.passes.append(
        Pass(
          server=Fused(
            f'server_{phase}',
            server,
            [x for n in server for x in used_outside(n, own_server)],
          ),
          client=Fused(
            f'client_{phase}',
            client,
            [x for n in client for x in used_outside(n, own_client)],
          ),
          fold=Fold(
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


def _result_leaves(value: Any) -> list[Leaf]:
  if isinstance(value, Federated):
    return flatten(value.value)
  if isinstance(value, tuple):
    return [leaf for element in value for leaf in _result_leaves(element)]
  return flatten(value)


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
