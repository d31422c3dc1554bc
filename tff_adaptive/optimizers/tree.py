"""Arithmetic on structures of tensors, shared by the update rules."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


def dense(
  weights: structures.WeightsT, gradients: structures.WeightsT
) -> structures.WeightsT:
  """Converts gradients to dense tensors of the weights' shapes.

  Args:
    weights: A structure of tensors.
    gradients: The same structure, with `None` for weights that the loss does
      not depend on, and `tf.IndexedSlices` for weights of which only some rows
      have a gradient.

  Returns:
    The same structure, with zeros in place of missing gradients.

  Raises:
    ValueError: If structures, shapes or dtypes do not match.
  """
  gradients = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
  tff.learning.optimizers.check_weights_gradients_match(weights, gradients)
  return tf.nest.map_structure(
    lambda x, g: tf.zeros_like(x) if g is None else g, weights, gradients
  )


def zeros(specs: structures.Specs, value: float = 0.0) -> structures.Structure:
  """Builds tensors of the given `tf.TensorSpec`s, filled with one value."""
  return tf.nest.map_structure(
    lambda s: tf.fill(s.shape, tf.cast(value, s.dtype)), specs
  )


def squared_norm(structure: structures.Structure) -> tf.Tensor:
  """Computes the squared Euclidean norm over all leaves, scalar float32."""
  leaves = [
    tf.reduce_sum(tf.square(tf.cast(leaf, tf.float32)))
    for leaf in tf.nest.flatten(structure)
  ]
  return tf.add_n(leaves) if leaves else tf.constant(0.0)


def norm(structure: structures.Structure) -> tf.Tensor:
  """Computes the Euclidean norm over all leaves, scalar float32."""
  return tf.sqrt(squared_norm(structure))


def dot(a: structures.Structure, b: structures.Structure) -> tf.Tensor:
  """Computes the inner product over all leaves, scalar float32."""
  products = [
    tf.reduce_sum(tf.cast(x * y, tf.float32))
    for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b))
  ]
  return tf.add_n(products) if products else tf.constant(0.0)


def sum_of_absolutes(structure: structures.Structure) -> tf.Tensor:
  """Computes the 1-norm over all leaves, scalar float32."""
  leaves = [
    tf.reduce_sum(tf.abs(tf.cast(leaf, tf.float32)))
    for leaf in tf.nest.flatten(structure)
  ]
  return tf.add_n(leaves) if leaves else tf.constant(0.0)


def add(a: structures.Tree, b: structures.Structure) -> structures.Tree:
  """Computes `a + b`, leaf by leaf."""
  return tf.nest.map_structure(tf.add, a, b)


def subtract(a: structures.Tree, b: structures.Tree) -> structures.Tree:
  """Computes `a - b`, leaf by leaf."""
  return tf.nest.map_structure(tf.subtract, a, b)


def add_scaled(
  a: structures.Tree, scale: tf.Tensor, b: structures.Tree
) -> structures.Tree:
  """Computes `a + scale * b`, leaf by leaf, in each leaf's dtype."""
  return tf.nest.map_structure(
    lambda x, y: x + tf.cast(scale, x.dtype) * y, a, b
  )


def moving_average(
  decay: tf.Tensor, old: structures.Tree, new: structures.Structure
) -> structures.Tree:
  """Computes `decay * old + (1 - decay) * new`, in each leaf's dtype."""
  return map_cast(lambda b, x, y: b * x + (1 - b) * y, (decay,), old, new)


def map_cast(
  fn: Callable[..., tf.Tensor],
  scalars: tuple[tf.Tensor, ...],
  first: structures.Tree,
  *others: structures.Structure,
) -> structures.Tree:
  """Maps `fn(*scalars, *leaves)` with the scalars in each leaf's dtype."""

  def on_leaf(*leaves: tf.Tensor) -> tf.Tensor:
    return fn(*(tf.cast(s, leaves[0].dtype) for s in scalars), *leaves)

  return tf.nest.map_structure(on_leaf, first, *others)


_branches = threading.local()


@contextlib.contextmanager
def without_branches() -> Iterator[None]:
  """Makes `cond` compute both of its branches, in this context.

  Clients that train together take different branches, so both are needed.
  """
  _branches.none = True
  try:
    yield
  finally:
    _branches.none = False


def cond(
  condition: tf.Tensor,
  true_fn: Callable[[], structures.Tree],
  false_fn: Callable[[], structures.Tree],
) -> structures.Tree:
  """Returns the result of one of two functions, by a bool scalar."""
  if not getattr(_branches, 'none', False):
    return tf.cond(condition, true_fn, false_fn)
  return tf.nest.map_structure(
    lambda a, b: tf.where(condition, a, b), true_fn(), false_fn()
  )


def switch(index: tf.Tensor, branches: Sequence[Callable[[], Any]]) -> Any:
  """Returns the result of the function with an index, int32 scalar.

  As for `tf.switch_case`, that of the last one for any other index.
  """
  if not getattr(_branches, 'none', False):
    return tf.switch_case(index, branches)
  result = branches[-1]()
  for place, branch in enumerate(branches[:-1]):
    here = tf.equal(index, place)
    result = tf.nest.map_structure(
      lambda a, b, here=here: tf.where(here, a, b), branch(), result
    )
  return result


def zero_unless(
  condition: tf.Tensor, structure: structures.Tree
) -> structures.Tree:
  """Returns the structure, or zeros if a bool scalar is false.

  Unlike `tf.where`, which copies, it passes the structure's tensors on.
  """
  leaves = tf.nest.flatten(structure)
  if not leaves:
    return structure
  chosen = cond(
    condition,
    lambda: leaves,
    lambda: [tf.zeros_like(leaf) for leaf in leaves],
  )
  return tf.nest.pack_sequence_as(structure, chosen)


def all_finite(structure: structures.Structure) -> tf.Tensor:
  """Returns whether all floating-point leaves are finite, bool scalar."""
  checks = [
    tf.reduce_all(tf.math.is_finite(leaf))
    for leaf in tf.nest.flatten(structure)
    if leaf is not None and leaf.dtype.is_floating
  ]
  return tf.reduce_all(tf.stack(checks))
