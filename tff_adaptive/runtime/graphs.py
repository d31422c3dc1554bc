"""TensorFlow graphs of TFF computations, made fit to run in this process.

TFF's own runtime runs each graph in a session of its own, where names of
functions, variables and tables cannot meet. Here all graphs live in one
process and one graph runs for several clients at once, hence:

* Functions: names in a graph's library are global in the process, so each
  library is renamed by a digest of its graph.
* Variables, tables: a `shared_name` would make concurrent clients share them,
  so each becomes the anonymous kind, which is new in each execution.
* Initialization: there is no session to run `initialize_op` in first, so
  whatever reads a variable or table waits for it by a control edge.
* `dataset.reduce`: its kernel instantiates its function anew in each call
  (30 to 40 ms); the equal loop over an iterator does not.
* Batch lists: making an iterator costs more than a small client's training, and
  each batch from it wakes another thread. For a dataset that yields the same
  batches each time (`values.py` decides) the graph has a second form, in which
  a list of batches stands for the dataset, and a variable that holds the rest
  of this list for the iterator. Both are of the same TensorFlow types, so only
  the ops that make and advance iterators change.
"""

import collections
import functools
import hashlib
import itertools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive.runtime import errors

# TensorFlow's reserved name: such a variable belongs to one execution.
_ANONYMOUS_VARIABLE = b'cd2c89b7-88b7-44c8-ad83-06c2a9158347'
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
_unique = itertools.count()


class Graph:
  """One leaf computation.

  Attributes:
    graph_def: The rewritten graph.
    parameters: Names of the tensors to feed, in the order of the argument.
    results: Names of the tensors to fetch, in the order of the result.
    ordered: Whether calls must happen one after another, in the clients' order:
      some kernel keeps a queue, or a seeded random state, between calls.
  """

  def __init__(
    self,
    graph_def: tf.compat.v1.GraphDef,
    initialize_op: str,
    session_token: str,
    parameters: Sequence[str],
    results: Sequence[str],
  ):
    """Rewrites `graph_def`, which becomes this object's own."""
    self.parameters = [_tensor_name(name) for name in parameters]
    self.results = [_tensor_name(name) for name in results]
    _check_resources(graph_def)
    digest = hashlib.sha256(
      graph_def.SerializeToString(deterministic=True)
    ).hexdigest()[:16]
    _rename_functions(graph_def, f'_{digest}')
    _make_anonymous(graph_def)
    _drop_control_edges_from(graph_def, self.parameters)
    _set_session_token(graph_def, session_token)
    self._reductions = _replace_reductions(graph_def)
    if initialize_op:
      _order_after_initialization(graph_def, initialize_op)
    self.graph_def = graph_def
    self.ordered = any(
      _is_seeded(node) or node.op in _QUEUES for node in _all_nodes(graph_def)
    )
    self._pruned: dict[tuple[int, ...], tf.compat.v1.GraphDef] = {}
    self._listed: dict[str, Any] = {}

  def call(
    self,
    arguments: Sequence[tf.Tensor],
    wanted: Sequence[int],
    listed: Sequence[int] = (),
  ) -> Any:
    """Adds this graph to the graph under construction.

    Args:
      arguments: One tensor per entry of `parameters`.
      wanted: Indices into `results`; whatever only others need is left out.
      listed: Indices of the `arguments` that are lists of batches instead of
        datasets; `listable` must hold for each.

    Returns:
      The tensors of the `wanted` results.
    """
    names = [self.results[i] for i in wanted]
    kept = self._prune(tuple(wanted))
    if listed:
      kept = self._with_lists(kept, listed)
    _rename_frames(kept)
    nodes = {node.name for node in kept.node}
    feeds = {
      name: value
      for name, value in zip(self.parameters, arguments)
      if name.split(':')[0] in nodes
    }
    # A result may be an argument passed on.
    direct = dict(zip(self.parameters, arguments))
    fetches = [name for name in names if name not in direct]
    fetched = (
      dict(
        zip(
          fetches,
          tf.graph_util.import_graph_def(
            kept, input_map=feeds, return_elements=fetches, name='graph'
          ),
        )
      )
      if fetches
      else {}
    )
    return [direct[n] if n in direct else fetched[n] for n in names]

  def listable(self, index: int) -> bool:
    """Whether a list of batches may stand for the dataset `parameters[index]`.

    It may if the graph does nothing with the dataset but iterate over it.
    """
    return (
      _iterations(self.graph_def, self.parameters[index], self._reductions)
      is not None
    )

  def _with_lists(self, graph_def: Any, listed: Any) -> Any:
    changed = tf.compat.v1.GraphDef()
    changed.CopyFrom(graph_def)
    by_name = {node.name: node for node in changed.node}
    library = {f.signature.name for f in changed.library.function}

    def set_function(node: Any, function: Any) -> None:
      name, types = _add_function(changed, function, library)
      node.op = 'StatefulPartitionedCall'
      node.ClearField('attr')
      for key, value in types.items():
        node.attr[key].CopyFrom(value)
      node.attr['f'].func.name = name

    for index in listed:
      for node in _iterations(
        changed, self.parameters[index], self._reductions
      ):
        node = by_name[node.name]
        inputs = list(node.input)
        if node.op == 'AnonymousIteratorV3':
          node.op = 'VarHandleOp'
          node.ClearField('attr')
          node.attr['dtype'].type = tf.variant.as_datatype_enum
          node.attr['shape'].shape.SetInParent()
          node.attr['shared_name'].s = _ANONYMOUS_VARIABLE
        elif node.op == 'MakeIterator':
          node.op = 'AssignVariableOp'
          node.ClearField('attr')
          node.attr['dtype'].type = tf.variant.as_datatype_enum
          node.ClearField('input')
          node.input.extend([inputs[1], inputs[0], *inputs[2:]])
        elif node.op == 'IteratorGetNextAsOptional':
          set_function(node, _next_of_list())
        else:
          library_, body, original, _ = self._reductions[node.name]
          if node.name not in self._listed:
            self._listed[node.name] = _reduction_loop(
              library_, body, original, listed=True
            )
          set_function(node, self._listed[node.name])
    return changed

  def _prune(self, wanted: tuple[int, ...]) -> tf.compat.v1.GraphDef:
    if wanted not in self._pruned:
      by_name = {node.name: node for node in self.graph_def.node}
      stack = [_node_name(self.results[i]) for i in wanted]
      reached = set(stack)
      while stack:
        for source in by_name[stack.pop()].input:
          name = _node_name(source)
          if name not in reached:
            reached.add(name)
            stack.append(name)
      kept = tf.compat.v1.GraphDef(versions=self.graph_def.versions)
      kept.library.CopyFrom(self.graph_def.library)
      kept.node.extend(n for n in self.graph_def.node if n.name in reached)
      self._pruned[wanted] = kept
    return self._pruned[wanted]


