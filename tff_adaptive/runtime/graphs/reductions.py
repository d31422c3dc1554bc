"""`dataset.reduce` as a loop; see `graphs.py` for why."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive.runtime.graphs import defs as graph_defs


class Reduction:
  """A `ReduceDataset` node, and the loops that are equal to it."""

  def __init__(self, library: Any, body: Any, node: tf.compat.v1.NodeDef):
    """Reads the types of what is reduced.

    Args:
      library: Where `body` finds the functions that it calls.
      body: Definition of the function that takes one step.
      node: The `ReduceDataset` node.
    """
    self._library = library
    self._body = body
    self._num_state = len(node.attr['Tstate'].list.type)
    self._dtypes = [
      tf.as_dtype(argument.type) for argument in body.signature.input_arg
    ]
    self._results = [
      tf.as_dtype(result.type) for result in body.signature.output_arg
    ]
    self._first_captured = len(self._dtypes) - len(
      node.attr['Targuments'].list.type
    )
    elements = self._dtypes[self._num_state : self._first_captured]
    self._element_types = dict(
      output_types=elements,
      output_shapes=[tf.TensorShape(None)] * len(elements),
    )

  @functools.cached_property
  def over_iterator(self) -> Any:
    """The loop over an iterator of the dataset, as a concrete function."""
    return self._trace(self._iterate)

  @functools.cached_property
  def over_list(self) -> Any:
    """The loop over a list of batches that stands for the dataset."""
    return self._trace(self._walk)

  def _trace(self, loop: Any) -> Any:
    signature = [tf.TensorSpec([], tf.variant)]
    # The state's shape may change from step to step, as in the op replaced.
    signature += [
      tf.TensorSpec(None, dtype)
      for dtype in (
        *self._dtypes[: self._num_state],
        *self._dtypes[self._first_captured :],
      )
    ]

    @tf.function(input_signature=signature, autograph=False)
    def reduce(dataset: Any, *rest: Any) -> Any:
      return loop(dataset, rest[: self._num_state], rest[self._num_state :])

    return reduce.get_concrete_function()

  def _iterate(self, dataset: Any, state: Any, captured: Any) -> list:
    iterator = tf.raw_ops.AnonymousIteratorV3(**self._element_types)

    def advance() -> Any:
      return tf.raw_ops.IteratorGetNextAsOptional(
        iterator=iterator, **self._element_types
      )

    made = tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)
    with tf.control_dependencies([made]):
      following = advance()
    return self._while(
      lambda following, *_: tf.raw_ops.OptionalHasValue(optional=following),
      lambda following, *state: (
        advance(),
        *self._step(following, state, captured),
      ),
      following,
      state,
    )

  def _walk(self, batches: Any, state: Any, captured: Any) -> list:
    def take(position: Any, *state: Any) -> Any:
      optional = tf.raw_ops.TensorListGetItem(
        input_handle=batches,
        index=position,
        element_shape=tf.constant([], tf.int32),
        element_dtype=tf.variant,
      )
      return (position - 1, *self._step(optional, state, captured))

    return self._while(
      lambda position, *_: position > 0,
      take,
      tf.raw_ops.TensorListLength(input_handle=batches) - 1,
      state,
    )

  def _while(self, condition: Any, body: Any, first: Any, state: Any) -> list:
    """The state after a loop whose first variable says where it is."""
    outcome = tf.while_loop(
      condition,
      body,
      (first, *state),
      shape_invariants=(
        first.shape,
        *([tf.TensorShape(None)] * self._num_state),
      ),
    )
    return list(outcome[1:])

  def _step(self, optional: Any, state: Any, captured: Any) -> Any:
    element = tf.raw_ops.OptionalGetValue(
      optional=optional, **self._element_types
    )
    return self._call_body([*state, *element, *captured])

  def _call_body(self, arguments: Sequence[tf.Tensor]) -> Any:
    # Inside the loop's own graph, so captured tensors are passed by name.
    step = tf.compat.v1.GraphDef()
    step.library.CopyFrom(self._library)
    call = step.node.add(name='call', op='StatefulPartitionedCall')
    feeds = {}
    for i, argument in enumerate(arguments):
      placeholder = step.node.add(name=f'argument_{i}', op='Placeholder')
      placeholder.attr['dtype'].type = argument.dtype.as_datatype_enum
      call.input.append(placeholder.name)
      feeds[f'{placeholder.name}:0'] = tf.identity(argument)
    for key, dtypes in (('Tin', self._dtypes), ('Tout', self._results)):
      call.attr[key].list.type.extend(d.as_datatype_enum for d in dtypes)
    call.attr['f'].func.name = self._body.signature.name
    return tf.graph_util.import_graph_def(
      step,
      input_map=feeds,
      return_elements=[f'call:{i}' for i in range(len(self._results))],
      name='step',
    )


def replace(graph_def: tf.compat.v1.GraphDef) -> dict[str, Reduction]:
  """Turns each `ReduceDataset` node into a loop over an iterator.

  Args:
    graph_def: Changed in place.

  Returns:
    What was replaced, by the names of the nodes; must stay alive as long as
    `graph_def` is used.
  """
  nodes = [node for node in graph_def.node if node.op == 'ReduceDataset']
  if not nodes:
    return {}
  # As it is now: what is replaced refers to no replacement.
  library = type(graph_def.library)()
  library.CopyFrom(graph_def.library)
  bodies = {f.signature.name: f for f in library.function}
  reductions = {}
  for node in nodes:
    body = bodies.get(node.attr['f'].func.name)
    if body is None:
      continue
    reduction = Reduction(library, body, node)
    reductions[node.name] = reduction
    graph_defs.turn_into_call(graph_def, node, reduction.over_iterator)
  return reductions
