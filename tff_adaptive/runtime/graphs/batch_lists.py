"""Lists of batches that stand for datasets; see `graphs.py` for why."""

import collections
import functools
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tensorflow as tf

from tff_adaptive.runtime.graphs import defs as graph_defs
from tff_adaptive.runtime.graphs import reductions as reductions_lib

_Reductions = Mapping[str, reductions_lib.Reduction]


def substitute(
  graph_def: tf.compat.v1.GraphDef,
  parameters: Sequence[str],
  reductions: _Reductions,
) -> tf.compat.v1.GraphDef:
  """A copy of a graph that takes lists of batches in place of datasets.

  Args:
    graph_def: The graph.
    parameters: Tensors of datasets; for each, `iterations` must find something.
    reductions: By name, the nodes that were reductions of datasets.
  """
  changed = tf.compat.v1.GraphDef()
  changed.CopyFrom(graph_def)
  for parameter in parameters:
    nodes = iterations(changed, parameter, reductions)
    assert nodes is not None  # The caller has asked.
    for node in nodes:
      if node.op == 'AnonymousIteratorV3':
        _make_variable(node)
      elif node.op == 'MakeIterator':
        _make_assignment(node)
      elif node.op == 'IteratorGetNextAsOptional':
        graph_defs.turn_into_call(changed, node, _next_of_list())
      else:
        graph_defs.turn_into_call(
          changed, node, reductions[node.name].over_list
        )
  return changed


def _make_variable(node: tf.compat.v1.NodeDef) -> None:
  """Makes a variable of an iterator."""
  node.op = 'VarHandleOp'
  node.ClearField('attr')
  node.attr['dtype'].type = tf.variant.as_datatype_enum
  node.attr['shape'].shape.SetInParent()
  node.attr['shared_name'].s = graph_defs.ANONYMOUS_VARIABLE


def _make_assignment(node: tf.compat.v1.NodeDef) -> None:
  """Lets a node assign the list, not fill an iterator from the dataset."""
  dataset, iterator, *others = node.input
  node.op = 'AssignVariableOp'
  node.ClearField('attr')
  node.attr['dtype'].type = tf.variant.as_datatype_enum
  node.ClearField('input')
  node.input.extend([iterator, dataset, *others])


@functools.cache
def _next_of_list() -> Any:
  """What `IteratorGetNextAsOptional` is for a list of batches.

  The list, in a variable, starts with "none" and goes on with the batches from
  last to first, each wrapped as an optional.
  """

  @tf.function(
    input_signature=[tf.TensorSpec([], tf.resource)], autograph=False
  )
  def take_next(variable: Any) -> Any:
    batches = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.variant)
    last = tf.raw_ops.TensorListLength(input_handle=batches) - 1
    batch = tf.raw_ops.TensorListGetItem(
      input_handle=batches,
      index=last,
      element_shape=tf.constant([], tf.int32),
      element_dtype=tf.variant,
    )
    # "None" stays: asking again after the end gives the same answer.
    rest = tf.raw_ops.TensorListResize(
      input_handle=batches, size=tf.maximum(last, 1)
    )
    store = tf.raw_ops.AssignVariableOp(resource=variable, value=rest)
    with tf.control_dependencies([store]):
      return tf.identity(batch)

  return take_next.get_concrete_function()


def iterations(
  graph_def: tf.compat.v1.GraphDef, parameter: str, reductions: _Reductions
) -> Optional[list[Any]]:
  """The ops that iterate over a dataset parameter.

  Returns:
    The nodes that make, fill and advance iterators over it, and those of
    `reductions`; `None` if the graph does anything else with the dataset.
  """
  consumers = collections.defaultdict(list)
  by_name = {}
  for node in graph_def.node:
    by_name[node.name] = node
    for source in node.input:
      if not source.startswith('^'):
        consumers[graph_defs.node_name(source)].append(node)

  def users(name: str) -> Iterator[Any]:
    """Consumers of a tensor, seen through ops that pass it on."""
    for node in consumers[name]:
      if node.op in ('Identity', 'Enter'):
        yield from users(node.name)
      else:
        yield node

  def origin(source: Any) -> Any:
    """Name of the node that a tensor comes from, in the same sense."""
    node = by_name[graph_defs.node_name(source)]
    return origin(node.input[0]) if node.op == 'Identity' else node.name

  found = {}
  for node in users(graph_defs.node_name(parameter)):
    if node.name in reductions:
      # The dataset itself must be what is reduced, not something captured.
      captured = [source for source in node.input[1:] if source[0] != '^']
      if any(origin(source) == origin(parameter) for source in captured):
        return None
      found[node.name] = node
      continue
    if node.op != 'MakeIterator':
      return None
    iterator = by_name[graph_defs.node_name(node.input[1])]
    while iterator.op == 'Identity':
      iterator = by_name[graph_defs.node_name(iterator.input[0])]
    if iterator.op != 'AnonymousIteratorV3':
      return None
    found[iterator.name] = iterator
    for user in users(iterator.name):
      if user is not node and user.op != 'IteratorGetNextAsOptional':
        return None
      found[user.name] = user
  return list(found.values())
