"""Federated data sets for tasks, as `tff.simulation.datasets.ClientData`.

`ArrayClientData` holds NumPy arrays in memory and a partition over them.
`ListedClientData` gives any TFF client data constant-time access to a client;
TFF's own looks through the whole list of ids at every access, which for Stack
Overflow's 342,477 users costs more than reading the user's data.
"""

import functools
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import partition as partition_lib


class ArrayClientData(tff.simulation.datasets.ClientData):
  """Examples in memory, partitioned over clients.

  An element is a dictionary with the arrays' names, in their order.

  Attributes:
    notes: Sentences about the data that a run says when it begins.
    classes: Words for labels, by label, where the data have them.
    skewed: Name of the array that was transformed for each client in another
      way; empty where none was.
  """

  def __init__(
    self,
    arrays: Mapping[str, np.ndarray],
    partition: partition_lib.Partition,
    *,
    notes: Sequence[str] = (),
    classes: Sequence[str] = (),
    skewed: str = '',
  ):
    """Takes examples.

    Args:
      arrays: They agree in their first dimension.
      partition: Who has which.
      notes: Sentences about the data.
      classes: Words for labels, by label.
      skewed: Name of the array with feature skew.
    """
    self.skewed = skewed
    self.notes = tuple(notes)
    self.classes = tuple(classes)
    self._arrays = dict(arrays)
    self._partition = partition
    self._position = {c: i for i, c in enumerate(partition.client_ids)}
    self._ids = list(partition.client_ids)
    self._element_type_structure = {
      name: tf.TensorSpec(array.shape[1:], array.dtype)
      for name, array in self._arrays.items()
    }

  @property
  def client_ids(self) -> list[str]:
    return self._ids

  @property
  def partition(self) -> partition_lib.Partition:
    """Which examples belong to which client."""
    return self._partition

  @property
  def arrays(self) -> Mapping[str, np.ndarray]:
    """All examples, by name of the component."""
    return self._arrays

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
    rows = self._partition.indices[self._position[client_id]]
    return tf.data.Dataset.from_tensor_slices(
      {name: array[rows] for name, array in self._arrays.items()}
    )

  @property
  def serializable_dataset_fn(self) -> Callable[[Any], tf.data.Dataset]:
    """A traceable function from an id to a data set; all data in its graph."""

    def create(client_id: Any) -> Any:
      position = tf.argmax(tf.equal(client_id, tf.constant(self._ids)))
      with tf.control_dependencies(
        [
          tf.debugging.assert_equal(
            tf.gather(tf.constant(self._ids), position),
            client_id,
            message='There is no such client.',
          )
        ]
      ):
        position = tf.identity(position)
      ends = np.cumsum(self._partition.sizes)
      begins = ends - self._partition.sizes
      every = tf.constant(np.concatenate(self._partition.indices))
      rows = every[tf.gather(begins, position) : tf.gather(ends, position)]
      return tf.data.Dataset.from_tensor_slices(
        {name: tf.gather(a, rows) for name, a in self._arrays.items()}
      )

    return create

  def create_tf_dataset_from_all_clients(
    self, seed: Optional[int] = None
  ) -> tf.data.Dataset:
    """Chains all examples, client after client, in an order by `seed`."""
    order = np.random.RandomState(seed).permutation(len(self._ids))
    rows = np.concatenate([self._partition.indices[i] for i in order])
    return tf.data.Dataset.from_tensor_slices(
      {name: array[rows] for name, array in self._arrays.items()}
    )


def subset(
  data: tff.simulation.datasets.ClientData, client_ids: Sequence[str]
) -> tff.simulation.datasets.ClientData:
  """Returns the data of some of the clients, in the order given."""
  if isinstance(data, ArrayClientData):
    places = {c: i for i, c in enumerate(data.client_ids)}
    indices = data.partition.indices
    part = partition_lib.Partition(
      tuple(client_ids), tuple(indices[places[c]] for c in client_ids)
    )
    return ArrayClientData(
      data.arrays,
      part,
      notes=data.notes,
      classes=data.classes,
      skewed=data.skewed,
    )
  source = getattr(data, 'source', '')
  return ListedClientData(data, client_ids, source=source)


def interleaved(
  data: tff.simulation.datasets.ClientData,
) -> tf.data.Dataset:
  """Chains clients' examples, one of each in turn, up to 64 at a time.

  So that the first examples are not those of the first few clients.
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
  """Returns how many examples clients have, where that is known unread."""
  if isinstance(data, ArrayClientData):
    sizes = data.partition.sizes
    return dict(zip(data.client_ids, sizes.tolist(), strict=True))
  counts: Callable[[], Mapping[str, int]] = getattr(data, 'counts', dict)
  return counts()


class ListedClientData(tff.simulation.datasets.ClientData):
  """The clients and data of another `ClientData`, found in constant time.

  Attributes:
    source: The file or folder that the data come from, for messages.
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
    """Takes the other one.

    Args:
      inner: The other one.
      client_ids: Which of its clients; None for all.
      source: The file or folder that it reads.
      num_classes: If given, a label out of this range is an error, once it is
        read.
      counts: Returns how many examples each client has; nobody knows unless
        given.
    """
    self._inner = inner
    self.counts = counts or functools.partial(example_counts, inner)
    self.source = source
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


class MappedClientData(tff.simulation.datasets.ClientData):
  """The same clients as another `ClientData`, with a part of their examples.

  Attributes:
    source: The file or folder that the data come from, for messages.
  """

  def __init__(
    self,
    inner: tff.simulation.datasets.ClientData,
    part: Callable[[tf.data.Dataset], tf.data.Dataset],
  ):
    """Takes the other one, and what makes the part of a client's examples."""
    self._inner = inner
    self._part = part
    self.counts = functools.partial(example_counts, inner)
    self.source = getattr(inner, 'source', '')

  @property
  def client_ids(self) -> list[str]:
    return self._inner.client_ids

  @property
  def serializable_dataset_fn(self) -> Callable[[Any], tf.data.Dataset]:
    read, part = self._inner.serializable_dataset_fn, self._part
    return lambda client_id: part(read(client_id))

  @property
  def element_type_structure(self) -> Any:
    return self._inner.element_type_structure

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    """Builds the part of the client's examples."""
    return self._part(self._inner.create_tf_dataset_for_client(client_id))


def check_labels(
  dataset: tf.data.Dataset, num_classes: int, where: Any
) -> tf.data.Dataset:
  """Passes examples on; raises when one with a label out of range is read.

  Args:
    dataset: Examples, dictionaries with `label`.
    num_classes: Labels are from 0 to below this.
    where: What the message says of the data set's place, a string tensor.
  """

  def check(index: int, example: Any) -> Any:
    label = example['label']
    message = tf.strings.join(
      [
        where,
        ', example ',
        tf.strings.as_string(index),
        f': a label from 0 to {num_classes - 1} was expected, got ',
        tf.strings.as_string(label),
      ]
    )
    fits = tf.logical_and(label >= 0, label < num_classes)
    with tf.control_dependencies([tf.debugging.Assert(fits, [message])]):
      example = example.copy()
      example['label'] = tf.identity(label)
    return example

  return dataset.enumerate().map(check)


def _no_client(client_id: str, client_ids: list[str]) -> str:
  return (
    f'There is no client {client_id!r}; there are {len(client_ids)}, such as '
    f'{client_ids[0]!r}.'
  )
