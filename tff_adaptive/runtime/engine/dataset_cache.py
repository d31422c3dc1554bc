"""A cache of datasets' variant tensors, and of batches of constant datasets."""

import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import rows as rows_lib
from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime.engine import values
from tff_adaptive.runtime.graphs import forms

# Attributes of a variant tensor: its stand-in (form and batches), the number of
# batches, a function that builds the dataset if the tensor is a stand-in, and a
# function that returns the rows.
_STAND_IN = 'tff_adaptive_stand_in'
_COUNT = 'tff_adaptive_batch_count'
_MAKE_DATASET = 'tff_adaptive_make_dataset'
_ROWS = 'tff_adaptive_rows'


def _options(private_threads: int | None) -> bytes:
  """Builds tf.data options that reduce the start-up cost of iterators.

  By default each iterator starts an autotuning thread and optimizes its graph.
  For a client's few batches both cost several times the batches themselves, and
  clients run in parallel anyway. Neither changes a dataset's elements.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  if private_threads is not None:
    options.threading.private_threadpool_size = private_threads
  return tff_datasets.serialize_options(options)


_PLAIN = _options(1)
_WITH_OWN_THREADS = _options(None)


def form_of(variant: tf.Tensor | None) -> forms.Form:
  """Returns the form of a dataset's cached batches."""
  return _stand_in(variant)[0]


def batches_of(variant: tf.Tensor) -> tf.Tensor:
  """Returns a dataset's batches in the form `form_of`."""
  return _stand_in(variant)[1]


def _stand_in(variant: tf.Tensor | None) -> tuple[forms.Form, tf.Tensor]:
  return _noted(variant, _STAND_IN, (forms.Form.DATASET, variant))


def _noted(variant: tf.Tensor | None, name: str, otherwise: Any) -> Any:
  """Returns an attribute of a tensor, or a default."""
  # `getattr` would search the tensor's class twice for a missing attribute.
  return otherwise if variant is None else vars(variant).get(name, otherwise)


def batch_count(variant: tf.Tensor | None) -> int:
  """Returns the number of cached batches."""
  return _noted(variant, _COUNT, 0)


@dataclasses.dataclass(frozen=True)
class ClientRows:
  """A client's rows, whose consecutive ones are its batches.

  Attributes:
    components: Eager tensors [rows, ...], in the order of `tf.nest`.
    begin, end, batch_size: As in `rows.RowBatches`.
  """

  components: Sequence[tf.Tensor]
  begin: int
  end: int
  batch_size: int


def rows_of(variant: tf.Tensor) -> ClientRows | None:
  """Returns a client's batches as rows, or `None` if they are not known."""
  make = _noted(variant, _ROWS, None)
  return None if make is None else make()


def _rows_of_list(flat: Sequence[Sequence[tf.Tensor]]) -> ClientRows | None:
  """Joins batches to rows, if all but the last have the same size."""
  sizes = [int(batch[0].shape[0]) for batch in flat]
  shapes = {tuple(tuple(t.shape[1:]) for t in batch) for batch in flat}
  if len(set(sizes[:-1])) > 1 or sizes[-1] > sizes[0] or len(shapes) > 1:
    return None
  components = [tf.concat(parts, axis=0) for parts in zip(*flat)]
  return ClientRows(components, 0, sum(sizes), sizes[0])


def _client_rows(
  value: rows_lib.RowBatches, element_type: tff.Type
) -> ClientRows | None:
  flat = tff_datasets.flat_rows(value.rows, element_type)
  if flat is None:
    return None
  return ClientRows(flat, value.begin, value.end, value.batch_size)


def _read_rows(variant: tf.Tensor, element_type: tff.Type) -> ClientRows | None:
  """Reads the batches of a dataset, as a client does, and joins them."""
  batches = list(tff_datasets.flat_dataset(variant, element_type))
  if batches:
    return _rows_of_list(batches)
  components = tff_datasets.no_rows(element_type)
  return None if components is None else ClientRows(components, 0, 0, 1)


def dataset_of(variant: tf.Tensor) -> tf.Tensor:
  """Returns the dataset of a result of `client_variant`, a variant tensor."""
  make = _noted(variant, _MAKE_DATASET, None)
  return variant if make is None else make()


@dataclasses.dataclass
class _Seen:
  """Cache entry of a dataset object.

  Attributes:
    type_spec: Type of the argument that it was passed for.
    variant: Its variant tensor.
    seen_again: Whether it was passed more than once.
  """

  type_spec: tff.SequenceType
  variant: tf.Tensor
  seen_again: bool = False


class _FreeBytes:
  """A budget of bytes.

  An object of its own, so that finalizers do not keep the cache alive.
  """

  def __init__(self, free: int):
    self.free = free

  def take(self, size: int) -> None:
    """Takes bytes from the budget; returns them to it if `size` is negative."""
    self.free -= size


