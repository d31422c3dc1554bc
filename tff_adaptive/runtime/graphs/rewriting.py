"""Rewrites that let several graphs of TFF run in one process at once.

`graph.py` says why each is needed.
"""

import collections
import itertools
from collections.abc import Sequence

import tensorflow as tf

from tff_adaptive.runtime import failures
from tff_adaptive.runtime.graphs import defs

_ANONYMOUS_TABLES = {
  'HashTableV2': 'AnonymousHashTable',
  'MutableHashTableV2': 'AnonymousMutableHashTable',
  'MutableHashTableOfTensorsV2': 'AnonymousMutableHashTableOfTensors',
  'MutableDenseHashTableV2': 'AnonymousMutableDenseHashTable',
}
_TABLE_NAMING = ('container', 'shared_name', 'use_node_name_sharing')
# Queues have no anonymous kind; graphs with one run for one client at a time.
_QUEUES = frozenset(
  {
    'FIFOQueueV2',
    'PaddingFIFOQueueV2',
    'PriorityQueueV2',
    'RandomShuffleQueueV2',
  }
)
# Kernels that remember a random state from call to call when they have a seed.
_SEEDED = ('seed', 'seed2')
# Ops of the input pipeline, by the beginnings of their names.
_INPUT = ('AnonymousIterator', 'Iterator', 'MakeIterator', 'Optional')
# Ops whose output is an input, and those that combine conditions.
_PASS_ON = frozenset(
  {'Enter', 'Exit', 'Identity', 'Merge', 'NextIteration', 'Switch'}
)
_LOGICAL = frozenset({'LogicalAnd', 'LogicalNot', 'LogicalOr'})
_unique = itertools.count()


def check_stateful_ops(graph_def: defs.GraphDef) -> None:
  """Raises `UnsupportedComputationError` if clients would share state."""
  for node in defs.all_nodes(graph_def):
    if node.op in _ANONYMOUS_TABLES or node.op in _QUEUES:
      continue
    if node.op == 'VarHandleOp':
      continue
    if 'shared_name' in node.attr and not node.op.startswith('Anonymous'):
      raise failures.UnsupportedComputationError(
        f'The in-process runtime cannot run the TensorFlow op {node.op}'
        f' (node {node.name!r}): its state would be shared by clients that'
        ' run at once; use the native runtime for this computation.'
      )


def rename_functions(graph_def: defs.GraphDef, suffix: str) -> None:
  """Appends `suffix` to each function's name wherever it is mentioned."""
  names = {
    f.signature.name: f.signature.name + suffix
    for f in graph_def.library.function
  }
  if not names:
    return

  def rename(value: tf.compat.v1.AttrValue) -> None:
    if value.HasField('func'):
      value.func.name = names.get(value.func.name, value.func.name)
      for inner in value.func.attr.values():
        rename(inner)
    for function in value.list.func:
      function.name = names.get(function.name, function.name)
      for inner in function.attr.values():
        rename(inner)

  for node in defs.all_nodes(graph_def):
    node.op = names.get(node.op, node.op)
    for value in node.attr.values():
      rename(value)
  for function in graph_def.library.function:
    function.signature.name = names[function.signature.name]
    for value in function.attr.values():
      rename(value)
  for gradient in graph_def.library.gradient:
    gradient.function_name = names.get(
      gradient.function_name, gradient.function_name
    )
    gradient.gradient_func = names.get(
      gradient.gradient_func, gradient.gradient_func
    )


def make_anonymous(graph_def: defs.GraphDef) -> None:
  """Makes variables, tables and queues local to each execution."""
  for node in defs.all_nodes(graph_def):
    if node.op == 'VarHandleOp':
      node.attr['shared_name'].s = defs.ANONYMOUS_VARIABLE
      node.attr['container'].s = b''
    elif node.op in _QUEUES:
      node.attr['shared_name'].s = b'tff_adaptive_queue_%d' % next(_unique)
    elif node.op in _ANONYMOUS_TABLES:
      node.op = _ANONYMOUS_TABLES[node.op]
      for name in _TABLE_NAMING:
        if name in node.attr:
          del node.attr[name]
    # Colocation names nodes that pruning may remove, and would pin whatever
    # touches a variable to its device; the caller's device rules instead.
    if '_class' in node.attr:
      del node.attr['_class']


