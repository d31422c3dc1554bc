"""Batches that are consecutive rows of larger tensors."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class RowBatches(Sequence[Any]):
  """A sequence of a client's batches, sliced from its rows on access.

  The in-process runtime accepts it in place of a list of batches and slices the
  rows in the client's computation, so that passing a client is one call for any
  number of batches.

  Attributes:
    rows: A structure of eager tensors [rows, ...].
    batch_size: Number of rows of a batch; the last batch may have fewer.
  """

  def __init__(self, rows: Any, batch_size: int):
    """Keeps the rows.

    Args:
      rows: A structure of eager tensors [rows, ...], with equally many rows.
      batch_size: Number of rows of a batch, at least 1.
    """
    self.rows = rows
    self.batch_size = batch_size
    self._count = int(tf.nest.flatten(rows)[0].shape[0])

  def __len__(self) -> int:
    return -(-self._count // self.batch_size)

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(len(self)))]
    # Raises `IndexError` out of range, as a list does.
    begin = range(0, self._count, self.batch_size)[index]
    return tf.nest.map_structure(
      lambda tensor: tensor[begin : begin + self.batch_size], self.rows
    )

  def dataset(self) -> tf.data.Dataset:
    """Returns a dataset of the batches."""
    return tf.data.Dataset.from_tensor_slices(self.rows).batch(self.batch_size)
