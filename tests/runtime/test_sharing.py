"""Who computes what, by what is known of its size."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import rows as rows_lib
from tff_adaptive.runtime import sharing


def test_the_longest_goes_first_to_where_least_is():
  # 9 against 5 and 4, then 3 to the first of two that have 9, then 1 and 1.
  assert sharing.spread([3, 9, 4, 5, 1, 1], 2) == [0, 0, 1, 1, 1, 1]
  # Of no known size: each counts as one.
  assert sharing.spread([0] * 5, 2) == [0, 1, 0, 1, 0]
  assert sharing.spread([2, 1], 1) == [0, 0]


def test_the_work_of_a_client_is_its_batches():
  batch = tff.TensorType(np.float32, [None])
  type_spec = tff.StructType(
    [
      ('state', tff.FederatedType(np.float32, tff.SERVER)),
      (
        'data',
        tff.FederatedType(
          tff.StructType([('x', tff.SequenceType(batch)), ('y', np.int32)]),
          tff.CLIENTS,
        ),
      ),
    ]
  )
  x = np.zeros(6, np.float32)
  clients = [
    dict(x=[x] * 6, y=0),
    dict(x=rows_lib.RowBatches(tf.constant(x), 6), y=1),
    dict(x=tf.data.Dataset.from_tensor_slices(x).batch(3), y=2),
    # How many it has is not known: it counts as one.
    dict(
      x=tf.data.Dataset.from_tensors(x).repeat(2).filter(lambda _: True), y=3
    ),
    dict(x=[x] * 2, y=4),
  ]
  argument = dict(state=1.5, data=clients)
  work = sharing.client_work(argument, type_spec)
  assert work == [6, 1, 2, 0, 2]
  assert sharing.shares(work, 2) == [[0], [1, 2, 3, 4]]
  assert sharing.shares([], 2) == []
  # Successive clients, so that what is gathered is in the cohort's order.
  assert sharing.shares([1] * 4, 2) == [[0, 1], [2, 3]]
  assert sharing.shares([3, 3], 4) == [[0], [1]]
  assert sharing.client_work(dict(state=1.5, data=[]), type_spec) == []
  two = tff.StructType([type_spec['data'], type_spec['data']])
  with pytest.raises(ValueError, match='number of clients'):
    sharing.client_work((clients, clients[1:]), two)
