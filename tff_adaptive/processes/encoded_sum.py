"""Aggregation of compressed updates."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.processes import encodings


class EncodedSum(tff.aggregators.UnweightedAggregationFactory):
  """A sum of values that clients send compressed."""

  def __init__(self, encoding: encodings.Encoding):
    self._encoding = encoding

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
