"""Arithmetic on structures of tensors, shared by the update rules."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


def dense(weights: Any, gradients: Any) -> Any:
  """Gradients as tensors of the weights' shapes: none missing, none sparse.

  Args:
    weights: A structure of tensors.
    gradients: The same structure, with `None` where the loss does not depend on
      a weight, and `tf.IndexedSlices` where only some rows do.

  Raises:
    ValueError: If structures, shapes or dtypes do not match.
  """
  gradients = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
  tff.learning.optimizers.check_weights_gradients_match(weights, gradients)
  return tf.nest.map_structure(
    lambda x, g: tf.zeros_like(x) if g is None else g, weights, gradients
  )


def zeros(specs: Any, value: float = 0.0) -> Any:
  """Tensors of the given `tf.TensorSpec`s, filled with one value."""
  return tf.nest.map_structure(
    lambda s: tf.fill(s.shape, tf.cast(value, s.dtype)), specs
  )


def squared_norm(structure: Any) -> tf.Tensor:
  """Squared Euclidean norm over all leaves together, scalar float32."""
  leaves = [
    tf.reduce_sum(tf.square(tf.cast(leaf, tf.float32)))
    for leaf in tf.nest.flatten(structure)
  ]
  return tf.add_n(leaves) if leaves else tf.constant(0.0)


def norm(structure: Any) -> tf.Tensor:
  """Euclidean norm over all leaves together, scalar float32."""
  return tf.sqrt(squared_norm(structure))


def subtract(a: Any, b: Any) -> Any:
  """`a - b`, leaf by leaf."""
  return tf.nest.map_structure(tf.subtract, a, b)


def add_scaled(a: Any, scale: tf.Tensor, b: Any) -> Any:
  """`a + scale * b`, leaf by leaf, in each leaf's dtype."""
  return tf.nest.map_structure(
    lambda x, y: x + tf.cast(scale, x.dtype) * y, a, b
  )


def map_cast(
  fn: Callable[..., Any], scalars: tuple[Any, ...], *structures: Any
) -> Any:
  """Maps `fn(*scalars, *leaves)` with the scalars in each leaf's dtype."""

  def on_leaf(*leaves: Any) -> Any:
    return fn(*(tf.cast(s, leaves[0].dtype) for s in scalars), *leaves)

  return tf.nest.map_structure(on_leaf, *structures)


def all_finite(structure: Any) -> tf.Tensor:
  """Whether no floating-point leaf has a NaN or an infinity, bool scalar."""
  checks = [
    tf.reduce_all(tf.math.is_finite(leaf))
    for leaf in tf.nest.flatten(structure)
    if leaf is not None and leaf.dtype.is_floating
  ]
  return tf.reduce_all(tf.stack(checks))
