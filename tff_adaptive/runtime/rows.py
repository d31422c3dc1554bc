"""Batches that are consecutive rows of larger tensors."""

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow as tf

# Where the rows are, and their batches are taken from them.
_HOST = '/device:CPU:0'


class RowBatches(Sequence[Any]):
  """A sequence of a client's batches, sliced from its rows on access.

  The in-process runtime accepts it in place of a list of batches and slices the
  rows in the client's computation, so that passing a client is one call for any
  number of batches.

  Attributes:
    rows: A structure of eager tensors [rows, ...]; may hold other clients' rows
      too.
    batch_size: Number of rows of a batch; the last batch may have fewer.
    begin: The client's first row.
    end: The row after its last.
  """

  def __init__(
    self,
    rows: Any,
    batch_size: int,
    begin: int = 0,
    end: Optional[int] = None,
  ):
    """Keeps the rows.

    Args:
      rows: A structure of eager tensors [rows, ...], with equally many rows.
      batch_size: Number of rows of a batch, at least 1.
      begin: The client's first row.
      end: The row after its last; by default the number of rows.
    """
    self.rows = rows
    self.batch_size = batch_size
    self.begin = begin
    self.end = int(tf.nest.flatten(rows)[0].shape[0]) if end is None else end

  def own_rows(self) -> Any:
    """Returns the client's rows, a structure of eager tensors."""
    return self._slice(self.begin, self.end)

  def _slice(self, begin: int, end: int) -> Any:
    # Where there is a GPU, slices would be taken there, from a copy of the rows
    # of all clients; in several threads at once, some were of other tensors.
    with tf.device(_HOST):
      return tf.nest.map_structure(lambda tensor: tensor[begin:end], self.rows)

  def __len__(self) -> int:
    return -(-(self.end - self.begin) // self.batch_size)

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(len(self)))]
    # Raises `IndexError` out of range, as a list does.
    begin = range(self.begin, self.end, self.batch_size)[index]
    return self._slice(begin, min(begin + self.batch_size, self.end))

  def dataset(self) -> tf.data.Dataset:
    """Returns a dataset of the batches."""
    with tf.device(_HOST):
      return tf.data.Dataset.from_tensor_slices(self.own_rows()).batch(
        self.batch_size
      )
