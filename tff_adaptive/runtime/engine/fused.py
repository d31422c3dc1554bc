"""Fusion of nodes into TensorFlow functions."""

import functools
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime.engine import nodes as nodes_lib

_REDUCTIONS = {'AddV2': tf.reduce_sum, 'Maximum': tf.reduce_max}
# Largest size of outputs that are computed once, as they have no inputs.
_CONSTANT_BYTES = 16 << 20


class Fused:
  """The nodes of one placement and phase as one TensorFlow function.

  Attributes:
    nodes: The nodes, in topological order.
    inputs: Leaves that the function takes, in order.
    outputs: Leaves that the function returns, in order; it need not run if
      empty.
    ordered: Whether it must run for clients one by one, in their order.
    shared_bytes: Size of the inputs from the server; `None` if unknown.
    output_bytes: Size of the outputs; `None` if unknown.
    replaceable: Dataset leaves of `inputs` for which a stand-in may be passed.
  """

  def __init__(
    self,
    name: str,
    nodes: Sequence[nodes_lib.Node],
    outputs: Sequence[nodes_lib.Leaf],
  ):
    """Finds the inputs; traces nothing yet.

    Args:
      name: Name in profiles and error messages.
      nodes: Nodes in topological order.
      outputs: Leaves of `nodes` to return.
    """
    own = set(nodes)
    self._name = name
    self.nodes = nodes
    self.outputs = list(outputs)
    self.ordered = any(node.ordered for node in nodes)
    self.inputs = sorted(
      (
        leaf
        for leaf in nodes_lib.needed_leaves(nodes, outputs)
        if leaf.node not in own
      ),
      key=lambda leaf: leaf.slot,
    )
    self.shared_bytes = nodes_lib.size_of(
      leaf for leaf in self.inputs if leaf.node.site is nodes_lib.SERVER
    )
    self.output_bytes = nodes_lib.size_of(self.outputs)
    self.replaceable = frozenset(
      leaf for leaf in self.inputs if self._is_replaceable(leaf)
    )
    self._functions: dict[bool, tff_functions.FastFunction] = {}
    # Zeros to add to, for example.
    self._constant: list[tf.Tensor] | None = None

  def _is_replaceable(self, leaf: nodes_lib.Leaf) -> bool:
    if leaf.spec.dtype != tf.variant:
      return False
    return all(
      node.graph is not None and node.graph.replaceable(i)
      for node in self.nodes
      for i, source in enumerate(node.inputs)
      if source == leaf
    )

  def function(self, of_rows: bool) -> tff_functions.FastFunction:
    """Returns the function, traced once."""
    if of_rows not in self._functions:
      replaced = self.replaceable if of_rows else frozenset()

      def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
        known = dict(zip(self.inputs, tensors))
        return nodes_lib.build_nodes(self.nodes, known, self.outputs, replaced)

      self._functions[of_rows] = _trace(self._name, body, specs_of(self.inputs))
    return self._functions[of_rows]

  def __call__(
    self,
    cancellation: tff_functions.Cancellation,
    arguments: list[tf.Tensor],
    device: str,
    of_rows: bool = False,
  ) -> list[tf.Tensor]:
    """Computes the outputs.

    Args:
      cancellation: Cancels the call.
      arguments: Tensors of `inputs`, in order.
      device: Full name of a device; empty means TensorFlow's choice.
      of_rows: Whether all `replaceable` inputs are packed `forms.Rows`.
    """
    if self._constant is not None:
      return self._constant
    function = self.function(of_rows)
    outputs = function(arguments, device, cancellation)
    small = (
      self.output_bytes is not None and self.output_bytes < _CONSTANT_BYTES
    )
    if small and not self.inputs and function.is_pure:
      self._constant = outputs
    return outputs


