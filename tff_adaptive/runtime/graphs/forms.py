"""Rows that stand for a dataset argument of a graph; see `graph.py`."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Rows:
  """Tensors whose consecutive rows are batches.

  Attributes:
    components: Tensors [rows, ...].
    begin: Number of rows before the first batch, int32 scalar.
    end: Number of rows before the end of the last batch, int32 scalar.
    batch_size: Number of rows of a batch, int32 scalar; the last batch may have
      fewer.
  """

  components: Sequence[tf.Tensor]
  begin: tf.Tensor
  end: tf.Tensor
  batch_size: tf.Tensor

  @classmethod
  def unpack(cls, packed: tf.Tensor, dtypes: Sequence[tf.DType]) -> 'Rows':
    """Unpacks the result of `pack_from`."""
    types = [*dtypes, tf.int32, tf.int32, tf.int32]
    *components, begin, end, batch_size = tf.raw_ops.OptionalGetValue(
      optional=packed,
      output_types=types,
      output_shapes=[tf.TensorShape(None)] * len(dtypes) + [[], [], []],
    )
    return cls(components, begin, end, batch_size)

  def pack_from(self, begin: tf.Tensor) -> tf.Tensor:
    """Packs all fields into one variant scalar, with another `begin`."""
    return tf.raw_ops.OptionalFromValue(
      components=[*self.components, begin, self.end, self.batch_size]
    )

  def remain(self, begin: tf.Tensor) -> tf.Tensor:
    """Returns whether there are rows from a position on, bool scalar."""
    return begin < self.end

  def batch(self, begin: tf.Tensor) -> list[tf.Tensor]:
    """Slices the batch that begins at a row."""
    end = tf.minimum(begin + self.batch_size, self.end)
    return [rows[begin:end] for rows in self.components]
