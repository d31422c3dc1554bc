"""Implementations of `tff.simulation.datasets.ClientData`.

`ArrayClientData` holds NumPy arrays in memory and a partition over them.
`ListedClientData` adds constant-time access by client to any TFF client data;
TFF's own searches the list of ids at every access, which for Stack Overflow's
342,477 users costs more than reading the user's data.
"""

import collections
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import partition as partition_lib
from tasks.formats import data_files
from tasks.formats import sqlite_files


class ArrayClientData(tff.simulation.datasets.ClientData):
  """Examples in memory, partitioned over clients.

  An element is a dictionary with the arrays' names as keys, in order.

  Attributes:
    arrays: All examples, as arrays by name.
    partition: Example indices per client.
    notes: Sentences about the data that a run logs when it begins.
    classes: Names of classes by label, if known.
    label_unit: Shift and scale from numeric labels to the user's own unit.
    fitted: What was computed from training examples without noise, such as
      means or a vocabulary, each with the flag that avoids it. Private runs are
      refused unless it is empty.
    skewed: Name of the array with feature skew; empty if none.
  """

  def __init__(
    self,
    arrays: Mapping[str, np.ndarray],
    partition: partition_lib.Partition,
    *,
    notes: Sequence[str] = (),
    classes: Sequence[str] = (),
    label_unit: tuple[float, float] = (0.0, 1.0),
    fitted: Sequence[str] = (),
    skewed: str = '',
  ):
    """Takes the examples and their partition.

    Args:
      arrays: Examples as arrays by name, with equal first dimensions.
      partition: Example indices per client.
      notes: Sentences about the data.
      classes: Names of classes by label.
      label_unit: Shift and scale of numeric labels.
      fitted: What was computed from training examples without noise.
      skewed: Name of the array with feature skew.
    """
    self.skewed = skewed
    self.notes = tuple(notes)
    self.classes = tuple(classes)
    self.label_unit = label_unit
    self.fitted = tuple(fitted)
    self.arrays = dict(arrays)
    self.partition = partition
    self._position = {c: i for i, c in enumerate(partition.client_ids)}
    self._ids = list(partition.client_ids)
    self._element_type_structure = {
      name: tf.TensorSpec(array.shape[1:], array.dtype)
      for name, array in self.arrays.items()
    }

  def divided(
    self, client_ids: Sequence[str], indices: Sequence[np.ndarray]
  ) -> 'ArrayClientData':
    """Returns the same examples with other clients.

    Args:
      client_ids: Ids of the clients.
      indices: Their examples.
    """
    return ArrayClientData(
      self.arrays,
      partition_lib.Partition(tuple(client_ids), tuple(indices)),
      notes=self.notes,
      classes=self.classes,
      label_unit=self.label_unit,
      fitted=self.fitted,
      skewed=self.skewed,
    )

  @property
  def client_ids(self) -> list[str]:
    return self._ids

  @property
  def element_type_structure(self) -> Any:
    return self._element_type_structure

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    """Builds the client's examples, in the partition's order.

    Raises:
      ValueError: If there is no such client.
    """
    if client_id not in self._position:
      raise ValueError(_no_client(client_id, self._ids))
    rows = self.partition.indices[self._position[client_id]]
    return tf.data.Dataset.from_tensor_slices(
      {name: array[rows] for name, array in self.arrays.items()}
    )

  @property
  def serializable_dataset_fn(self) -> Callable[[Any], tf.data.Dataset]:
    """A traceable function from a client id to its data set."""

    def create(client_id: Any) -> Any:
      position = tf.argmax(tf.equal(client_id, tf.constant(self._ids)))
      with tf.control_dependencies(
        [
          tf.debugging.assert_equal(
            tf.gather(tf.constant(self._ids), position),
            client_id,
            message='Unknown client.',
          )
        ]
      ):
        position = tf.identity(position)
      ends = np.cumsum(self.partition.sizes)
      begins = ends - self.partition.sizes
      every = tf.constant(np.concatenate(self.partition.indices))
      rows = every[tf.gather(begins, position) : tf.gather(ends, position)]
      return tf.data.Dataset.from_tensor_slices(
        {name: tf.gather(a, rows) for name, a in self.arrays.items()}
      )

    return create

  def create_tf_dataset_from_all_clients(
    self, seed: Optional[int] = None
  ) -> tf.data.Dataset:
    """Concatenates all clients' examples, clients in an order by `seed`."""
    order = np.random.RandomState(seed).permutation(len(self._ids))
    rows = np.concatenate([self.partition.indices[i] for i in order])
    return tf.data.Dataset.from_tensor_slices(
      {name: array[rows] for name, array in self.arrays.items()}
    )


