"""Forms in which a graph may be given a dataset; `graph.py` says why."""

import dataclasses
import enum
from collections.abc import Sequence

import tensorflow as tf


class Form(enum.Enum):
  """The form in which a graph is given a dataset, as a variant tensor.

  Attributes:
    DATASET: The dataset.
    LIST: A list that starts with "none" and goes on with the batches from last
      to first, each wrapped as an optional.
    ROWS: An optional of all batches' rows, and where the first of them begins;
      see `Rows`.
  """

  DATASET = 'dataset'
  LIST = 'list'
  ROWS = 'rows'


@dataclasses.dataclass(frozen=True)
class Rows:
  """Tensors whose consecutive rows are batches.

  Attributes:
    components: Tensors [rows, ...].
    begin: Rows before the first batch, int32 scalar.
    batch_size: Rows of a batch, int32 scalar; the last batch may have fewer.
  """

  components: Sequence[tf.Tensor]
  begin: tf.Tensor
  batch_size: tf.Tensor

  @classmethod
  def unpack(cls, packed: tf.Tensor, dtypes: Sequence[tf.DType]) -> 'Rows':
    """Reads what `pack_from` packed."""
    types = [*dtypes, tf.int32, tf.int32]
    *components, begin, batch_size = tf.raw_ops.OptionalGetValue(
      optional=packed,
      output_types=types,
      output_shapes=[tf.TensorShape(None)] * len(dtypes) + [[], []],
    )
    return cls(components, begin, batch_size)

  def pack_from(self, begin: tf.Tensor) -> tf.Tensor:
    """Packs them into one tensor, to begin at a row."""
    return tf.raw_ops.OptionalFromValue(
      components=[*self.components, begin, self.batch_size]
    )

  def remain(self, begin: tf.Tensor) -> tf.Tensor:
    """Tells whether there is a batch that begins at a row."""
    return begin < tf.shape(self.components[0])[0]

  def batch(self, begin: tf.Tensor) -> list[tf.Tensor]:
    """Cuts the batch that begins at a row."""
    return [rows[begin : begin + self.batch_size] for rows in self.components]