def _rename_frames(graph_def: tf.compat.v1.GraphDef) -> None:
  """Keeps the loops of two imports apart: frames go by name in a function."""
  suffix = b'#%d' % next(_unique)
  for node in graph_def.node:
    if 'frame_name' in node.attr:
      name = node.attr['frame_name'].s
      node.attr['frame_name'].s = name.split(b'#')[0] + suffix


def _node_name(reference: str) -> str:
  return reference.lstrip('^').split(':')[0]


def _tensor_name(name: str) -> str:
  return name if ':' in name else f'{name}:0'


def _all_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterator[Any]:
  yield from graph_def.node
  for function in graph_def.library.function:
    yield from function.node_def


def _is_seeded(node: tf.compat.v1.NodeDef) -> bool:
  if node.op.startswith('Stateless') or 'Dataset' in node.op:
    return False
  return any(name in node.attr and node.attr[name].i for name in _SEEDED)


def _check_resources(graph_def: tf.compat.v1.GraphDef) -> None:
  for node in _all_nodes(graph_def):
    if node.op in _ANONYMOUS_TABLES or node.op in _QUEUES:
      continue
    if node.op == 'VarHandleOp':
      continue
    if 'shared_name' in node.attr and not node.op.startswith('Anonymous'):
      raise errors.UnsupportedComputationError(
        f'The in-process runtime cannot run the TensorFlow op {node.op}'
        f' (node {node.name!r}): its state would be shared by clients that'
        ' run at once; use the native runtime for this computation.'
      )


def _rename_functions(graph_def: tf.compat.v1.GraphDef, suffix: str) -> None:
  """Appends `suffix` to each function's name wherever it is mentioned."""
  names = {
    f.signature.name: f.signature.name + suffix
    for f in graph_def.library.function
  }
  if not names:
    return

  def rename(value: Any) -> None:
    if value.HasField('func'):
      value.func.name = names.get(value.func.name, value.func.name)
      for inner in value.func.attr.values():
        rename(inner)
    for function in value.list.func:
      function.name = names.get(function.name, function.name)
      for inner in function.attr.values():
        rename(inner)

  for node in _all_nodes(graph_def):
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