class Fold:
  """All accumulations of a phase as one function of several clients' values.

  It runs where TensorFlow chooses: on the first GPU, if there is one. Calling a
  function costs more than adding small values, so a call adds several clients,
  in order; the result is the same as with single calls.

  Attributes:
    state: Leaves of the accumulators.
    inputs: Leaves that it takes for each client.
    input_bytes: Size of one client's `inputs`; `None` if unknown.
    shared: Leaves that it takes once per call, from the server.
    ordered: Whether clients must be added one by one, in their order.
  """

  def __init__(
    self,
    name: str,
    nodes: Sequence[nodes_lib.Node],
    state: Sequence[nodes_lib.Leaf],
    update: Sequence[nodes_lib.Leaf],
  ):
    """Finds the inputs; traces nothing yet.

    Args:
      name: Name in profiles and error messages.
      nodes: Nodes in topological order.
      state: Leaves of the accumulators so far.
      update: Leaves of the accumulators after another client, in the order of
        `state`.
    """
    self._name = name
    self.nodes = nodes
    self._update = update
    self.state = list(state)
    self.ordered = any(node.ordered for node in nodes)
    outside = [
      leaf
      for leaf in nodes_lib.read_from_outside(nodes, update)
      if leaf not in state
    ]
    self.inputs = [
      leaf for leaf in outside if leaf.node.site is nodes_lib.CLIENT
    ]
    self.input_bytes = nodes_lib.size_of(self.inputs)
    self.shared = [
      leaf for leaf in outside if leaf.node.site is nodes_lib.SERVER
    ]
    self._functions: dict[int, tff_functions.FastFunction] = {}
    self._of_groups: dict[
      tuple[tuple[int, int], ...], tff_functions.FastFunction
    ] = {}
    self._of_group: dict[tuple[int, int], tff_functions.FastFunction] = {}

  def __call__(
    self,
    cancellation: tff_functions.Cancellation,
    totals: list[tf.Tensor],
    shared: list[tf.Tensor],
    clients: list[list[tf.Tensor]],
  ) -> list[tf.Tensor]:
    """Adds clients' values to the accumulators, in order.

    Args:
      cancellation: Cancels the call.
      totals: The accumulators, in the order of `state`.
      shared: Tensors of the attribute `shared`.
      clients: Tensors of `inputs`, a list per client.

    Returns:
      The new accumulators.
    """
    if not totals:
      return totals
    count = len(clients)
    if count not in self._functions:
      self._functions[count] = self._function(count)
    arguments = totals + shared
    for client in clients:
      arguments += client
    return self._functions[count](arguments, '', cancellation)

  def over_groups(
    self,
    cancellation: tff_functions.Cancellation,
    totals: list[tf.Tensor],
    shared: list[tf.Tensor],
    groups: Sequence[tuple[int, list[tf.Tensor]]],
    order: tf.Tensor,
    devices: Sequence[str] = (),
  ) -> list[tf.Tensor]:
    """Adds groups of clients that trained together, as one sum of all.

    Args:
      cancellation: Cancels the call.
      totals: The accumulators, in the order of `state`.
      shared: Tensors of the attribute `shared`.
      groups: Each group's number of clients, and tensors of `inputs`, stacked;
        further rows do not count.
      order: Positions of the clients in their order, among those of all groups,
        int32.
      devices: Those of the groups, in turn, if each is to add up its own where
        that is possible. Sums then depend on their number, by rounding.

    Returns:
      The new accumulators.
    """
    if not totals:
      return totals
    if len(devices) > 1 and self._operations is not None:
      groups = [
        (1, self._reduced(cancellation, *group, device))
        for group, device in zip(groups, itertools.cycle(devices))
      ]
      order = tf.range(len(groups))
    sizes = tuple((n, values[0].shape[0]) for n, values in groups)
    if sizes not in self._of_groups:
      self._of_groups[sizes] = self._function_of_groups(sizes)
    arguments = [*totals, *shared, order]
    for _, values in groups:
      arguments += values
    return self._of_groups[sizes](arguments, '', cancellation)

  @functools.cached_property
  def _operations(self) -> dict[nodes_lib.Leaf, str] | None:
    """Returns what reduces each of `inputs`; `None` unless that is all."""
    found: dict[nodes_lib.Leaf, str] = {}
    for total, update in zip(self.state, self._update):
      operation, before, value = _reduction(update) or ('', update, update)
      if before != total or found.setdefault(value, operation) != operation:
        return None
    return found if found.keys() == set(self.inputs) else None

  def _reduced(
    self,
    cancellation: tff_functions.Cancellation,
    count: int,
    values: list[tf.Tensor],
    device: str,
  ) -> list[tf.Tensor]:
    """Reduces a group's clients to one, on a device."""
    key = count, values[0].shape[0]
    operations = self._operations
    assert operations is not None

    def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
      return [
        _REDUCTIONS[operations[leaf]](tensor[:count], axis=0, keepdims=True)
        for leaf, tensor in zip(self.inputs, tensors)
      ]

    if key not in self._of_group:
      specs = stacked_specs_of(self.inputs, key[1])
      self._of_group[key] = _trace(f'{self._name}_of_group', body, specs)
    return self._of_group[key](values, device, cancellation)

  def _function_of_groups(
    self, sizes: Sequence[tuple[int, int]]
  ) -> tff_functions.FastFunction:
    def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
      remaining = iter(tensors)
      state = {leaf: next(remaining) for leaf in self.state}
      shared = {leaf: next(remaining) for leaf in self.shared}
      order = next(remaining)
      parts = [[next(remaining)[:n] for _ in self.inputs] for n, _ in sizes]
      clients = {
        leaf: tf.gather(tf.concat(own, axis=0), order)
        for leaf, own in zip(self.inputs, zip(*parts))
      }
      return self.added(state, shared, clients)

    specs = specs_of(self.state + self.shared)
    specs.append(tf.TensorSpec([sum(n for n, _ in sizes)], tf.int32))
    for _, size in sizes:
      specs += stacked_specs_of(self.inputs, size)
    return _trace(f'{self._name}_of_groups', body, specs)

  def added(
    self,
    state: dict[nodes_lib.Leaf, tf.Tensor],
    shared: dict[nodes_lib.Leaf, tf.Tensor],
    clients: dict[nodes_lib.Leaf, tf.Tensor],
  ) -> list[tf.Tensor]:
    """Adds all clients to the accumulators, each sum in one operation."""
    done: dict[nodes_lib.Leaf, tf.Tensor] = {}
    for total, update in zip(self.state, self._update):
      found = _reduction(update)
      if found is not None and found[1] == total and found[2] in clients:
        value = _REDUCTIONS[found[0]](clients[found[2]], axis=0)
        both = tf.add if found[0] == 'AddV2' else tf.maximum
        done[total] = both(state[total], value)
    others = [leaf for leaf in self.state if leaf not in done]
    updates = [
      update
      for total, update in zip(self.state, self._update)
      if total not in done
    ]
    if others:
      # Other accumulations take one client after the other.
      needed = nodes_lib.needed_leaves(self.nodes, updates)
      if not needed.isdisjoint(done):
        # They read sums as they were after each client: a running mean.
        done, others, updates = {}, list(self.state), list(self._update)
        needed = nodes_lib.needed_leaves(self.nodes, updates)

      def add(
        index: tf.Tensor, values: list[tf.Tensor]
      ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        # The identity moves tensors of the outer graph into the loop's.
        known = {
          leaf: tf.identity(tensor)
          for leaf, tensor in {**shared, **state}.items()
          if leaf in needed
        }
        known |= {
          leaf: value[index]
          for leaf, value in clients.items()
          if leaf in needed
        }
        known |= dict(zip(others, values))
        return index + 1, nodes_lib.build_nodes(self.nodes, known, updates)

      count = next(iter(clients.values())).shape[0]
      _, values = tf.while_loop(
        lambda index, _: index < count,
        add,
        (tf.constant(0), [state[leaf] for leaf in others]),
        shape_invariants=(
          tf.TensorShape([]),
          [leaf.spec.shape for leaf in others],
        ),
      )
      done.update(zip(others, values))
    return [done[leaf] for leaf in self.state]

  def _function(self, count: int) -> tff_functions.FastFunction:
    def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
      remaining = iter(tensors)
      state = [next(remaining) for _ in self.state]
      known = {leaf: next(remaining) for leaf in self.shared}
      for _ in range(count):
        known.update(zip(self.state, state))
        known.update((leaf, next(remaining)) for leaf in self.inputs)
        state = nodes_lib.build_nodes(self.nodes, known, self._update)
      return state

    return _trace(
      f'{self._name}_of_{count}',
      body,
      specs_of(self.state + self.shared + self.inputs * count),
    )


def _reduction(
  update: nodes_lib.Leaf,
) -> tuple[str, nodes_lib.Leaf, nodes_lib.Leaf] | None:
  """Recognizes an accumulator's update that is a sum or a maximum.

  Returns:
    The op, the accumulator so far and the client's value.
  """
  node = update.node
  if node.label == 'sum':
    half = len(node.inputs) // 2
    return 'AddV2', node.inputs[update.index], node.inputs[half + update.index]
  found = node.graph.reduction(update.index) if node.graph else None
  if found is None:
    return None
  op, left, right = found
  return op, node.inputs[left], node.inputs[right]


def _trace(
  name: str,
  body: Callable[..., list[tf.Tensor]],
  specs: Sequence[tf.TensorSpec],
) -> tff_functions.FastFunction:
  """Traces a Python function of tensors with these specs."""
  return tff_functions.FastFunction(
    tf.compat.v1.wrap_function(body, list(specs), name=name)
  )


def specs_of(leaves: Sequence[nodes_lib.Leaf]) -> list[tf.TensorSpec]:
  """Returns the specs of leaves."""
  return [leaf.spec for leaf in leaves]


def stacked_specs_of(
  leaves: Sequence[nodes_lib.Leaf], clients: int
) -> list[tf.TensorSpec]:
  """Returns the specs of several clients' leaves, stacked."""
  return [
    tf.TensorSpec([clients, *spec.shape], spec.dtype)
    for spec in specs_of(leaves)
  ]
