"""Aggregation factories: sums of compressed updates, and trimmed means."""

import dataclasses

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.processes import encodings


@dataclasses.dataclass(eq=False, repr=False)
class EncodedSum(tff.aggregators.UnweightedAggregationFactory):
  """A sum of values that clients send compressed."""

  _encoding: encodings.Encoding

  def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    flat = tf.nest.flatten(specs)
    size = sum(s.shape.num_elements() for s in flat)

    @tff.tensorflow.computation(value_type)
    def encode(value: structures.Structure) -> encodings.Encoded:
      return self._encoding.encode(encodings.joined(tf.nest.flatten(value)))

    @tff.tensorflow.computation
    def zero() -> tf.Tensor:
      return encodings.joined([tf.zeros(s.shape, s.dtype) for s in flat])

    total_type = zero.type_signature.result

    @tff.tensorflow.computation(total_type, encode.type_signature.result)
    def accumulate(total: tf.Tensor, encoded: encodings.Encoded) -> tf.Tensor:
      return total + self._encoding.decode(encoded, size)

    @tff.tensorflow.computation(total_type, total_type)
    def merge(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
      return one + other

    @tff.tensorflow.computation(total_type)
    def report(total: tf.Tensor) -> structures.Structure:
      return tf.nest.pack_sequence_as(specs, encodings.split(total, flat))

    @tff.federated_computation
    def initialize() -> structures.Placed:
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(
      state: structures.Placed, value: structures.Placed
    ) -> tff.templates.MeasuredProcessOutput:
      encoded = tff.federated_map(encode, value)
      total = tff.federated_aggregate(
        encoded, zero(), accumulate, merge, report
      )
      return tff.templates.MeasuredProcessOutput(
        state, total, tff.federated_value((), tff.SERVER)
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


@dataclasses.dataclass(eq=False, repr=False)
class TrimmedMean(tff.aggregators.WeightedAggregationFactory):
  """The coordinate-wise trimmed mean or median: Yin et al., arXiv 1803.01498.

  With n values, the k = floor(beta n) smallest and the k largest of each
  coordinate are left out, and the others averaged (Definition 2). With
  beta = 1/2, or a beta that would leave nothing, the middle value remains, or
  the mean of the two in the middle: the median (Definition 1).

  All clients count alike, since a hostile client may report any weight; those
  of weight 0 are left out. Without clients the result is NaN, as that of
  `tff.aggregators.MeanFactory`.

  The server holds the cohort's values at the same time: n d numbers.

  Attributes:
    _beta: Share of the values trimmed at each end, in (0, 1/2].
  """

  _beta: float

  def create(
    self, value_type: tff.Type, weight_type: tff.Type
  ) -> tff.templates.AggregationProcess:
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    flat = tf.nest.flatten(specs)

    @tff.tensorflow.computation(value_type, weight_type)
    def row(value: structures.Structure, weight: tf.Tensor) -> tf.Tensor:
      return encodings.joined([weight, *tf.nest.flatten(value)])

    @tff.tensorflow.computation(
      tff.TensorType(
        row.type_signature.result.dtype,
        [None, *row.type_signature.result.shape],
      )
    )
    def trimmed(rows: tf.Tensor) -> structures.Structure:
      values = tf.sort(tf.boolean_mask(rows[:, 1:], rows[:, 0] > 0), axis=0)
      count = tf.shape(values)[0]
      # 0.29 * 100 is 28.999999999999996.
      cut = tf.cast(self._beta * tf.cast(count, tf.float64) + 1e-9, tf.int32)
      cut = tf.maximum(tf.minimum(cut, (count - 1) // 2), 0)
      mean = tf.reduce_mean(values[cut : count - cut], axis=0)
      return tf.nest.pack_sequence_as(specs, encodings.split(mean, flat))

    @tff.federated_computation
    def initialize() -> structures.Placed:
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(
      state: structures.Placed,
      value: structures.Placed,
      weight: structures.Placed,
    ) -> tff.templates.MeasuredProcessOutput:
      rows = collect(tff.federated_map(row, (value, weight)))
      return tff.templates.MeasuredProcessOutput(
        state,
        tff.federated_map(trimmed, rows),
        tff.federated_value((), tff.SERVER),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def collect(vectors: structures.Placed) -> structures.Placed:
  """Gathers clients' vectors at the server, as [clients, length].

  Called inside a federated computation. Rows are in the cohort's order, in
  which the runtimes aggregate clients.

  Args:
    vectors: Vectors of one length, at clients.
  """
  row_type = vectors.type_signature.member
  rows_type = tff.TensorType(row_type.dtype, [None, *row_type.shape])

  @tff.tensorflow.computation
  def none() -> tf.Tensor:
    return tf.zeros([0, *row_type.shape], row_type.dtype)

  @tff.tensorflow.computation(rows_type, row_type)
  def add_row(rows: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    return tf.concat([rows, row[tf.newaxis]], axis=0)

  @tff.tensorflow.computation(rows_type, rows_type)
  def merge(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    return tf.concat([first, second], axis=0)

  @tff.tensorflow.computation(rows_type)
  def report(rows: tf.Tensor) -> tf.Tensor:
    return rows

  return tff.federated_aggregate(vectors, none(), add_row, merge, report)
