"""A cache of datasets' variant tensors, and of batches of constant datasets."""

import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import rows as rows_lib
from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime.engine import values
from tff_adaptive.runtime.graphs import forms

# Called while data are read; may raise an exception to end that.
Check: TypeAlias = Callable[[], None]


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


# Of an eager tensor, beside its values.
_TENSOR_BYTES = 256
_PLAIN = _options(1)
_WITH_OWN_THREADS = _options(None)


@dataclasses.dataclass(frozen=True)
class ClientRows:
  """A client's rows, whose consecutive ones are its batches.

  Attributes:
    components: Eager tensors or arrays [rows, ...], in the order of `tf.nest`.
    begin, end, batch_size: As in `rows_lib.RowBatches`.
  """

  components: Sequence[tf.Tensor | np.ndarray]
  begin: int
  end: int
  batch_size: int


class ClientData:
  """A client's dataset, or the rows of its batches.

  Attributes:
    known_rows: The rows, if they need not be read from the dataset.
    dtype: That of a dataset's tensor.
  """

  dtype = tf.variant

  def __init__(
    self,
    make_dataset: Callable[[], tf.Tensor],
    known_rows: ClientRows | None,
    read_rows: Callable[[Check], ClientRows | None] = lambda check: None,
  ):
    """Builds nothing yet.

    Args:
      make_dataset: Returns the variant tensor of a dataset.
      known_rows: As the attribute.
      read_rows: Reads the rows if they are not known; as the method.
    """
    self.known_rows = known_rows
    self._make_dataset = make_dataset
    self._read_rows = read_rows

  @functools.cached_property
  def dataset(self) -> tf.Tensor:
    """The dataset's variant tensor."""
    return self._make_dataset()

  @functools.cached_property
  def packed(self) -> tf.Tensor:
    """The known rows as packed `forms.Rows`."""
    rows = self.known_rows
    assert rows is not None
    # A huge batch size would overflow where it is added to `begin`.
    most = max(1, rows.end - rows.begin)
    packed = forms.Rows(
      rows.components,
      _number(rows.begin),
      _number(rows.end),
      _number(min(rows.batch_size, most)),
    )
    return packed.pack_from(packed.begin)

  def read_rows(self, check: Check) -> ClientRows | None:
    """Returns the rows of the batches; `None` if they have none of one size.

    Args:
      check: Called between batches; may raise an exception to end reading.
    """
    return self.known_rows or self._read_rows(check)

  @property
  def count(self) -> int:
    """The number of batches; 0 if unknown."""
    rows = self.known_rows
    return -(-(rows.end - rows.begin) // rows.batch_size) if rows else 0


def has_rows(value: tf.Tensor | ClientData | None) -> bool:
  """Returns whether a dataset's rows are known."""
  return isinstance(value, ClientData) and value.known_rows is not None


def dataset_of(value: tf.Tensor | ClientData) -> tf.Tensor:
  """Returns a dataset's variant tensor, given that or a client's data."""
  return value.dataset if isinstance(value, ClientData) else value


def _rows_of_list(flat: Sequence[Sequence[tf.Tensor]]) -> ClientRows | None:
  """Joins batches to rows, if all but the last have the same size."""
  if not all(t.shape.rank for batch in flat for t in batch):
    return None
  # Else they are no batches, but examples of several vectors.
  if any(t.shape[0] != batch[0].shape[0] for batch in flat for t in batch):
    return None
  sizes = [int(batch[0].shape[0]) for batch in flat]
  if 0 in sizes:  # Rows would have no such batch.
    return None
  shapes = {tuple(tuple(t.shape[1:]) for t in batch) for batch in flat}
  if len(set(sizes[:-1])) > 1 or sizes[-1] > sizes[0] or len(shapes) > 1:
    return None
  components = [np.concatenate(parts) for parts in zip(*flat)]
  return ClientRows(components, 0, sum(sizes), sizes[0])


def _read_rows(
  variant: tf.Tensor, element_type: tff.Type, check: Check
) -> ClientRows | None:
  """Reads the batches of a dataset, as a client does, and joins them."""
  cardinality = int(tf.raw_ops.DatasetCardinality(input_dataset=variant))
  if cardinality == tf.data.INFINITE_CARDINALITY:
    return None
  batches = []
  for batch in tff_datasets.flat_dataset(variant, element_type):
    check()
    batches.append(batch)
  if batches:
    return _rows_of_list(batches)
  components = tff_datasets.no_rows(element_type)
  return None if components is None else ClientRows(components, 0, 0, 1)


@dataclasses.dataclass
class _Seen:
  """Cache entry of a dataset object.

  Attributes:
    type_spec: Type of the argument that it was passed for.
    data: Its forms.
    seen_again: Whether it was passed more than once.
  """

  type_spec: tff.SequenceType
  data: ClientData
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
  and yields the same batches each time, these are cached too, as rows that
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
    # Clients' rows, their type and tensors: those of a cohort are often shared.
    self._flat: tuple[Any, Any, Sequence[tf.Tensor] | None] = None, None, None

  def forget_rows(self) -> None:
    """Drops the rows of the last cohort."""
    self._flat = None, None, None

  @property
  def free_bytes(self) -> int:
    """Memory left for batches, in bytes."""
    return self._budget.free

  def variant(
    self, value: values.PythonValue, type_spec: tff.SequenceType
  ) -> tf.Tensor:
    """Converts a dataset or a list of elements to a variant tensor.

    Raises:
      TypeError: If the value is something else, or its elements have another
        type.
    """
    return self._data_of(value, type_spec, keeps=False).dataset

  def _data_of(
    self,
    value: values.PythonValue,
    type_spec: tff.SequenceType,
    keeps: bool = True,
  ) -> ClientData:
    """Converts a dataset, or a list of elements without known batches.

    Args:
      value: The dataset or list.
      type_spec: Its type.
      keeps: Whether to keep the batches of a dataset that is passed again.
    """
    if not isinstance(value, tf.data.Dataset):
      return _of_variant(_make_variant(value, type_spec), type_spec)
    with self._lock:
      entry = self._entries.get(value)
      if entry is None or entry.type_spec != type_spec:
        variant = _make_variant(value, type_spec)
        entry = _Seen(type_spec, _of_variant(variant, type_spec))
        self._entries[value] = entry
      elif keeps and not entry.seen_again:
        entry.seen_again = True
        self._keep_batches(value, entry)
      return entry.data

  def client_data(
    self, value: values.PythonValue, type_spec: tff.SequenceType
  ) -> ClientData:
    """Converts a client's dataset, or its batches.

    Raises:
      TypeError: As `variant`.
    """
    element = type_spec.element
    make_dataset = functools.partial(_make_variant, value, type_spec)
    if isinstance(value, rows_lib.RowBatches):
      rows_before, element_before, flat = self._flat
      if value.rows is not rows_before or element is not element_before:
        flat = tff_datasets.flat_rows(value.rows, element)
        self._flat = value.rows, element, flat
      if flat is not None:
        rows = ClientRows(flat, value.begin, value.end, value.batch_size)
        return ClientData(make_dataset, rows)
      # The type requires equal batch sizes, so each batch must be checked.
      value = list(value)
      make_dataset = functools.partial(_make_variant, value, type_spec)
    if isinstance(value, (list, tuple)) and value:
      batches = tff_datasets.flat_tensors(value, element)
      if batches is not None:
        return ClientData(
          functools.partial(_variant_of_batches, batches),
          _rows_of_list(batches),
        )
    return self._data_of(value, type_spec)

  def _keep_batches(self, dataset: tf.data.Dataset, entry: _Seen) -> None:
    """Caches the dataset's batches if they never change and fit the budget."""
    variant = entry.data.dataset
    specs = values.leaf_specs(entry.type_spec.element)
    if (
      not self.free_bytes
      or any(spec.shape.rank == 0 for spec in specs)
      or not tff_datasets.yields_the_same_each_time(variant)
    ):
      return
    flat = tff_datasets.flat_dataset(variant, entry.type_spec.element)
    batches, size = [], 0
    for batch in flat:
      size += _TENSOR_BYTES * len(batch) + sum(
        t.dtype.size * t.shape.num_elements()
        if t.dtype != tf.string
        else sum(len(s) + 64 for s in t.numpy().flat)
        for t in batch
      )
      if size > self.free_bytes:
        return
      batches.append(list(batch))
    rows = _rows_of_list(batches) if batches else None
    if rows is None:
      return
    entry.data = ClientData(lambda: variant, rows)
    self._budget.take(size)
    weakref.finalize(dataset, self._budget.take, -size)


def _of_variant(variant: tf.Tensor, type_spec: tff.SequenceType) -> ClientData:
  return ClientData(
    lambda: variant,
    None,
    functools.partial(_read_rows, variant, type_spec.element),
  )


def _variant_of_batches(batches: Sequence[Sequence[tf.Tensor]]) -> tf.Tensor:
  each = [tf.data.Dataset.from_tensors(tuple(batch)) for batch in batches]
  whole = functools.reduce(lambda one, other: one.concatenate(other), each)
  return tff_datasets.apply_options(whole, _PLAIN)


@functools.lru_cache(maxsize=4096)
def _number(value: int) -> tf.Tensor:
  with tf.init_scope():
    return tf.constant(value, tf.int32)


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
