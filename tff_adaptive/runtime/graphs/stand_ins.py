"""Stand-ins for datasets in a graph; see `graph.py`."""

import collections
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from tff_adaptive.runtime.graphs import defs
from tff_adaptive.runtime.graphs import forms
from tff_adaptive.runtime.graphs import reductions as reductions_lib

_Reductions: TypeAlias = Mapping[str, reductions_lib.Reduction]


def substitute(
  graph_def: defs.GraphDef,
  parameters: Sequence[str],
  reductions: _Reductions,
) -> defs.GraphDef:
  """Returns a copy of a graph that takes `forms.Rows` in place of datasets.

  Args:
    graph_def: The graph.
    parameters: Names of the datasets' tensors; `iterations` must not return
      `None` for any.
    reductions: The replaced `ReduceDataset` nodes, by name.

  Returns:
    The copy.
  """
  changed = defs.GraphDef()
  changed.CopyFrom(graph_def)
  for parameter in parameters:
    nodes = iterations(changed, parameter, reductions)
    assert nodes is not None  # Checked by the caller.
    for node in nodes:
      if node.op == 'AnonymousIteratorV3':
        _make_variable(node)
      elif node.op == 'MakeIterator':
        _make_assignment(node)
      elif node.op == 'IteratorGetNextAsOptional':
        types = node.attr['output_types'].list.type
        following = _next_of_rows(tuple(map(tf.as_dtype, types)))
        defs.turn_into_call(changed, node, following)
      else:
        defs.turn_into_call(changed, node, reductions[node.name].over_rows)
  return changed


def _make_variable(node: defs.NodeDef) -> None:
  """Replaces an iterator by a variable."""
  node.op = 'VarHandleOp'
  node.ClearField('attr')
  node.attr['dtype'].type = tf.variant.as_datatype_enum
  node.attr['shape'].shape.SetInParent()
  node.attr['shared_name'].s = defs.ANONYMOUS_VARIABLE


def _make_assignment(node: defs.NodeDef) -> None:
  """Replaces the initialization of an iterator by the variable's assignment."""
  dataset, iterator, *others = node.input
  node.op = 'AssignVariableOp'
  node.ClearField('attr')
  node.attr['dtype'].type = tf.variant.as_datatype_enum
  node.ClearField('input')
  node.input.extend([iterator, dataset, *others])


@functools.cache
def _next_of_rows(dtypes: tuple[tf.DType, ...]) -> defs.ConcreteFunction:
  """Traces a function that takes the next batch from a variable's rows."""

  @tf.function(
    input_signature=[tf.TensorSpec([], tf.resource)], autograph=False
  )
  def take_next(variable: tf.Tensor) -> tf.Tensor:
    packed = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.variant)
    rows = forms.Rows.unpack(packed, dtypes)
    batch = tf.cond(
      rows.remain(rows.begin),
      lambda: tf.raw_ops.OptionalFromValue(components=rows.batch(rows.begin)),
      tf.raw_ops.OptionalNone,
    )
    store = tf.raw_ops.AssignVariableOp(
      resource=variable, value=rows.pack_from(rows.begin + rows.batch_size)
    )
    with tf.control_dependencies([store]):
      return tf.identity(batch)

  return take_next.get_concrete_function()


def iterations(
  graph_def: defs.GraphDef, parameter: str, reductions: _Reductions
) -> list[defs.NodeDef] | None:
  """Returns the ops that iterate over a dataset parameter.

  Returns:
    The nodes that make, fill and advance iterators over it, and those of
    `reductions`; `None` if the dataset is used in any other way.
  """
  consumers: dict[str, list[defs.NodeDef]] = collections.defaultdict(list)
  by_name: dict[str, defs.NodeDef] = {}
  for node in graph_def.node:
    by_name[node.name] = node
    for source in node.input:
      if not source.startswith('^'):
        consumers[defs.node_name(source)].append(node)

  def users(name: str) -> Iterator[defs.NodeDef]:
    """Yields the consumers of a tensor, direct or through pass-on ops."""
    for node in consumers[name]:
      if node.op in ('Identity', 'Enter'):
        yield from users(node.name)
      else:
        yield node

  def origin(source: str) -> str:
    """Returns the node that produces a tensor, skipping pass-on ops."""
    node = by_name[defs.node_name(source)]
    return origin(node.input[0]) if node.op == 'Identity' else node.name

  found = {}
  for node in users(defs.node_name(parameter)):
    if node.name in reductions:
      # The dataset must be the reduced one, not a captured tensor.
      captured = [source for source in node.input[1:] if source[0] != '^']
      if any(origin(source) == origin(parameter) for source in captured):
        return None
      found[node.name] = node
      continue
    if node.op != 'MakeIterator':
      return None
    iterator = by_name[origin(node.input[1])]
    if iterator.op != 'AnonymousIteratorV3':
      return None
    found[iterator.name] = iterator
    for user in users(iterator.name):
      if user is not node and user.op != 'IteratorGetNextAsOptional':
        return None
      found[user.name] = user
  return list(found.values())