def _make_anonymous(graph_def: tf.compat.v1.GraphDef) -> None:
  for node in _all_nodes(graph_def):
    if node.op == 'VarHandleOp':
      node.attr['shared_name'].s = _ANONYMOUS_VARIABLE
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


def _drop_control_edges_from(
  graph_def: tf.compat.v1.GraphDef, parameters: Sequence[str]
) -> None:
  """Lets nobody wait for placeholders, which are fed and never run."""
  edges = {f'^{_node_name(name)}' for name in parameters}
  for node in graph_def.node:
    kept = [source for source in node.input if source not in edges]
    if len(kept) < len(node.input):
      node.ClearField('input')
      node.input.extend(kept)


def _set_session_token(graph_def: tf.compat.v1.GraphDef, name: str) -> None:
  for node in graph_def.node:
    if name and node.op == 'Placeholder' and node.name == _node_name(name):
      node.op = 'Const'
      node.ClearField('attr')
      node.attr['dtype'].type = tf.string.as_datatype_enum
      node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(''))


def _order_after_initialization(
  graph_def: tf.compat.v1.GraphDef, initialize_op: str
) -> None:
  """Makes users of variables and tables wait for `initialize_op`."""
  by_name = {node.name: node for node in graph_def.node}
  initialize = _node_name(initialize_op)
  before = {initialize}
  stack = [initialize]
  while stack:
    for source in by_name[stack.pop()].input:
      name = _node_name(source)
      if name not in before:
        before.add(name)
        stack.append(name)
  handles = {
    node.name
    for node in graph_def.node
    if node.op == 'VarHandleOp' or node.op in _ANONYMOUS_TABLES.values()
  }
  for node in graph_def.node:
    # The edge goes to the handle's first user, not to the op that reads: the
    # former is outside of any loop (an `Enter` at most), where the
    # initialization is too; no control edge may cross a loop's border.
    if node.name not in before and any(
      _node_name(source) in handles for source in node.input
    ):
      node.input.append(f'^{initialize}')


def _replace_reductions(graph_def: tf.compat.v1.GraphDef) -> dict[str, tuple]:
  """Turns each `ReduceDataset` node into a loop over an iterator.

  Args:
    graph_def: Changed in place.

  Returns:
    By the names of these nodes: what they were made of, and the loop, which
    must stay alive as long as `graph_def` is used.
  """
  bodies = {f.signature.name: f for f in graph_def.library.function}
  known = set(bodies)
  library = None
  reductions = {}
  for node in [n for n in graph_def.node if n.op == 'ReduceDataset']:
    body = bodies.get(node.attr['f'].func.name)
    if body is None:
      continue
    if library is None:
      library = type(graph_def.library)()
      library.CopyFrom(graph_def.library)
    original = type(node)()
    original.CopyFrom(node)
    loop = _reduction_loop(library, body, original, listed=False)
    name, types = _add_function(graph_def, loop, known)
    node.op = 'StatefulPartitionedCall'
    node.ClearField('attr')
    for key, value in types.items():
      node.attr[key].CopyFrom(value)
    node.attr['f'].func.name = name
    reductions[node.name] = (library, body, original, loop)
  return reductions


def _add_function(graph_def: Any, function: Any, known: set[str]) -> Any:
  """Adds a concrete function, and what it calls, to a graph's library.

  Args:
    graph_def: Whose library grows.
    function: The function.
    known: Names in the library; grows too.

  Returns:
    The name to call and the types that the call states.
  """
  with tf.Graph().as_default() as scratch:
    placeholders = [
      tf.compat.v1.placeholder(spec.dtype, spec.shape)
      for spec in function.structured_input_signature[0]
    ]
    function(*placeholders)
    traced = scratch.as_graph_def()
  (call,) = [n for n in traced.node if n.op.endswith('PartitionedCall')]
  for added in traced.library.function:
    if added.signature.name not in known:
      known.add(added.signature.name)
      graph_def.library.function.add().CopyFrom(added)
  return call.attr['f'].func.name, {
    key: call.attr[key] for key in ('Tin', 'Tout')
  }


