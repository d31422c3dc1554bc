"""Python values in, Python values out.

Inside the runtime a value of a TFF type is a nested tuple of TensorFlow
tensors: an eager tensor for a tensor type, a dataset's variant tensor for a
sequence type.
"""

import collections
import functools
import threading
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime import tff_names


# With tf.data's defaults, each iterator starts a thread that tunes it and a
# pass that optimizes its graph. For a client's few batches both cost several
# times the batches themselves, and clients run side by side anyway. Neither
# changes what a dataset yields.
def _options(private_threads: Optional[int]) -> bytes:
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  if private_threads is not None:
    options.threading.private_threadpool_size = private_threads
  return tff_datasets.serialize_options(options)


_PLAIN = _options(1)
_WITH_OWN_THREADS = _options(None)


def leaf_specs(type_spec: tff.Type) -> list[tf.TensorSpec]:
  """The tensors that represent a value of an unplaced type, in order."""
  if isinstance(type_spec, tff.StructType):
    return [
      s for _, t in tff_names.struct_items(type_spec) for s in leaf_specs(t)
    ]
  if isinstance(type_spec, tff.SequenceType):
    return [tf.TensorSpec([], tf.variant)]
  if isinstance(type_spec, tff.TensorType):
    return [tff_names.tensor_spec(type_spec)]
  raise failures.UnsupportedComputationError(
    f'The in-process runtime has no value of type {type_spec}.'
  )


def compile_ingest(
  type_spec: tff.Type, datasets: 'DatasetCache'
) -> Callable[[Any, list], None]:
  """A function that takes values of an unplaced type apart.

  Args:
    type_spec: A tensor, struct or sequence type.
    datasets: Datasets seen before.

  Returns:
    A function of a value and a list: it appends the value's tensors, in the
    order of `leaf_specs`, and raises `TypeError` if the value does not fit.
  """
  if isinstance(type_spec, tff.TensorType):
    convert = compile_tensor(type_spec)
    return lambda value, out: out.append(convert(value))
  if isinstance(type_spec, tff.SequenceType):
    return lambda value, out: out.append(datasets.variant(value, type_spec))
  if isinstance(type_spec, tff.StructType):
    parts = [
      compile_ingest(element, datasets)
      for _, element in tff_names.struct_items(type_spec)
    ]
    split = compile_split(type_spec)

    def ingest(value: Any, out: Any) -> None:
      for part, element in zip(parts, split(value)):
        part(element, out)

    return ingest
  raise failures.UnsupportedComputationError(
    f'The in-process runtime cannot take an argument of type {type_spec}.'
  )


def compile_split(type_spec: tff.StructType) -> Callable[[Any], Sequence[Any]]:
  """A function from a struct value to its elements in the type's order."""
  names = tuple(name for name, _ in tff_names.struct_items(type_spec))
  all_named = None not in names
  count = len(names)

  def refuse(value: Any, got: Any) -> Any:
    raise TypeError(
      f'Expected a structure with the elements {list(names)}, as in'
      f' {type_spec}, got {got} in a {type(value).__name__}.'
    )

  def split(value: Any) -> Any:
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
    # Rare containers, in TFF's own way.
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
def _fields_of(kind: Any) -> Optional[tuple[str, ...]]:
  """Field names of an attrs class or a named tuple, else `None`."""
  if attrs.has(kind):
    return tuple(field.name for field in attrs.fields(kind))
  if issubclass(kind, tuple) and hasattr(kind, '_fields'):
    return kind._fields
  return None


def compile_tensor(type_spec: tff.TensorType) -> Callable[[Any], tf.Tensor]:
  """A function from a value of a tensor type to an eager tensor."""
  spec = tff_names.tensor_spec(type_spec)
  dtype, shape = type_spec.dtype, type_spec.shape
  exact = shape if shape is not None and None not in shape else None
  is_string = np.issubdtype(dtype, np.str_)
  scalar = dtype.type if shape == () and not is_string else None

  def convert(value: Any) -> Any:
    kind: Any = type(value)
    if kind is np.ndarray and value.dtype == dtype and value.shape == exact:
      return tf.constant(value)
    if kind is scalar:
      return tf.constant(value)
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