class DatasetCache:
  """A cache of the variant tensors of live dataset objects.

  The same dataset object is often passed in many rounds. If it is passed again
  and yields the same batches each time, these are cached too, as a list that
  graphs read at a fraction of an iterator's cost (see `graphs/graph.py`).
  """

  def __init__(self, max_bytes: int):
    """Creates an empty cache.

    Args:
      max_bytes: Memory for batches in bytes; 0 caches none.
    """
    self._entries: weakref.WeakKeyDictionary[tf.data.Dataset, _Seen] = (
      weakref.WeakKeyDictionary()
    )
    self._budget = _FreeBytes(max_bytes)
    self._lock = threading.Lock()

  @property
  def free_bytes(self) -> int:
    """Memory left for batches, in bytes."""
    return self._budget.free

  def variant(
    self, value: values.PythonValue, type_spec: tff.SequenceType
  ) -> tf.Tensor:
    """Converts a dataset or a list of elements to a variant tensor.

    `batches_of` returns the dataset's batches if they are cached.

    Raises:
      TypeError: If the value is something else, or its elements have another
        type.
    """
    if not isinstance(value, tf.data.Dataset):
      return _make_variant(value, type_spec)
    with self._lock:
      entry = self._entries.get(value)
      if entry is None or entry.type_spec != type_spec:
        entry = _Seen(type_spec, _make_variant(value, type_spec))
        self._entries[value] = entry
      elif not entry.seen_again:
        entry.seen_again = True
        self._keep_batches(value, entry)
      return entry.variant

  def client_variant(
    self, value: values.PythonValue, type_spec: tff.SequenceType
  ) -> tf.Tensor:
    """Converts a client's dataset, or its batches, to a variant tensor.

    As `variant`, except that batches of eager tensors become a stand-in,
    returned by `batches_of`; only `dataset_of` builds a dataset of them, for
    graphs that need one.
    """
    found = None
    rows: Callable[[], ClientRows | None] | None = None
    if isinstance(value, rows_lib.RowBatches):
      found = _rows_of(value, type_spec.element)
      if found is not None:
        rows = functools.partial(_client_rows, value, type_spec.element)
      if found is None:
        # The type requires equal batch sizes, so each batch must be checked.
        value = list(value)
    if found is None and isinstance(value, (list, tuple)) and value:
      flat = tff_datasets.flat_tensors(value, type_spec.element)
      if flat is not None:
        found = forms.Form.LIST, _list_of_batches(flat)
        rows = functools.cache(functools.partial(_rows_of_list, flat))
    if found is None:
      variant = self.variant(value, type_spec)
      if _ROWS not in vars(variant):
        read = functools.partial(_read_rows, variant, type_spec.element)
        setattr(variant, _ROWS, read)
      return variant
    form, batches = found
    make = functools.cache(lambda: _make_variant(value, type_spec))
    setattr(batches, _STAND_IN, (form, batches))
    setattr(batches, _COUNT, len(value))
    setattr(batches, _MAKE_DATASET, make)
    setattr(batches, _ROWS, rows)
    return batches

  def _keep_batches(self, dataset: tf.data.Dataset, entry: _Seen) -> None:
    """Caches the dataset's batches if they never change and fit the budget."""
    if not self.free_bytes or not tff_datasets.yields_the_same_each_time(
      entry.variant
    ):
      return
    flat = tff_datasets.flat_dataset(entry.variant, entry.type_spec.element)
    batches, size = [], 0
    for batch in flat:
      size += sum(
        t.dtype.size * t.shape.num_elements()
        if t.dtype != tf.string
        else sum(len(s) + 64 for s in t.numpy().flat)
        for t in batch
      )
      if size > self.free_bytes:
        return
      batches.append(list(batch))
    stand_in = forms.Form.LIST, _list_of_batches(batches)
    setattr(entry.variant, _STAND_IN, stand_in)
    setattr(entry.variant, _COUNT, len(batches))
    if batches:
      rows = functools.cache(functools.partial(_rows_of_list, batches))
      setattr(entry.variant, _ROWS, rows)
    self._budget.take(size)
    weakref.finalize(dataset, self._budget.take, -size)


_Found: TypeAlias = tuple[forms.Form, tf.Tensor] | None


def _rows_of(batches: rows_lib.RowBatches, element_type: tff.Type) -> _Found:
  """Packs rows; returns `None` if their batches have another type."""
  flat = tff_datasets.flat_rows(batches.rows, element_type)
  if flat is None:
    return None
  rows = forms.Rows(
    flat,
    _number(batches.begin),
    _number(batches.end),
    _number(batches.batch_size),
  )
  return forms.Form.ROWS, rows.pack_from(rows.begin)


@functools.lru_cache(maxsize=4096)
def _number(value: int) -> tf.Tensor:
  with tf.init_scope():
    return tf.constant(value, tf.int32)


def _list_of_batches(flat: Sequence[Sequence[tf.Tensor]]) -> tf.Tensor:
  return _list_of(
    [tf.raw_ops.OptionalFromValue(components=batch) for batch in flat]
  )


def _list_of(optionals: list[tf.Tensor]) -> tf.Tensor:
  return tf.raw_ops.TensorListFromTensor(
    tensor=tf.stack([tf.raw_ops.OptionalNone(), *reversed(optionals)]),
    element_shape=tf.constant([], tf.int32),
  )


def _make_variant(
  value: values.PythonValue, type_spec: tff.SequenceType
) -> tf.Tensor:
  if isinstance(value, rows_lib.RowBatches):
    value = value.dataset()
  elif isinstance(value, (list, tuple)):
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