def keep_input_with_host(graph_def: defs.GraphDef) -> None:
  """Puts iterators, and the conditions of loops, on the CPU.

  Where a function is called on a GPU, all that has a kernel there goes there.
  Iterators have one, but it is for datasets that are on the GPU themselves: it
  would pass off a batch in the host's memory as one in the GPU's. And a loop
  would wait in every step for a condition to come back from the GPU that the
  host knew.
  """
  for node in defs.all_nodes(graph_def):
    if node.op.startswith(_INPUT):
      node.device = defs.HOST
  nodes = {node.name: node for node in graph_def.node}
  waiting = [node for node in graph_def.node if node.op == 'LoopCond']
  while waiting:
    for source in waiting.pop().input:
      node = nodes[defs.node_name(source)]
      if source.startswith('^') or node.device == defs.HOST:
        continue
      known = node.op == 'Const' or node.op in _LOGICAL
      if known or _passes_on(node, (tf.bool,)):
        node.device = defs.HOST
        waiting.append(node)
  readers = collections.defaultdict(list)
  for node in graph_def.node:
    # The second input of a `Switch` is not passed on.
    for source in node.input[: 1 if node.op == 'Switch' else None]:
      readers[defs.node_name(source)].append(node)
  waiting = [node for node in graph_def.node if node.device == defs.HOST]
  while waiting:
    for node in readers[waiting.pop().name]:
      passes = _passes_on(node, (tf.bool, tf.resource, tf.variant))
      if passes and node.device != defs.HOST:
        node.device = defs.HOST
        waiting.append(node)


def _passes_on(node: defs.NodeDef, dtypes: Sequence[tf.DType]) -> bool:
  return node.op in _PASS_ON and tf.as_dtype(node.attr['T'].type) in dtypes


def drop_control_edges_from(
  graph_def: defs.GraphDef, parameters: Sequence[str]
) -> None:
  """Drops control edges from placeholders, which are fed and never run."""
  edges = {f'^{defs.node_name(name)}' for name in parameters}
  for node in graph_def.node:
    kept = [source for source in node.input if source not in edges]
    if len(kept) < len(node.input):
      node.ClearField('input')
      node.input.extend(kept)


def set_session_token(graph_def: defs.GraphDef, name: str) -> None:
  """Replaces the placeholder of a session's token by an empty constant."""
  token = defs.node_name(name)
  for node in graph_def.node:
    if token and node.op == 'Placeholder' and node.name == token:
      node.op = 'Const'
      node.ClearField('attr')
      node.attr['dtype'].type = tf.string.as_datatype_enum
      node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(''))


def order_after_initialization(
  graph_def: defs.GraphDef, initialize_op: str
) -> None:
  """Makes users of variables and tables wait for `initialize_op`."""
  initialize = defs.node_name(initialize_op)
  before = defs.needed_nodes(graph_def, [initialize])
  handles = {
    node.name
    for node in graph_def.node
    if node.op == 'VarHandleOp' or node.op in _ANONYMOUS_TABLES.values()
  }
  for node in graph_def.node:
    # The edge goes to the handle's first user, not to the op that reads: no
    # control edge may cross a loop's border, and the first user is outside of
    # any loop (an `Enter` at most), as the initialization is.
    if node.name not in before and any(
      defs.node_name(source) in handles for source in node.input
    ):
      node.input.append(f'^{initialize}')


def rename_frames(graph_def: defs.GraphDef) -> None:
  """Renames the frames of loops, which must be unique within a function."""
  suffix = b'#%d' % next(_unique)
  for node in graph_def.node:
    if 'frame_name' in node.attr:
      name = node.attr['frame_name'].s
      node.attr['frame_name'].s = name.split(b'#')[0] + suffix


def keeps_state(graph_def: defs.GraphDef) -> bool:
  """Returns whether kernels keep a queue or random state between calls."""
  return any(
    _is_seeded(node) or node.op in _QUEUES for node in defs.all_nodes(graph_def)
  )


def _is_seeded(node: defs.NodeDef) -> bool:
  if node.op.startswith('Stateless') or 'Dataset' in node.op:
    return False
  return any(name in node.attr and node.attr[name].i for name in _SEEDED)