class DatasetCache:
  """What is known of dataset objects that came before.

  Clients often bring the same dataset object in many rounds. Its variant
  tensor is kept while the object lives. If it comes again and is found to yield
  the same batches each time, these are kept too, as a list that graphs can read
  at a fraction of an iterator's cost; see `graphs.py`.
  """

  def __init__(self, max_bytes: int):
    self._known: weakref.WeakKeyDictionary[tf.data.Dataset, list[Any]] = (
      weakref.WeakKeyDictionary()
    )
    self._room = [max_bytes]
    self._lock = threading.Lock()

  def variant(self, value: Any, type_spec: tff.SequenceType) -> tf.Tensor:
    """The variant tensor of a dataset, or of a list of its elements.

    It has the attribute `tff_adaptive_batches` if the batches are kept.
    """
    if not isinstance(value, tf.data.Dataset):
      return _make_variant(value, type_spec)
    with self._lock:
      known = self._known.get(value)
      if known is None or known[0] != type_spec:
        variant = _make_variant(value, type_spec)
        self._known[value] = [type_spec, variant, False]
        return variant
      _, variant, looked_at = known
      if not looked_at:
        known[2] = True
        self._keep_batches(value, variant, type_spec)
      return variant

  def _keep_batches(
    self, dataset: tf.data.Dataset, variant: Any, type_spec: Any
  ) -> None:
    if not self._room[0] or not tff_datasets.yields_the_same_each_time(variant):
      return
    flat = tff_datasets.flat_dataset(variant, type_spec.element)
    optionals, size = [], 0
    for batch in flat:
      size += sum(
        t.dtype.size * t.shape.num_elements()
        if t.dtype != tf.string
        else sum(len(s) + 64 for s in t.numpy().flat)
        for t in batch
      )
      if size > self._room[0]:
        return
      optionals.append(tf.raw_ops.OptionalFromValue(components=list(batch)))
    batches = tf.raw_ops.EmptyTensorList(
      element_shape=tf.constant([], tf.int32),
      max_num_elements=-1,
      element_dtype=tf.variant,
    )
    for optional in [tf.raw_ops.OptionalNone(), *reversed(optionals)]:
      batches = tf.raw_ops.TensorListPushBack(
        input_handle=batches, tensor=optional
      )
    variant.tff_adaptive_batches = batches
    room = self._room
    room[0] -= size

    def give_back() -> None:
      room[0] += size

    weakref.finalize(dataset, give_back)


def _make_variant(value: Any, type_spec: tff.SequenceType) -> tf.Tensor:
  if isinstance(value, (list, tuple)):
    value = tff_datasets.dataset_from_elements(list(value), type_spec.element)
  if not isinstance(value, tf.data.Dataset):
    raise TypeError(
      f'Expected a `tf.data.Dataset` or a list of elements for {type_spec},'
      f' got {type(value).__name__}.'
    )
  value = tff_datasets.conform_dataset(value, type_spec.element)
  own_threads = value.options().threading.private_threadpool_size is not None
  return tff_datasets.apply_options(
    value, _WITH_OWN_THREADS if own_threads else _PLAIN
  )


def compile_restore(
  type_spec: tff.Type,
) -> Callable[[Iterator[tf.Tensor]], Any]:
  """A function that makes Python values from tensors.

  Args:
    type_spec: An unplaced type; its Python containers are used.

  Returns:
    A function of an iterator over tensors in the order of `leaf_specs`. It
    returns NumPy values, `tf.data.Dataset`s, and structures of these.
  """
  if isinstance(type_spec, tff.StructType):
    parts = [
      compile_restore(element)
      for _, element in tff_names.struct_items(type_spec)
    ]
    pack = compile_pack(type_spec)
    return lambda leaves: pack([part(leaves) for part in parts])
  if isinstance(type_spec, tff.SequenceType):
    element_type = type_spec.element
    return lambda leaves: tff_datasets.dataset_from_variant(
      next(leaves), element_type
    )
  return lambda leaves: next(leaves).numpy()


def compile_pack(type_spec: tff.StructType) -> Callable[[list[Any]], Any]:
  """A function from a struct's elements to the type's Python container."""
  names = [name for name, _ in tff_names.struct_items(type_spec)]
  container = type_spec.python_container
  if container is None:
    container = collections.OrderedDict if any(names) else tuple
  if None in names and any(names):
    # No container of Python's has both; TFF says so better.
    return lambda elements: tff_names.to_container(
      tff_names.Struct(list(zip(names, elements))), type_spec
    )
  if _fields_of(container) is not None:
    return lambda elements: container(**dict(zip(names, elements)))
  if any(names):
    return lambda elements: container(zip(names, elements))
  return container
