"""Which clients count in a round, and how much."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tff_adaptive import algorithms

from . import linear

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.05


NAN_CLIENT = [([float('nan')], [1.0])]
HUGE_CLIENT = [([1e30], [1.0]), ([1.0], [1.0])]


@pytest.mark.parametrize(
  'weighting, client',
  tiers.exhaustive_but(
    [('uniform', 'delta_sgd')],
    itertools.product(['examples', 'uniform'], ['sgd', 'delta_sgd', 'polyak']),
  ),
)
def test_bad_and_empty_clients_are_left_out_and_counted(weighting, client):
  process = algorithms.build(
    'fedadam',
    linear.model_fn,
    client_optimizer=client,
    client_weighting=weighting,
  )
  alone, clean = linear.run(process, 2)
  for bad in (NAN_CLIENT, HUGE_CLIENT):
    weights, metrics = linear.run(process, 2, [*linear.CLIENTS, bad, []])
    np.testing.assert_allclose(weights, alone, rtol=1e-6)
    clients = metrics['client_work']['clients']
    assert clients['count'] == 5
    assert clients['empty'] == 1 and clients['rejected'] == 1
    assert (
      metrics['client_work']['train']['loss']
      == clean['client_work']['train']['loss']
    )
    if client != 'sgd':
      ours, theirs = (m['client_work']['step_size'] for m in (metrics, clean))
      np.testing.assert_allclose(list(ours.values()), list(theirs.values()))


@pytest.mark.exhaustive
def test_a_cohort_without_a_usable_client_changes_nothing():
  process = algorithms.build('fedadam', linear.model_fn)
  before = process.next(process.initialize(), linear.datasets()).state
  for clients in ([NAN_CLIENT, NAN_CLIENT], [[], []]):
    output = process.next(before, linear.datasets(clients))
    assert output.metrics['finalizer']['update_non_finite'] == 1
    after = output.state
    assert linear.weight_of(process, before) == linear.weight_of(process, after)
    tf.nest.map_structure(
      np.testing.assert_array_equal, before.finalizer, after.finalizer
    )


@pytest.mark.exhaustive
def test_the_norm_of_the_update_is_measured():
  process = algorithms.build(
    'fedavg', linear.model_fn, client_learning_rate=RATE
  )
  _, metrics = linear.run(process, 1)
  expected = abs(linear.round_update(linear.START, linear.sgd(RATE)))
  assert metrics['finalizer']['update_norm'] == pytest.approx(
    expected, rel=1e-5
  )


def token_model_fn(metrics):
  spec = collections.OrderedDict(
    x=tf.TensorSpec([None, 2], tf.float32),
    y=tf.TensorSpec([None, 2], tf.float32),
  )
  keras_model = tf.keras.Sequential(
    [
      tf.keras.layers.Dense(
        2, use_bias=False, kernel_initializer='ones', input_shape=(2,)
      )
    ]
  )
  return tff.learning.models.from_keras_model(
    keras_model,
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=spec,
    metrics=metrics,
  )


class _NonZeroLabels(tf.keras.metrics.Sum):
  """Counts labels that are not padding."""

  def __init__(self, name='num_tokens', dtype=tf.float32):
    super().__init__(name, dtype)

  def update_state(self, y_true, y_pred, sample_weight=None):
    counts = tf.cast(tf.not_equal(y_true, 0.0), tf.float32)
    return super().update_state(counts)


def test_weighting_by_tokens():
  """Two clients of one example; one has three times the other's tokens."""

  def client(xs, ys):
    return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=np.float32(xs), y=np.float32(ys))
    ).batch(2)

  data = [
    client([[1.0, 0.0], [0.0, 1.0]], [[5.0, 3.0], [2.0, 0.0]]),
    client([[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]),
  ]
  model_fn = lambda: token_model_fn([_NonZeroLabels])

  processes = {
    weighting: algorithms.build(
      'fedavg', model_fn, client_learning_rate=0.1, client_weighting=weighting
    )
    for weighting in ('examples', 'tokens')
  }

  def update(weighting, datasets):
    process = processes[weighting]
    output = process.next(process.initialize(), datasets)
    return process.get_model_weights(output.state).trainable[0] - 1.0

  alone = [update('examples', [one]) for one in data]
  together = update('tokens', data)
  np.testing.assert_allclose(
    together, (3 * alone[0] + alone[1]) / 4, rtol=1e-5, atol=1e-6
  )
  assert not np.allclose(together, update('examples', data), rtol=1e-2)


def test_weighting_by_tokens_needs_them():
  with pytest.raises(ValueError, match='metric num_tokens'):
    algorithms.build('fedavg', linear.model_fn, client_weighting='tokens')
  with pytest.raises(ValueError, match='ServerStatistics'):
    algorithms.build(
      'mime',
      lambda: token_model_fn([_NonZeroLabels]),
      client_weighting='tokens',
    )
