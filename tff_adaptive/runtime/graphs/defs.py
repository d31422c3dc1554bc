"""Reading and changing TensorFlow graphs as messages."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

# TensorFlow's reserved name: such a variable belongs to one execution.
ANONYMOUS_VARIABLE = b'cd2c89b7-88b7-44c8-ad83-06c2a9158347'


def node_name(reference: str) -> str:
  """The node that an input refers to, by value or by control."""
  return reference.lstrip('^').split(':')[0]


def tensor_name(name: str) -> str:
  """A tensor's name in full: a node's stands for its first output."""
  return name if ':' in name else f'{name}:0'


def all_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterator[Any]:
  """The nodes of a graph and of the functions in its library."""
  yield from graph_def.node
  for function in graph_def.library.function:
    yield from function.node_def


def turn_into_call(
  graph_def: tf.compat.v1.GraphDef, node: tf.compat.v1.NodeDef, function: Any
) -> None:
  """Makes a node call a function instead of what it does.

  Args:
    graph_def: The node's; its library gets what it lacks of the function.
    node: Keeps its name and its inputs.
    function: A concrete function; must stay alive as long as the graph is used.
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