def subset(
  data: tff.simulation.datasets.ClientData, client_ids: Sequence[str]
) -> tff.simulation.datasets.ClientData:
  """Returns the data of some of the clients, in the given order."""
  if isinstance(data, ArrayClientData):
    places = {c: i for i, c in enumerate(data.client_ids)}
    indices = data.partition.indices
    return data.divided(client_ids, [indices[places[c]] for c in client_ids])
  source = getattr(data, 'source', '')
  return ListedClientData(data, client_ids, source=source)


def interleaved(
  data: tff.simulation.datasets.ClientData,
) -> tf.data.Dataset:
  """Interleaves clients' examples one by one, up to 64 clients at a time.

  The first examples then come from many clients.
  """
  if isinstance(data, ArrayClientData):
    indices = data.partition.indices
    turns = np.concatenate([np.arange(len(rows)) for rows in indices])
    rows = np.concatenate(indices)[np.argsort(turns, kind='stable')]
    return tf.data.Dataset.from_tensor_slices(
      {name: array[rows] for name, array in data.arrays.items()}
    )
  ids = tf.data.Dataset.from_tensor_slices(list(data.client_ids))
  return ids.interleave(data.serializable_dataset_fn, cycle_length=64)


def example_counts(
  data: tff.simulation.datasets.ClientData,
) -> Mapping[str, int]:
  """Returns clients' numbers of examples, as far as known without reading."""
  if isinstance(data, ArrayClientData):
    sizes = data.partition.sizes
    return dict(zip(data.client_ids, sizes.tolist(), strict=True))
  counts: Callable[[], Mapping[str, int]] = getattr(data, 'counts', dict)
  return counts()


class ListedClientData(tff.simulation.datasets.ClientData):
  """Another `ClientData` with constant-time access to clients.

  Attributes:
    source: File or folder of the data, for messages.
    stacked: Reads all examples of a client at once, given its id, and returns a
      dictionary of tensors [examples, ...]; None if they can only be read one
      by one.
  """

  def __init__(
    self,
    inner: tff.simulation.datasets.ClientData,
    client_ids: Optional[Sequence[str]] = None,
    *,
    source: str = '',
    num_classes: Optional[int] = None,
    counts: Optional[Callable[[], Mapping[str, int]]] = None,
  ):
    """Wraps a `ClientData`.

    Args:
      inner: The wrapped client data.
      client_ids: Ids of the clients to use; None for all.
      source: File or folder of the data.
      num_classes: If given, reading a label out of this range is an error.
      counts: Returns the number of examples by client id; by default that of
        `inner`, if known.
    """
    self._inner = inner
    self.counts = counts or functools.partial(example_counts, inner)
    self.source = source
    self.stacked: Optional[Callable[[str], Mapping[str, tf.Tensor]]] = getattr(
      inner, 'stacked', None
    )
    self._num_classes = num_classes
    self._ids = list(client_ids) if client_ids else inner.client_ids
    self._known = frozenset(self._ids)

  @property
  def client_ids(self) -> list[str]:
    return self._ids

  @property
  def serializable_dataset_fn(self) -> Callable[[Any], tf.data.Dataset]:
    read, num_classes = self._inner.serializable_dataset_fn, self._num_classes
    if num_classes is None:
      return read
    return lambda client_id: check_labels(
      read(client_id),
      num_classes,
      tf.strings.join(['client ', client_id, ' of ', self.source]),
    )

  @property
  def element_type_structure(self) -> Any:
    return self._inner.element_type_structure

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    """Builds the client's examples.

    Raises:
      ValueError: If there is no such client.
    """
    if client_id not in self._known:
      raise ValueError(_no_client(client_id, self._ids))
    return self.serializable_dataset_fn(client_id)


