"""The builder of a computation's nodes and aggregations."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import values
from tff_adaptive.runtime.graphs import graph as graph_lib

_Values: TypeAlias = tuple[nodes_lib.UnplacedValue, ...]
# Maps (accumulator, value) to the next accumulator.
Accumulate: TypeAlias = Callable[
  [_Values, nodes_lib.Site], nodes_lib.UnplacedValue
]


class Builder:
  """The nodes and aggregations added so far.

  Attributes:
    nodes: Nodes in topological order.
    aggregations: Aggregations in topological order.
  """

  def __init__(self) -> None:
    self.nodes: list[nodes_lib.Node] = []
    self.aggregations: list[nodes_lib.Aggregation] = []

  def add(
    self,
    site: nodes_lib.Site,
    inputs: Sequence[nodes_lib.Leaf],
    specs: Sequence[tf.TensorSpec],
    build: nodes_lib.Build | None,
    label: str,
    *,
    ordered: bool = False,
    graph: graph_lib.Graph | None = None,
  ) -> nodes_lib.Node:
    """Adds and returns a node; arguments are the attributes of `nodes.Node`."""
    node = nodes_lib.Node(site, inputs, specs, build, label, ordered, graph)
    self.nodes.append(node)
    return node

  def add_aggregation(
    self,
    value: nodes_lib.UnplacedValue,
    zero: nodes_lib.UnplacedValue,
    zero_type: tff.Type,
    accumulate: Accumulate,
  ) -> nodes_lib.UnplacedValue:
    """Adds a left fold over the clients.

    Args:
      value: The value that each client sends.
      zero: The initial accumulator.
      zero_type: Type of the accumulator.
      accumulate: Maps (accumulator, value) to the next accumulator.

    Returns:
      The accumulator after the last client, at the server.
    """
    specs = values.leaf_specs(zero_type)
    total = nodes_lib.Node(nodes_lib.SERVER, [], specs, None, 'an aggregate')
    state = nodes_lib.Node(nodes_lib.SERVER, [], specs, None, 'an accumulator')
    aggregation = nodes_lib.Aggregation(
      nodes_lib.flatten(zero), state, [], total
    )
    state.site = aggregation
    self.nodes.append(state)
    accumulator = nodes_lib.pack(zero_type, state.leaves)
    aggregation.update = nodes_lib.flatten(
      accumulate((accumulator, value), aggregation)
    )
    self.aggregations.append(aggregation)
    # Keeps the order topological: it depends on the accumulation's nodes.
    self.nodes.append(total)
    return nodes_lib.pack(zero_type, total.leaves)

  def trace_inner(
    self,
    specs: Sequence[tf.TensorSpec],
    body: Callable[
      [list[nodes_lib.Leaf], nodes_lib.Site], nodes_lib.UnplacedValue
    ],
  ) -> 'InnerFunction':
    """Traces a function that a node calls, such as that of `tff.sequence_map`.

    Args:
      specs: Specs of the function's parameters.
      body: Maps the parameters and the site to the result.
    """
    start = len(self.nodes)
    site = nodes_lib.Inside()
    parameters = self.add(site, [], specs, None, 'parameter').leaves
    results = nodes_lib.flatten(body(parameters, site))
    added = self.nodes[start:]
    self.nodes[start:] = [n for n in added if n.site is not site]
    return InnerFunction(
      [n for n in added if n.site is site], parameters, results
    )


class InnerFunction:
  """A function that a node calls, such as that of `tff.sequence_map`.

  Attributes:
    captured: Leaves that the function captures.
    ordered: Whether it must run for clients one by one, in their order.
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
    self.captured = nodes_lib.read_from_outside(nodes, results)
    self.ordered = any(node.ordered for node in nodes)

  def build(
    self, arguments: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]
  ) -> list[tf.Tensor]:
    """Adds the function's body to the graph under construction.

    Args:
      arguments: Tensors of the parameters, in order.
      captured: Tensors of the attribute `captured`, in order.

    Returns:
      Tensors of the results.
    """
    leaves = self._parameters + self.captured
    # The identity moves tensors of an outer graph into this one.
    known = {
      leaf: tf.identity(tensor)
      for leaf, tensor in zip(leaves, [*arguments, *captured])
    }
    return nodes_lib.build_nodes(self._nodes, known, self._results)
