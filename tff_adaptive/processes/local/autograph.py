"""Loops over batches, and AutoGraph where it is needed: in users' models.

AutoGraph converts every function that it meets from its source, which takes
seconds at every start, and this package's own code does not need it.
"""

import functools
from collections.abc import Callable
from typing import Any, Optional, TypeVar

import tensorflow as tf

from tff_adaptive import structures

_Result = TypeVar('_Result')


def call(
  function: Callable[..., _Result], *arguments: Any, **named: Any
) -> _Result:
  """Calls a function with AutoGraph's conversion."""
  return _converted()(function, *arguments, **named)


def fold(
  step: Callable[[structures.Tree, structures.Examples], structures.Tree],
  start: structures.Tree,
  data: tf.data.Dataset,
  most: Optional[tf.Tensor] = None,
) -> structures.Tree:
  """Folds a function over a dataset's batches.

  Written as the loop of an iterator, because TFF's runtimes run `reduce` on the
  CPU. AutoGraph's `for` would test for a batch inside of the loop's body, and
  pass all loop variables through the test: small models take a sixth longer.

  Args:
    step: Maps a structure of tensors and a batch to a structure of the same
      types. Not converted by AutoGraph, except for `call` inside of it.
    start: The initial structure.
    data: The batches.
    most: How many of them at most, int64 scalar; by default all. Counted here
      and not by `data.take`, because runtimes cannot keep the batches of a
      dataset that is made inside of the graph.

  Returns:
    The final structure.
  """
  iterator = iter(data)

  def goes_on(
    batch: tf.experimental.Optional, left: tuple[tf.Tensor, ...], _: Any
  ) -> tf.Tensor:
    more = batch.has_value()
    return tf.logical_and(more, left[0] > 0) if left else more

  def body(
    batch: tf.experimental.Optional,
    left: tuple[tf.Tensor, ...],
    value: structures.Tree,
  ) -> tuple[Any, ...]:
    value = step(value, batch.get_value())
    fewer = tuple(count - 1 for count in left)
    return iterator.get_next_as_optional(), fewer, value

  *_, final = tf.while_loop(
    goes_on,
    tf.autograph.experimental.do_not_convert(body),
    (
      iterator.get_next_as_optional(),
      # TensorFlow keeps int32 on the host: an int64 would be copied there from
      # a GPU at each batch, to be compared.
      () if most is None else (tf.cast(most, tf.int32),),
      start,
    ),
  )
  return final


@functools.cache
def _converted() -> Callable[..., Any]:
  return tf.autograph.to_graph(_call)


def _call(
  function: Callable[..., _Result], *arguments: Any, **named: Any
) -> _Result:
  return function(*arguments, **named)
