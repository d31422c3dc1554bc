"""Replacement of `dataset.reduce` by loops; see `graph.py`."""

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.graphs import defs
from tff_adaptive.runtime.graphs import forms

_Tensors: TypeAlias = Sequence[tf.Tensor]
# Maps a dataset or its stand-in, the state and the body's captures to the state
# after the last element.
_Loop: TypeAlias = Callable[[tf.Tensor, _Tensors, _Tensors], _Tensors]


class Reduction:
  """A `ReduceDataset` node and its equivalent loops."""

  def __init__(
    self,
    library: tff_names.FunctionDefLibrary,
    body: tff_names.FunctionDef,
    node: defs.NodeDef,
  ):
    """Takes the types of elements and state from the node.

    Args:
      library: The functions that `body` calls.
      body: The reduce function.
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
    self._elements = self._dtypes[self._num_state : self._first_captured]
    self._element_types = dict(
      output_types=self._elements,
      output_shapes=[tf.TensorShape(None)] * len(self._elements),
    )

  @functools.cached_property
  def over_dataset(self) -> defs.ConcreteFunction:
    """The loop over a dataset."""
    return self._trace(self._iterate)

  @functools.cached_property
  def over_rows(self) -> defs.ConcreteFunction:
    """The loop over `forms.Rows`, packed."""
    return self._trace(self._cut)

  def _trace(self, loop: _Loop) -> defs.ConcreteFunction:
    """Traces a loop with the signature of the node."""
    signature = [tf.TensorSpec([], tf.variant)]
    # As in the replaced op, the state's shape may change between steps.
    signature += [
      tf.TensorSpec(None, dtype)
      for dtype in (
        *self._dtypes[: self._num_state],
        *self._dtypes[self._first_captured :],
      )
    ]

    @tf.function(input_signature=signature, autograph=False)
    def reduce(dataset: tf.Tensor, *rest: tf.Tensor) -> _Tensors:
      return loop(dataset, rest[: self._num_state], rest[self._num_state :])

    return reduce.get_concrete_function()

  def _iterate(
    self, dataset: tf.Tensor, state: _Tensors, captured: _Tensors
  ) -> _Tensors:
    """Loops over an iterator, on the CPU."""
    with tf.device(defs.HOST):
      iterator = tf.raw_ops.AnonymousIteratorV3(**self._element_types)
      made = tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)

    def advance() -> tf.Tensor:
      with tf.device(defs.HOST):
        return tf.raw_ops.IteratorGetNextAsOptional(
          iterator=iterator, **self._element_types
        )

    with tf.control_dependencies([made]):
      following = advance()
    return self._while(
      lambda following, *_: self._has_value(following),
      lambda following, *state: (
        advance(),
        *self._step(self._value(following), state, captured),
      ),
      following,
      state,
    )

  def _cut(
    self, packed: tf.Tensor, state: _Tensors, captured: _Tensors
  ) -> _Tensors:
    """Loops over rows, one batch at a time."""
    rows = forms.Rows.unpack(packed, self._elements)
    return self._while(
      lambda begin, *_: rows.remain(begin),
      lambda begin, *state: (
        begin + rows.batch_size,
        *self._step(rows.batch(begin), state, captured),
      ),
      rows.begin,
      state,
    )

  def _while(
    self,
    condition: Callable[..., tf.Tensor],
    body: Callable[..., _Tensors],
    first: tf.Tensor,
    state: _Tensors,
  ) -> _Tensors:
    """Builds a while loop over a position and the state."""
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

  def _has_value(self, optional: tf.Tensor) -> tf.Tensor:
    with tf.device(defs.HOST):
      return tf.raw_ops.OptionalHasValue(optional=optional)

  def _value(self, optional: tf.Tensor) -> _Tensors:
    with tf.device(defs.HOST):
      return tf.raw_ops.OptionalGetValue(
        optional=optional, **self._element_types
      )

  def _step(
    self, element: _Tensors, state: _Tensors, captured: _Tensors
  ) -> _Tensors:
    """Adds a call of the body: the state after another element."""
    # Called inside the loop's graph, so captured tensors are passed by name.
    step = tf.compat.v1.GraphDef()
    step.library.CopyFrom(self._library)
    call = step.node.add(name='call', op='StatefulPartitionedCall')
    feeds = {}
    for i, argument in enumerate([*state, *element, *captured]):
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


def replace(graph_def: defs.GraphDef) -> dict[str, Reduction]:
  """Replaces each `ReduceDataset` node by a loop over an iterator.

  Args:
    graph_def: The graph, changed in place.

  Returns:
    The replaced nodes by name; must stay alive as long as `graph_def` is used.
  """
  nodes = [node for node in graph_def.node if node.op == 'ReduceDataset']
  if not nodes:
    return {}
  # Copied first: the loops' functions are added to the graph's library.
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
    defs.turn_into_call(graph_def, node, reduction.over_dataset)
  return reductions
