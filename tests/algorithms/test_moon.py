"""MOON's contrastive term against NumPy, and the models that it refuses."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive.processes import exchange

pytestmark = pytest.mark.usefixtures('in_process_context')

FIRST = np.array([[0.5, -0.3], [0.2, 0.8]], np.float32)
LAST = np.array([[1.0], [-0.5]], np.float32)
RATE, TEMPERATURE = 0.1, 0.5
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32), y=tf.TensorSpec([None, 1], tf.float32)
)
BATCHES = [
  (np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([[1.0], [0.0]])),
  (np.array([[-1.0, 0.3]]), np.array([[2.0]])),
]


def model_fn():
  constant = tf.keras.initializers.Constant
  keras_model = tf.keras.Sequential(
    [
      tf.keras.layers.Dense(
        2, use_bias=False, kernel_initializer=constant(FIRST), input_shape=(2,)
      ),
      tf.keras.layers.Dense(
        1, use_bias=False, kernel_initializer=constant(LAST)
      ),
    ]
  )
  return tff.learning.models.from_keras_model(
    keras_model, loss=tf.keras.losses.MeanSquaredError(), input_spec=SPEC
  )


def dataset():
  whole = None
  for x, y in BATCHES:
    part = tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=np.float32(x), y=np.float32(y))
    ).batch(2)
    whole = part if whole is None else whole.concatenate(part)
  return whole


def cosine(a, b):
  return np.sum(a * b, -1) / (
    np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
  )


def objective(weights, batch, start, previous, mu):
  (x, y), (first, last) = batch, weights
  z = x @ first
  to_global = np.exp(cosine(z, x @ start[0]) / TEMPERATURE)
  to_previous = np.exp(cosine(z, x @ previous[0]) / TEMPERATURE)
  contrastive = -np.log(to_global / (to_global + to_previous))
  return np.mean((z @ last - y) ** 2) + mu * np.mean(contrastive)


def gradient(weights, batch, start, previous, mu, step=1e-5):
  """Central differences, entry by entry."""
  result = []
  for k, matrix in enumerate(weights):
    g = np.zeros_like(matrix)
    for at in np.ndindex(*matrix.shape):
      values = []
      for sign in (1, -1):
        moved = [w.copy() for w in weights]
        moved[k][at] += sign * step
        values.append(objective(moved, batch, start, previous, mu))
      g[at] = (values[0] - values[1]) / (2 * step)
    result.append(g)
  return result


def client(start, previous, mu):
  weights = [w.copy() for w in start]
  for batch in BATCHES:
    g = gradient(weights, batch, start, previous, mu)
    weights = [w - RATE * d for w, d in zip(weights, g)]
  return weights


@pytest.mark.parametrize('mu', tiers.exhaustive_but([2.0], [0.0, 2.0]))
def test_rounds(mu):
  process = algorithms.build(
    'moon',
    model_fn,
    client_learning_rate=RATE,
    contrastive_strength=mu,
    temperature=TEMPERATURE,
    server_learning_rate=0.5,
  )
  state, memory = process.initialize(), process.initialize_client_state()
  x = previous = [FIRST.astype(np.float64), LAST.astype(np.float64)]
  for r in range(3):
    output = process.next(state, [memory], [dataset()])
    state, (memory,) = output.state, output.client_states
    end = client(x, x if r == 0 else previous, mu)
    # The server's half step keeps its model apart from the client's last one.
    x = [a + 0.5 * (b - a) for a, b in zip(x, end)]
    previous = end
    for ours, theirs in zip(process.get_model_weights(state).trainable, x):
      np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)
    for ours, theirs in zip(memory['weights'], previous):
      np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


def test_the_term_matters_once_previous_and_received_models_differ():
  start = [FIRST.astype(np.float64), LAST.astype(np.float64)]
  previous = [0.5 * FIRST[::-1].astype(np.float64), start[1]]
  plain = client(start, previous, 0.0)
  assert not np.allclose(plain[0], client(start, previous, 2.0)[0], rtol=2e-2)
  assert np.allclose(plain[0], client(start, start, 2.0)[0], rtol=1e-6)


def test_the_previous_model_of_a_new_client_is_what_it_receives():
  process = algorithms.build('moon', model_fn, contrastive_strength=2.0)
  state = process.initialize()
  fresh = process.initialize_client_state()
  assert not fresh['seen']
  seen = collections.OrderedDict(
    seen=True, weights=tuple(process.get_model_weights(state).trainable)
  )
  one = process.next(state, [fresh], [dataset()])
  other = process.next(state, [seen], [dataset()])
  tf.nest.map_structure(
    np.testing.assert_array_equal,
    one.client_states[0]['weights'],
    other.client_states[0]['weights'],
  )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'settings',
  [
    dict(client_optimizer='delta_sgd', smoothness_batch='same'),
    dict(client_optimizer='polyak', server_optimizer='adam'),
    dict(proximal_strength=0.5),
  ],
)
def test_clients_losses_and_servers_combine(settings):
  process = algorithms.build('moon', model_fn, **settings)
  output = process.next(
    process.initialize(), [process.initialize_client_state()], [dataset()]
  )
  train = output.metrics['client_work']['train']
  assert train['num_batches'] == 2 and np.isfinite(train['loss'])
  weights = process.get_model_weights(output.state).trainable
  assert np.all(np.isfinite(weights[0])) and np.any(weights[0] != FIRST)


def test_models_without_a_representation_are_refused():
  with pytest.raises(
    exchange.UnsuitableModelError, match='layer with weights before'
  ):
    algorithms.build('moon', linear.model_fn)
  with pytest.raises(exchange.UnsuitableModelError, match='FunctionalModel'):
    algorithms.build('moon', linear.functional_model())
