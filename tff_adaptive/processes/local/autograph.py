"""AutoGraph, where Python's loops and conditions must become TensorFlow's.

AutoGraph rewrites each function that it meets from its source, which takes
seconds at every start. This package's own code has no need of it but for loops
over batches; models that others wrote may have.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import TypeVar

import tensorflow as tf

from tff_adaptive import structures

_Result = TypeVar('_Result')


def call(
  function: Callable[..., _Result], *arguments: Any, **named: Any
) -> _Result:
  """Calls a function that may be written for AutoGraph."""
  return _converted()(function, *arguments, **named)


def fold(
  step: Callable[[structures.Tree, structures.Examples], structures.Tree],
  start: structures.Tree,
  data: tf.data.Dataset,
) -> structures.Tree:
  """Lets `step` make a new value of the last one and each batch.

  Args:
    step: From a structure of tensors and a batch to a structure of the same
      types; it is not converted, `call` inside of it is.
    start: The first structure.
    data: The batches.

  Returns:
    The last structure.
  """
  return call(
    _for_each, tf.autograph.experimental.do_not_convert(step), start, data
  )


@functools.cache
def _converted() -> Callable[..., Any]:
  return tf.autograph.to_graph(_call)


def _call(
  function: Callable[..., _Result], *arguments: Any, **named: Any
) -> _Result:
  return function(*arguments, **named)


def _for_each(
  step: Callable[[structures.Tree, structures.Examples], structures.Tree],
  value: structures.Tree,
  data: tf.data.Dataset,
) -> structures.Tree:
  for batch in iter(data):
    value = step(value, batch)
  return value
