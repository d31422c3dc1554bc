"""Several nodes as one TensorFlow function."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import nodes as nodes_lib


class Fused:
  """Nodes of one site and phase as one TensorFlow function.

  Attributes:
    inputs: Leaves to pass, in order.
    outputs: Leaves that come back, in order; without any, there is nothing to
      run.
    ordered: See `nodes_lib.Node`.
    listable: Those of the `inputs` for which a list of batches may be passed
      instead of a dataset; see `graphs.py`.
  """

  def __init__(
    self,
    name: str,
    nodes: Sequence[nodes_lib.Node],
    outputs: Sequence[nodes_lib.Leaf],
  ):
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
    self._functions: dict[bool, tff_names.FastFunction] = {}

  def _is_listable(self, leaf: nodes_lib.Leaf) -> bool:
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

  def _function(self, listed: bool) -> 'tff_names.FastFunction':
    if listed not in self._functions:
      lists = self.listable if listed else frozenset()

      def body(*tensors: Any) -> Any:
        known = dict(zip(self.inputs, tensors))
        return nodes_lib.build_nodes(self._nodes, known, self.outputs, lists)

      body.__name__ = self._name
      self._functions[listed] = tff_names.FastFunction(
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
    ordered: See `nodes_lib.Node`.
  """

  def __init__(
    self,
    name: str,
    nodes: Sequence[nodes_lib.Node],
    state: Sequence[nodes_lib.Leaf],
    update: Sequence[nodes_lib.Leaf],
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
    self.inputs = [
      leaf for leaf in outside if leaf.node.site == nodes_lib.CLIENT
    ]
    self.shared = [
      leaf for leaf in outside if leaf.node.site == nodes_lib.SERVER
    ]
    self._functions: dict[int, tff_names.FastFunction] = {}

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

  def _trace(self, count: int) -> 'tff_names.FastFunction':
    leaves = self.state + self.shared + self.inputs * count

    def body(*tensors: Any) -> Any:
      remaining = iter(tensors)
      state = [next(remaining) for _ in self.state]
      known = {leaf: next(remaining) for leaf in self.shared}
      for _ in range(count):
        known.update(zip(self.state, state))
        known.update((leaf, next(remaining)) for leaf in self.inputs)
        state = nodes_lib.build_nodes(self._nodes, known, self._update)
      return state

    body.__name__ = f'{self._name}_of_{count}'
    return tff_names.FastFunction(
      tf.compat.v1.wrap_function(body, [leaf.spec for leaf in leaves])
    )
