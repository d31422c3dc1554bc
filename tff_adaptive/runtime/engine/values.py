"""Conversion of Python values of unplaced TFF types to tensors and back.

A value of a tensor type becomes an eager tensor, one of a sequence type a
dataset's variant tensor, and a structure a list of both.
"""

import collections
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime import tff_names

# A Python value of a TFF type, in any container that TFF accepts.
PythonValue: TypeAlias = Any
# Appends a value's tensors, in the order of `leaf_specs`.
Ingest: TypeAlias = Callable[[PythonValue, list[tf.Tensor]], None]
# Builds a value from its tensors, in the order of `leaf_specs`.
Restore: TypeAlias = Callable[[Iterator[tf.Tensor]], PythonValue]


class Unread:
  """Stands for a part of an argument that its computation does not read."""


def leaf_specs(type_spec: tff.Type) -> list[tf.TensorSpec]:
  """Returns the specs of a value's tensors, in order, for an unplaced type."""
  if isinstance(type_spec, tff.StructType):
    return [
      s for _, t in tff_names.struct_items(type_spec) for s in leaf_specs(t)
    ]
  if isinstance(type_spec, tff.SequenceType):
    return [tf.TensorSpec([], tf.variant)]
  if isinstance(type_spec, tff.TensorType):
    return [tff_names.tensor_spec(type_spec)]
  raise failures.UnsupportedComputationError(
    f'The in-process runtime does not support values of type {type_spec}.'
  )


def compile_ingest(
  type_spec: tff.Type,
  variant_of: Callable[[PythonValue, tff.SequenceType], tf.Tensor],
) -> Ingest:
  """Compiles the conversion of values of an unplaced type to tensors.

  Args:
    type_spec: A tensor, struct or sequence type.
    variant_of: Converts a dataset or a list of elements to a variant tensor.

  Returns:
    A function that appends the tensors of its first argument to its second, a
    list. It raises `TypeError` for values of another type.
  """
  if isinstance(type_spec, tff.TensorType):
    convert = compile_tensor(type_spec)
    return lambda value, out: out.append(convert(value))
  if isinstance(type_spec, tff.SequenceType):
    return lambda value, out: out.append(
      value if value is Unread else variant_of(value, type_spec)
    )
  # `leaf_specs` has refused other types.
  parts = [
    compile_ingest(element, variant_of)
    for _, element in tff_names.struct_items(type_spec)
  ]
  split = compile_split(type_spec)

  def ingest(value: PythonValue, out: list[tf.Tensor]) -> None:
    for part, element in zip(parts, split(value)):
      part(element, out)

  return ingest


def compile_split(
  type_spec: tff.StructType,
) -> Callable[[PythonValue], Sequence[PythonValue]]:
  """Compiles the conversion of a struct value to its elements.

  Elements are returned in the type's order. Values with other names or another
  number of elements raise `TypeError`.
  """
  names = tuple(name for name, _ in tff_names.struct_items(type_spec))
  all_named = None not in names
  count = len(names)

  def refuse(value: PythonValue, got: object) -> None:
    raise TypeError(
      f'Expected a structure with the elements {list(names)}, as in'
      f' {type_spec}, got {got} in a {type(value).__name__}.'
    )

  def split(value: PythonValue) -> Sequence[PythonValue]:
    kind: Any = type(value)
    if kind is tuple or kind is list:
      if len(value) != count:
        refuse(value, f'{len(value)} elements')
      return value
    if all_named and kind is collections.OrderedDict:
      if tuple(value) != names:
        refuse(value, list(value))
      return tuple(value.values())
    fields = _fields_of(kind)
    if fields is not None:
      if all_named and fields == names:
        return [getattr(value, name) for name in fields]
      if not any(names) and len(fields) == count:
        return [getattr(value, name) for name in fields]
      refuse(value, list(fields))
    # Rare containers are left to TFF.
    if not isinstance(value, tff_names.Struct):
      value = tff_names.structure.from_container(value)
    elements = tff_names.structure.to_elements(value)
    if len(elements) != count or any(
      got is not None and got != name for (got, _), name in zip(elements, names)
    ):
      refuse(value, [name for name, _ in elements])
    return [element for _, element in elements]

  return split


