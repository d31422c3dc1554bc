"""Batches that are consecutive rows of larger tensors."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class RowBatches(Sequence[Any]):
  """A client's batches, cut from its rows when asked for.

  The in-process runtime takes it wherever a client's data may be a list of
  batches, and cuts the rows in the client's own computation: handing a client
  over is then one call, however many batches it has.

  Attributes:
    rows: A structure of eager tensors [rows, ...].
    batch_size: Rows of a batch; the last batch may have fewer.
  """

  def __init__(self, rows: Any, batch_size: int):
    """Keeps the rows.

    Args:
      rows: A structure of eager tensors [rows, ...], with as many rows each.
      batch_size: Rows of a batch, at least 1.
    """
    self.rows = rows
    self.batch_size = batch_size
    self._count = int(tf.nest.flatten(rows)[0].shape[0])

  def __len__(self) -> int:
    return -(-self._count // self.batch_size)

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(len(self)))]
    # As for a list: refuses what is out of range.
    begin = range(0, self._count, self.batch_size)[index]
    return tf.nest.map_structure(
      lambda tensor: tensor[begin : begin + self.batch_size], self.rows
    )

  def dataset(self) -> tf.data.Dataset:
    """Returns a dataset of the batches."""
    return tf.data.Dataset.from_tensor_slices(self.rows).batch(self.batch_size)
