"""Dropout inside a round is a function of where it stands, not of who ran."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import local_model

pytestmark = pytest.mark.usefixtures('in_process_context')

SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 6], tf.float32), y=tf.TensorSpec([None, 1], tf.float32)
)


def model_fn():
  keras_model = tf.keras.Sequential(
    [
      tf.keras.layers.Dropout(0.5, input_shape=(6,)),
      tf.keras.layers.Dense(4, kernel_initializer='ones', activation='tanh'),
      tf.keras.layers.Dropout(0.5),
      tf.keras.layers.Dense(1, kernel_initializer='ones'),
    ]
  )
  return tff.learning.models.from_keras_model(
    keras_model, loss=tf.keras.losses.MeanSquaredError(), input_spec=SPEC
  )


def datasets(order=(0, 1, 2)):
  made = []
  for client in order:
    numbers = np.random.RandomState(client)
    made.append(
      tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
          x=numbers.randn(9, 6).astype(np.float32),
          y=numbers.randn(9, 1).astype(np.float32),
        )
      ).batch(3)
    )
  return made


def weights_after(process, rounds=1, order=(0, 1, 2)):
  state = process.initialize()
  for _ in range(rounds):
    state = process.next(state, datasets(order)).state
  return np.concatenate(
    [np.ravel(w) for w in process.get_model_weights(state).trainable]
  )


@pytest.fixture(name='process', scope='module')
def _process():
  return algorithms.build('fedavg', model_fn, seed=3)


def test_a_round_repeats_whatever_the_order_of_clients(process):
  first = weights_after(process, 2)
  np.testing.assert_array_equal(weights_after(process, 2), first)
  np.testing.assert_allclose(
    weights_after(process, 2, (2, 0, 1)), first, rtol=1e-5, atol=1e-6
  )


@pytest.mark.exhaustive
def test_dropout_is_on_and_rounds_differ():
  """Clients without learning rate keep the weights: only the masks change."""
  process = algorithms.build(
    'fedavg', model_fn, client_learning_rate=1e-12, server_learning_rate=1e-12
  )
  state, losses = process.initialize(), []
  for _ in range(3):
    output = process.next(state, datasets())
    state = output.state
    losses.append(float(output.metrics['client_work']['train']['loss']))
  assert len(set(losses)) == 3


def test_full_gradients_have_masks_of_their_own_in_each_round():
  """With a rate of nothing, only the masks change the mean gradient."""
  process = algorithms.build('mime', model_fn, client_learning_rate=1e-12)
  state, seen = process.initialize(), []
  for _ in range(2):
    state = process.next(state, datasets()).state
    statistics = state.client_work.statistics['base']
    assert statistics['momentum'] == np.float32(0.9)
    seen.append(
      np.concatenate([np.ravel(a) for a in statistics['accumulator']])
    )
  first, second = seen[0], seen[1] - 0.9 * seen[0]
  assert np.abs(first - second).max() > 1e-2


@pytest.mark.parametrize(
  'masks, share',
  [pytest.param('shared', 2 / 3, marks=pytest.mark.exhaustive), ('own', 0)],
  ids=['shared', 'own'],
)
def test_masks_of_both_gradients_of_a_delta_sgd_step(masks, share):
  """A model that is linear in its weights, so the mask is all that could
  change the gradient's difference: with one mask, gradients of a loss that is
  linear in the prediction do not differ, and every step grows to its limit.
  With masks of their own they differ, by more than the step of 0.2 allows.
  """

  def linear_model_fn():
    keras_model = tf.keras.Sequential(
      [
        tf.keras.layers.Dropout(0.5, input_shape=(6,)),
        tf.keras.layers.Dense(1, kernel_initializer='ones'),
      ]
    )
    return tff.learning.models.from_keras_model(
      keras_model, loss=_PredictionItself(), input_spec=SPEC
    )

  process = algorithms.build(
    'delta_sgd', linear_model_fn, dropout_masks=masks, gamma=0.01
  )
  output = process.next(process.initialize(), datasets())
  figures = output.metrics['client_work']['step_size']
  # Three steps a client: eta_0, and two that grow to the limit or do not.
  assert figures['at_bound'] == pytest.approx(share)


def test_own_masks_are_of_one_batch():
  with pytest.raises(ValueError, match="to be 'same', got 'successive'"):
    algorithms.build(
      'delta_sgd', model_fn, smoothness_batch='successive', dropout_masks='own'
    )


def test_representations_of_a_step_see_one_mask():
  """A term that is the representation itself: its gradient is the mask's."""
  local = local_model.create(model_fn)
  local.prepare_representation()
  batch = collections.OrderedDict(x=tf.ones([5, 6]), y=tf.zeros([5, 1]))
  carry = ()
  weights = local.trainable(carry)

  def represented(weights, represent):
    del weights
    return tf.reduce_sum(represent())

  def passes(seed):
    local.set_seed(lambda: tf.constant([seed, 0]))
    _, evaluated = local.evaluate(carry, batch, represented)
    again = local.gradients_at(carry, weights, batch, represented)
    once = local.represent_at(carry, weights, batch)
    return evaluated.gradients[0], again[0], once

  first, again, once = passes(3)
  np.testing.assert_array_equal(first, again)
  np.testing.assert_array_equal(once, local.represent_at(carry, weights, batch))
  assert np.any(once == 0)
  other, _, _ = passes(4)
  assert np.any(first != other)


class _PredictionItself(tf.keras.losses.Loss):
  def call(self, y_true, y_pred):
    return tf.reduce_mean(y_pred, axis=-1)


def test_layers_and_draws_have_masks_of_their_own():
  built = model_fn()
  seed = randomness.seeded(built).seed
  seed.assign([5, 7])
  layers = [
    layer
    for layer in built._keras_model.layers
    if isinstance(layer, tf.keras.layers.Dropout)
  ]
  ones = tf.ones([4, 6])
  one, again = (layers[0](ones, training=True) for _ in range(2))
  other = layers[1](ones, training=True)
  assert np.any(one != again) and np.any(one != other)
  assert np.mean(one == 0) == pytest.approx(0.5, abs=0.35)


def test_models_without_random_layers_have_no_seed():
  def plain():
    keras_model = tf.keras.Sequential(
      [tf.keras.layers.Dense(1, input_shape=(6,))]
    )
    return tff.learning.models.from_keras_model(
      keras_model, loss=tf.keras.losses.MeanSquaredError(), input_spec=SPEC
    )

  assert randomness.seeded(plain()).seed is None


def test_fingerprint_tells_batches_apart():
  batch = dict(x=tf.constant([[1.0, 2.0]]), s=tf.constant(['a']))
  same = dict(x=tf.constant([[1.0, 2.0]]), s=tf.constant(['a']))
  others = [
    dict(x=tf.constant([[2.0, 1.0]]), s=tf.constant(['a'])),
    dict(x=tf.constant([[1.0, 2.0]]), s=tf.constant(['b'])),
    dict(x=tf.constant([[1.0, 2.0], [0.0, 0.5]]), s=tf.constant(['a'])),
  ]
  mark = int(randomness.fingerprint(batch))
  assert mark == int(randomness.fingerprint(same))
  assert all(mark != int(randomness.fingerprint(o)) for o in others)