class SqliteClientData(ListedClientData):
  """One of TFF's SQLite data sets, with access to whole clients.

  TFF reads and parses one example after another, which takes 0.1 ms an example
  of EMNIST. `stacked` reads and parses a client's examples at once, in a tenth
  of the time.
  """

  def __init__(
    self,
    inner: tff.simulation.datasets.ClientData,
    path: pathlib.Path,
    split: str,
    *,
    client_ids: Optional[Sequence[str]] = None,
    num_classes: Optional[int] = None,
  ):
    """Wraps a split as TFF's loader returns it.

    Args:
      inner: The split.
      path: Its file.
      split: Its name in the file.
      client_ids: Ids of the clients to use; None for all.
      num_classes: If given, reading a label out of this range is an error.
    """
    super().__init__(
      inner,
      client_ids,
      source=str(path),
      num_classes=num_classes,
      counts=functools.partial(sqlite_files.example_counts, path, split),
    )
    self._split = split
    self._path = path
    self._parse = _parser(self.element_type_structure)
    self.stacked = self._read

  def _read(self, client_id: str) -> Mapping[str, tf.Tensor]:
    examples = sqlite_files.examples(self._path, self._split, client_id)
    stacked = self._parse(tf.constant(examples, tf.string))
    if self._num_classes is not None:
      labels = stacked['label'].numpy()
      wrong = np.flatnonzero((labels < 0) | (labels >= self._num_classes))
      if wrong.size:
        raise data_files.DataError(
          f'client {client_id} of {self.source}, example {wrong[0]}'
          f'{_expected(self._num_classes)}{labels[wrong[0]]}'
        )
    return stacked


def _parser(
  element: Mapping[str, tf.TensorSpec],
) -> Callable[[tf.Tensor], Mapping[str, tf.Tensor]]:
  """Builds a function from serialized `tf.train.Example`s to stacked tensors.

  Args:
    element: Names, shapes and dtypes of an example's features. In a
      `tf.train.Example` all integers are int64.
  """
  features = {
    name: tf.io.FixedLenFeature(
      spec.shape, tf.int64 if spec.dtype.is_integer else spec.dtype
    )
    for name, spec in element.items()
  }

  def parse(examples: tf.Tensor) -> Mapping[str, tf.Tensor]:
    parsed = tf.io.parse_example(examples, features)
    return collections.OrderedDict(
      (name, tf.cast(parsed[name], spec.dtype))
      for name, spec in element.items()
    )

  return parse


def check_labels(
  dataset: tf.data.Dataset, num_classes: int, where: Any
) -> tf.data.Dataset:
  """Returns a data set that raises an error on labels out of range.

  Args:
    dataset: Examples, dictionaries with `label`.
    num_classes: Upper bound of labels, exclusive.
    where: Description of the data's place for the error, a string tensor.
  """

  def check(index: int, example: Any) -> Any:
    label = example['label']
    message = tf.strings.join(
      [
        where,
        ', example ',
        tf.strings.as_string(index),
        _expected(num_classes),
        tf.strings.as_string(label),
      ]
    )
    fits = tf.logical_and(label >= 0, label < num_classes)
    with tf.control_dependencies([tf.debugging.Assert(fits, [message])]):
      example = example.copy()
      example['label'] = tf.identity(label)
    return example

  return dataset.enumerate().map(check)


def _expected(num_classes: int) -> str:
  return f': a label from 0 to {num_classes - 1} was expected, got '


def _no_client(client_id: str, client_ids: list[str]) -> str:
  return (
    f'There is no client {client_id!r}; there are {len(client_ids)}, such as '
    f'{client_ids[0]!r}.'
  )
