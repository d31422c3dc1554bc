"""Where Python's loops and conditions become TensorFlow's.

AutoGraph rewrites each function that it meets from its source, which takes
seconds at every start. This package's own code has no need of it but for loops
over batches; models that others wrote may have.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
  """Calls a function that may be written for AutoGraph."""
  return _converted()(function, *arguments, **named)


def fold(step: Callable[[Any, Any], Any], start: Any, data: Any) -> Any:
  """Lets `step` make a new value of the last one and each batch.

  Args:
    step: From a structure of tensors and a batch to a structure of the same
      types; it is not converted, `call` inside of it is.
    start: The first structure.
    data: A `tf.data.Dataset`.

  Returns:
    The last structure.
  """
  return call(
    _for_each, tf.autograph.experimental.do_not_convert(step), start, data
  )


@functools.cache
def _converted() -> Callable[..., Any]:
  return tf.autograph.to_graph(_call)


def _call(function: Any, *arguments: Any, **named: Any) -> Any:
  return function(*arguments, **named)


def _for_each(step: Any, value: Any, data: Any) -> Any:
  for batch in iter(data):
    value = step(value, batch)
  return value
