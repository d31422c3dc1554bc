"""Utilities for `GraphDef` messages."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import tensorflow as tf

GraphDef: TypeAlias = tf.compat.v1.GraphDef
NodeDef: TypeAlias = tf.compat.v1.NodeDef
ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction

# TensorFlow's reserved name of variables that are local to an execution.
ANONYMOUS_VARIABLE = b'cd2c89b7-88b7-44c8-ad83-06c2a9158347'

# Any CPU: the one that the function is called on if that is a CPU.
HOST = '/device:CPU:*'


def node_name(reference: str) -> str:
  """Returns the name of the node that a data or control input refers to."""
  return reference.lstrip('^').split(':')[0]


def tensor_name(name: str) -> str:
  """Returns a tensor's full name; a node's name denotes its first output."""
  return name if ':' in name else f'{name}:0'


def all_nodes(graph_def: GraphDef) -> Iterator[NodeDef]:
  """Yields the nodes of a graph and of the functions in its library."""
  yield from graph_def.node
  for function in graph_def.library.function:
    yield from function.node_def


def needed_nodes(graph_def: GraphDef, names: Iterable[str]) -> set[str]:
  """Returns the names of nodes and of all their dependencies.

  Args:
    graph_def: The graph; its library is ignored.
    names: Names of the nodes.

  Returns:
    Names of all nodes that must run, including control dependencies.
  """
  by_name = {node.name: node for node in graph_def.node}
  return reached(names, lambda name: map(node_name, by_name[name].input))


def reached(
  first: Iterable[str], after: Callable[[str], Iterable[str]]
) -> set[str]:
  """Returns some names and all that steps lead to from these."""
  found = set(first)
  waiting = list(found)
  while waiting:
    new = set(after(waiting.pop())) - found
    found |= new
    waiting += new
  return found


def turn_into_call(
  graph_def: GraphDef, node: NodeDef, function: ConcreteFunction
) -> None:
  """Replaces a node's op by a function call, in place.

  Args:
    graph_def: The node's graph; missing functions are added to its library.
    node: The node, which keeps its name and inputs.
    function: The function, which must stay alive as long as the graph is used.
  """
  with tf.Graph().as_default() as scratch:
    placeholders = [
      tf.compat.v1.placeholder(spec.dtype, spec.shape)
      for spec in function.structured_input_signature[0]
    ]
    function(*placeholders)
    traced = scratch.as_graph_def()
  (call,) = [n for n in traced.node if n.op.endswith('PartitionedCall')]
  known = {f.signature.name for f in graph_def.library.function}
  graph_def.library.function.extend(
    f for f in traced.library.function if f.signature.name not in known
  )
  node.op = 'StatefulPartitionedCall'
  node.ClearField('attr')
  for key in ('Tin', 'Tout'):
    node.attr[key].CopyFrom(call.attr[key])
  node.attr['f'].func.name = call.attr['f'].func.name
