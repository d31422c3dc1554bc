"""Python values in, Python values out.

Inside the runtime a value of a TFF type is a nested tuple of TensorFlow
tensors: an eager tensor for a tensor type, a dataset's variant tensor for a
sequence type.
"""

from typing import Any
import typing
import weakref

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import _tff
from tff_adaptive.runtime import errors

# With tf.data's defaults, each iterator starts a thread that tunes it and a
# pass that optimizes its graph. For a client's few batches both cost several
# times the batches themselves, and clients run side by side anyway. Neither
# changes what a dataset yields.
_OPTIONS = tf.data.Options()
_OPTIONS.autotune.enabled = False
_OPTIONS.experimental_optimization.apply_default_optimizations = False
_OPTIONS.threading.private_threadpool_size = 1


def leaf_specs(type_spec: tff.Type) -> list[tf.TensorSpec]:
  """The tensors that represent a value of an unplaced type, in order."""
  if isinstance(type_spec, tff.StructType):
    return [s for _, t in _tff.struct_items(type_spec) for s in leaf_specs(t)]
  if isinstance(type_spec, tff.SequenceType):
    return [tf.TensorSpec([], tf.variant)]
  if isinstance(type_spec, tff.TensorType):
    return [_tff.tensor_spec(type_spec)]
  raise errors.UnsupportedComputationError(
      f'The in-process runtime has no value of type {type_spec}.'
  )


def ingest(value: Any, type_spec: tff.Type, out: list[tf.Tensor]) -> None:
  """Appends the tensors of an unplaced `value` to `out`.

  Args:
    value: What a caller passed for an argument of type `type_spec`.
    type_spec: A tensor, struct or sequence type.
    out: Receives the tensors in the order of `leaf_specs`.

  Raises:
    TypeError: If the value does not fit the type.
  """
  if isinstance(type_spec, tff.TensorType):
    out.append(_ingest_tensor(value, type_spec))
  elif isinstance(type_spec, tff.StructType):
    elements = struct_elements(value, type_spec)
    for element, (_, element_type) in zip(elements, _tff.struct_items(type_spec)):
      ingest(element, element_type, out)
  elif isinstance(type_spec, tff.SequenceType):
    out.append(_ingest_sequence(value, type_spec))
  else:
    raise errors.UnsupportedComputationError(
        f'The in-process runtime cannot take an argument of type {type_spec}.'
    )


def struct_elements(value: Any, type_spec: tff.StructType) -> list[Any]:
  """The elements of a struct value in the order of its type."""
  if not isinstance(value, _tff.Struct):
    value = _tff.structure.from_container(value)
  elements = _tff.structure.to_elements(value)
  names = [name for name, _ in _tff.struct_items(type_spec)]
  if len(elements) != len(names) or any(
      got is not None and got != name for (got, _), name in zip(elements, names)
  ):
    raise TypeError(
        f'Expected a structure of type {type_spec}, got the elements'
        f' {[name for name, _ in elements]}.'
    )
  return [element for _, element in elements]


def _ingest_tensor(value: Any, type_spec: tff.TensorType) -> tf.Tensor:
  dtype, shape = type_spec.dtype, type_spec.shape
  if isinstance(value, tf.Variable):
    value = value.read_value()
  if isinstance(value, tf.Tensor):
    spec = _tff.tensor_spec(type_spec)
    if value.dtype != spec.dtype or not spec.shape.is_compatible_with(
        value.shape
    ):
      raise TypeError(f'Expected a tensor of type {type_spec}, got {value!r}.')
    return value
  if type(value) is np.ndarray and value.dtype == dtype:
    if shape is not None and (
        len(shape) != value.ndim
        or any(n is not None and n != m for n, m in zip(shape, value.shape))
    ):
      raise TypeError(
          f'Expected a tensor of type {type_spec}, got an array of shape'
          f' {value.shape}.'
      )
    return tf.constant(value)
  _tff.check_array(value, type_spec)
  if np.issubdtype(dtype, np.str_):
    return tf.constant(value, tf.string)
  if isinstance(value, (list, tuple)):
    value = np.asarray(value, dtype)
  return tf.constant(value, tf.as_dtype(dtype))


# Clients often bring the same dataset object in many rounds. Only the variant
# is kept, which does not keep the dataset object alive.
_variants: 'weakref.WeakKeyDictionary[tf.data.Dataset, tuple[Any, tf.Tensor]]'
_variants = weakref.WeakKeyDictionary()


def _ingest_sequence(value: Any, type_spec: tff.SequenceType) -> tf.Tensor:
  if isinstance(value, tf.data.Dataset):
    known = _variants.get(value)
    if known is not None and known[0] is type_spec:
      return known[1]
    variant = _make_variant(value, type_spec)
    _variants[value] = (type_spec, variant)
    return variant
  return _make_variant(value, type_spec)


def _make_variant(value: Any, type_spec: tff.SequenceType) -> tf.Tensor:
  if isinstance(value, (list, tuple)):
    value = _tff.dataset_from_elements(list(value), type_spec.element)
  if not isinstance(value, tf.data.Dataset):
    raise TypeError(
        f'Expected a `tf.data.Dataset` or a list of elements for {type_spec},'
        f' got {type(value).__name__}.'
    )
  value = _tff.conform_dataset(value, type_spec.element)
  options = _OPTIONS
  if value.options().threading.private_threadpool_size is not None:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
  return tf.data.experimental.to_variant(value.with_options(options))


def restore(leaves: typing.Iterator[tf.Tensor], type_spec: tff.Type) -> Any:
  """The Python value that the next of `leaves` represent.

  Args:
    leaves: Tensors in the order of `leaf_specs`.
    type_spec: An unplaced type; its Python containers are used.

  Returns:
    NumPy values, `tf.data.Dataset`s, and structures of these.
  """
  if isinstance(type_spec, tff.StructType):
    return _tff.Struct(
        [
            (name, restore(leaves, element))
            for name, element in _tff.struct_items(type_spec)
        ]
    )
  leaf = next(leaves)
  if isinstance(type_spec, tff.SequenceType):
    return _tff.dataset_from_variant(leaf, type_spec.element)
  return leaf.numpy()
