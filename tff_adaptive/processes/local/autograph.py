"""AutoGraph where it is needed: loops over batches and users' models.

AutoGraph converts every function that it meets from its source, which takes
seconds at every start, and this package's own code does not need it otherwise.
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
  """Calls a function with AutoGraph's conversion."""
  return _converted()(function, *arguments, **named)


def fold(
  step: Callable[[structures.Tree, structures.Examples], structures.Tree],
  start: structures.Tree,
  data: tf.data.Dataset,
) -> structures.Tree:
  """Folds a function over a dataset's batches.

  Args:
    step: Maps a structure of tensors and a batch to a structure of the same
      types. Not converted by AutoGraph, except for `call` inside of it.
    start: The initial structure.
    data: The batches.

  Returns:
    The final structure.
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
