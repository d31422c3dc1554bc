"""Graph rewrites that let several TFF graphs run in one process.

See `graph.py` for the reasons.
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
# There are no anonymous queues; graphs with one run for clients one by one.
_QUEUES = frozenset(
  {
    'FIFOQueueV2',
    'PaddingFIFOQueueV2',
    'PriorityQueueV2',
    'RandomShuffleQueueV2',
  }
)
# Attributes of kernels that keep a random state between calls if seeded.
_SEEDED = ('seed', 'seed2')
# Prefixes of names of input pipeline ops.
_INPUT = ('AnonymousIterator', 'Iterator', 'MakeIterator', 'Optional')
# Ops that pass on an input, and ops that combine conditions.
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
  """Appends `suffix` to the names of all functions, in place."""
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
  """Makes variables and tables local to each execution, queues to the graph."""
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
    # Colocation may refer to pruned nodes, and would pin users of a variable to
    # its device; the caller's device decides instead.
    if '_class' in node.attr:
      del node.attr['_class']


def keep_input_with_host(graph_def: defs.GraphDef) -> None:
  """Places iterators and loop conditions on the CPU.

  In a function called on a GPU, all ops with a GPU kernel are placed there.
  That of iterators is for datasets on the GPU: it would treat a batch in host
  memory as one in GPU memory. And a loop would wait in every step for the GPU
  to return a condition that the host knew.
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
    # `Switch` does not pass on its second input.
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


def frames_of(graph_def: defs.GraphDef) -> set[str]:
  """Returns the names of the nodes inside of loops."""
  readers = collections.defaultdict(list)
  for node in graph_def.node:
    for source in node.input:
      readers[defs.node_name(source)].append(node)
  return defs.reached(
    [node.name for node in graph_def.node if node.op == 'Enter'],
    lambda name: [n.name for n in readers[name] if n.op != 'Exit'],
  )


def drop_control_edges_from(
  graph_def: defs.GraphDef, parameters: Sequence[str]
) -> None:
  """Removes control edges from placeholders, which are fed and never run."""
  edges = {f'^{defs.node_name(name)}' for name in parameters}
  for node in graph_def.node:
    kept = [source for source in node.input if source not in edges]
    if len(kept) < len(node.input):
      node.ClearField('input')
      node.input.extend(kept)


def set_session_token(graph_def: defs.GraphDef, name: str) -> None:
  """Replaces the session token's placeholder by an empty constant."""
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
  """Makes all uses of variables and tables depend on `initialize_op`."""
  initialize = defs.node_name(initialize_op)
  before = defs.needed_nodes(graph_def, [initialize])
  handles = {
    node.name
    for node in graph_def.node
    if node.op == 'VarHandleOp' or node.op in _ANONYMOUS_TABLES.values()
  }
  for node in graph_def.node:
    # The edge goes to the handle's first user, not to the reading op: control
    # edges must not cross a loop's border, and the first user is outside of any
    # loop (an `Enter` at most), as the initialization is.
    if node.name not in before and any(
      defs.node_name(source) in handles for source in node.input
    ):
      node.input.append(f'^{initialize}')


def rename_frames(graph_def: defs.GraphDef) -> None:
  """Renames loop frames, which must be unique within a function."""
  suffix = b'#%d' % next(_unique)
  for node in graph_def.node:
    if 'frame_name' in node.attr:
      name = node.attr['frame_name'].s
      node.attr['frame_name'].s = name.split(b'#')[0] + suffix


def keeps_state(graph_def: defs.GraphDef) -> bool:
  """Returns whether a kernel keeps a queue or random state between calls."""
  return any(
    _is_seeded(node) or node.op in _QUEUES for node in defs.all_nodes(graph_def)
  )


def _is_seeded(node: defs.NodeDef) -> bool:
  if node.op.startswith('Stateless') or 'Dataset' in node.op:
    return False
  return any(name in node.attr and node.attr[name].i for name in _SEEDED)