@functools.lru_cache(maxsize=1024)
def _fields_of(kind: type) -> tuple[str, ...] | None:
  """Returns the field names of an attrs class or named tuple, else `None`."""
  if attrs.has(kind):
    return tuple(field.name for field in attrs.fields(kind))
  if issubclass(kind, tuple) and hasattr(kind, '_fields'):
    return kind._fields
  return None


# The tensors that arrays were returned in place of, by the arrays' ids. A state
# goes from round to round without being copied.
_returned: dict[int, tuple[weakref.ref[np.ndarray], tf.Tensor]] = {}


def _array_of(tensor: tf.Tensor) -> Any:
  """Returns a read-only array that shares a tensor's memory, if possible."""
  array = np.asarray(tensor)
  if not array.ndim:
    return array[()]
  if array.flags.writeable:  # NumPy cannot protect bfloat16.
    return tensor.numpy()
  key = id(array)
  forget = lambda _: _returned.pop(key, None)
  _returned[key] = weakref.ref(array, forget), tensor
  return array


def _tensor_of(array: np.ndarray) -> tf.Tensor:
  known, tensor = _returned.get(id(array), (None, None))
  if known is not None and known() is array:
    return tensor
  return tf.constant(array)


def compile_tensor(
  type_spec: tff.TensorType,
) -> Callable[[PythonValue], tf.Tensor]:
  """Compiles the conversion of a value of a tensor type to an eager tensor."""
  spec = tff_names.tensor_spec(type_spec)
  dtype, shape = type_spec.dtype, type_spec.shape
  exact = shape if shape is not None and None not in shape else None
  is_string = np.issubdtype(dtype, np.str_)
  scalar = dtype.type if shape == () and not is_string else None

  def convert(value: PythonValue) -> tf.Tensor:
    kind = type(value)
    if kind is np.ndarray and value.dtype == dtype and value.shape == exact:
      return _tensor_of(value)
    if kind is scalar:
      return tf.constant(value)
    if value is Unread:
      return value
    if isinstance(value, tf.Variable):
      value = value.read_value()
    if isinstance(value, tf.Tensor):
      if value.dtype != spec.dtype or not spec.shape.is_compatible_with(
        value.shape
      ):
        raise TypeError(f'Expected a tensor of {type_spec}, got {value!r}.')
      return value
    tff_names.check_array(value, type_spec)
    if isinstance(value, (list, tuple)) and not is_string:
      value = np.asarray(value, dtype)
    return tf.constant(value, spec.dtype)

  return convert


def compile_restore(type_spec: tff.Type, copy: bool = False) -> Restore:
  """Compiles the conversion of tensors to a Python value.

  Args:
    type_spec: An unplaced type; its Python containers are used.
    copy: Whether arrays are copies. Else they share the tensors' memory, and
      are read-only, as TFF's are.

  Returns:
    A function that maps an iterator over tensors to NumPy values,
    `tf.data.Dataset`s, and structures of these.
  """
  if isinstance(type_spec, tff.StructType):
    parts = [
      compile_restore(element, copy)
      for _, element in tff_names.struct_items(type_spec)
    ]
    pack = compile_pack(type_spec)
    return lambda leaves: pack([part(leaves) for part in parts])
  if isinstance(type_spec, tff.SequenceType):
    element_type = type_spec.element
    return lambda leaves: tff_datasets.dataset_from_variant(
      next(leaves), element_type
    )
  if copy:
    return lambda leaves: next(leaves).numpy()
  return lambda leaves: _array_of(next(leaves))


def compile_pack(
  type_spec: tff.StructType,
) -> Callable[[list[PythonValue]], PythonValue]:
  """Compiles the conversion of elements to a struct type's Python container."""
  names = [name for name, _ in tff_names.struct_items(type_spec)]
  container = type_spec.python_container
  if container is None:
    container = collections.OrderedDict if any(names) else tuple
  if None in names and any(names):
    # No Python container has both; TFF raises a better error.
    return lambda elements: tff_names.to_container(
      tff_names.Struct(list(zip(names, elements))), type_spec
    )
  if _fields_of(container) is not None:
    fields = [name for name in names if name is not None]  # All are named.
    return lambda elements: container(**dict(zip(fields, elements)))
  if any(names):
    return lambda elements: container(zip(names, elements))
  return container
