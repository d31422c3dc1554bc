"""Bytes that are sent, counted by hand for processes whose parts are known."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive.lab.training import traffic as communication

_MODEL = 4 * (helpers.FEATURES * 2 + 2)
# Accuracy and loss are two float32 each, counts of examples and batches int64.
_METRICS = 2 * 4 + 2 * 4 + 8 + 8


def test_federated_averaging():
  process = tff.learning.algorithms.build_weighted_fed_avg(
    helpers.task().model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    server_optimizer_fn=tff.learning.optimizers.build_adam(0.1),
  )
  # Down: the model and the client's learning rate. Up: update, weight, metrics.
  assert communication.of_round(process.next) == communication.Traffic(
    down=_MODEL + 4, up=_MODEL + 4 + _METRICS
  )


def test_sums_that_are_not_aggregated_by_mean():
  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(tff.to_type((np.int32, [3])), tff.CLIENTS),
  )
  def exchange(at_server, at_clients):
    twice = (
      tff.federated_broadcast(at_server),
      tff.federated_broadcast(tff.federated_sum(at_clients)),
    )
    return (
      tff.federated_map(
        tff.tensorflow.computation(lambda x: x[0]), tff.federated_zip(twice)
      ),
      tff.federated_max(at_clients),
    )

  assert communication.of_round(exchange) == communication.Traffic(
    down=4 + 12, up=12 + 12
  )


def test_what_the_server_knows_already_is_not_sent():
  value_type = tff.to_type((np.float32, [3]))

  @tff.tensorflow.computation
  def zero():
    return tf.zeros([50], tf.float32)

  @tff.tensorflow.computation(zero.type_signature.result, value_type)
  def accumulate(total, value):
    return total + tf.reduce_sum(value)

  @tff.tensorflow.computation(
    zero.type_signature.result, zero.type_signature.result
  )
  def merge(a, b):
    return a + b

  @tff.tensorflow.computation(zero.type_signature.result)
  def report(total):
    return total

  @tff.federated_computation(
    tff.FederatedType(value_type, tff.CLIENTS),
    tff.FederatedType(tff.to_type((np.int32, [5])), tff.CLIENTS),
  )
  def aggregate(values, integers):
    return (
      tff.federated_aggregate(values, zero(), accumulate, merge, report),
      tff.federated_secure_sum_bitwidth(integers, 8),
    )

  assert communication.of_round(aggregate) == communication.Traffic(
    down=0, up=12 + 20
  )


@pytest.mark.parametrize(
  'value_type, expected',
  [
    (tff.TensorType(np.float32, [3, 5]), 60),
    (tff.TensorType(np.int64), 8),
    (tff.TensorType(np.bool_, [7]), 7),
    (tff.StructType([('a', np.float32), ('b', [np.float16, np.int32])]), 10),
  ],
)
def test_size_of(value_type, expected):
  assert communication.size_of(tff.to_type(value_type)) == expected


@pytest.mark.parametrize(
  'value_type',
  [
    tff.TensorType(np.float32, [None]),
    tff.TensorType(np.str_),
    tff.SequenceType(np.float32),
  ],
)
def test_size_that_is_not_fixed(value_type):
  with pytest.raises(ValueError, match='no fixed size'):
    communication.size_of(value_type)