def _iterations(graph_def: Any, parameter: str, reductions: Any) -> Any:
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
        consumers[_node_name(source)].append(node)

  def users(name: str) -> Iterator[Any]:
    """Consumers of a tensor, seen through ops that pass it on."""
    for node in consumers[name]:
      if node.op in ('Identity', 'Enter'):
        yield from users(node.name)
      else:
        yield node

  def origin(source: Any) -> Any:
    """Name of the node that a tensor comes from, in the same sense."""
    node = by_name[_node_name(source)]
    return origin(node.input[0]) if node.op == 'Identity' else node.name

  found = {}
  for node in users(_node_name(parameter)):
    if node.name in reductions:
      # The dataset itself must be what is reduced, not something captured.
      captured = [source for source in node.input[1:] if source[0] != '^']
      if any(origin(source) == origin(parameter) for source in captured):
        return None
      found[node.name] = node
      continue
    if node.op != 'MakeIterator':
      return None
    iterator = by_name[_node_name(node.input[1])]
    while iterator.op == 'Identity':
      iterator = by_name[_node_name(iterator.input[0])]
    if iterator.op != 'AnonymousIteratorV3':
      return None
    found[iterator.name] = iterator
    for user in users(iterator.name):
      if user is not node and user.op != 'IteratorGetNextAsOptional':
        return None
      found[user.name] = user
  return list(found.values())


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


def _reduction_loop(library: Any, body: Any, node: Any, listed: bool) -> Any:
  """A function equal to the `ReduceDataset` node with function `body`.

  Args:
    library: Where `body` finds the functions that it calls.
    body: Definition of the function that takes one step.
    node: The `ReduceDataset` node.
    listed: Whether a list of batches stands for the dataset.
  """
  num_state = len(node.attr['Tstate'].list.type)
  num_captured = len(node.attr['Targuments'].list.type)
  dtypes = [tf.as_dtype(argument.type) for argument in body.signature.input_arg]
  last = len(dtypes) - num_captured
  elements = dtypes[num_state:last]
  element_types = dict(
    output_types=elements,
    output_shapes=[tf.TensorShape(None)] * len(elements),
  )
  results = [tf.as_dtype(result.type) for result in body.signature.output_arg]

  def call_body(arguments: Any) -> Any:
    # Inside the loop's own graph, so captured tensors are passed by name.
    step = tf.compat.v1.GraphDef()
    step.library.CopyFrom(library)
    call = step.node.add(name='call', op='StatefulPartitionedCall')
    feeds = {}
    for i, argument in enumerate(arguments):
      placeholder = step.node.add(name=f'argument_{i}', op='Placeholder')
      placeholder.attr['dtype'].type = argument.dtype.as_datatype_enum
      call.input.append(placeholder.name)
      feeds[f'{placeholder.name}:0'] = tf.identity(argument)
    call.attr['Tin'].list.type.extend(d.as_datatype_enum for d in dtypes)
    call.attr['Tout'].list.type.extend(d.as_datatype_enum for d in results)
    call.attr['f'].func.name = body.signature.name
    return tf.graph_util.import_graph_def(
      step,
      input_map=feeds,
      return_elements=[f'call:{i}' for i in range(len(results))],
      name='step',
    )

  signature = [tf.TensorSpec([], tf.variant)]
  # The state's shape may change from step to step, as in the op replaced.
  signature += [tf.TensorSpec(None, d) for d in dtypes[:num_state]]
  signature += [tf.TensorSpec(None, d) for d in dtypes[last:]]

  @tf.function(input_signature=signature, autograph=False)
  def loop(dataset: tf.data.Dataset, *rest: Any) -> Any:
    state, captured = rest[:num_state], rest[num_state:]

    def step(optional: Any, state: Any) -> Any:
      element = tf.raw_ops.OptionalGetValue(optional=optional, **element_types)
      return call_body([*state, *element, *captured])

    free = [tf.TensorShape(None)] * num_state
    if listed:

      def take(position: Any, *state: Any) -> Any:
        optional = tf.raw_ops.TensorListGetItem(
          input_handle=dataset,
          index=position,
          element_shape=tf.constant([], tf.int32),
          element_dtype=tf.variant,
        )
        return (position - 1, *step(optional, state))

      first = tf.raw_ops.TensorListLength(input_handle=dataset) - 1
      outcome = tf.while_loop(
        lambda position, *_: position > 0,
        take,
        (first, *state),
        shape_invariants=(first.shape, *free),
      )
      return list(outcome[1:])

    iterator = tf.raw_ops.AnonymousIteratorV3(**element_types)

    def advance() -> Any:
      return tf.raw_ops.IteratorGetNextAsOptional(
        iterator=iterator, **element_types
      )

    made = tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)
    with tf.control_dependencies([made]):
      following = advance()
    outcome = tf.while_loop(
      lambda following, *_: tf.raw_ops.OptionalHasValue(optional=following),
      lambda following, *state: (advance(), *step(following, state)),
      (following, *state),
      shape_invariants=(following.shape, *free),
    )
    return list(outcome[1:])

  return loop.get_concrete_function()
