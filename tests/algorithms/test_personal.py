"""FedPer and FedBN against NumPy: what stays with clients, what is averaged."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import processes
from tff_adaptive.algorithms import building
from tff_adaptive.lab.training import traffic
from tff_adaptive.processes import exchange

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, EPSILON = 0.1, 1e-3
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32), y=tf.TensorSpec([None, 1], tf.float32)
)
START = collections.OrderedDict(
  first=np.array([[0.5, -0.3], [0.2, 0.8]]),
  gamma=np.array([1.5, 0.5]),
  beta=np.array([0.1, -0.2]),
  last=np.array([[1.0], [-0.5]]),
)
# Batches of (x, y) of two clients that disagree, of unequal size.
CLIENTS = [
  [
    (np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([[1.0], [0.0]])),
    (np.array([[-1.0, 0.3], [0.2, 0.4]]), np.array([[2.0], [-1.0]])),
  ],
  [(np.array([[0.3, -0.8], [1.5, 1.0], [-0.4, 0.1]]), -np.ones([3, 1]))],
]
COHORTS = [[0, 1], [1], [0, 1], [0]]
STAYS = {'fedper': ['last'], 'fedbn': ['gamma', 'beta']}


def model_fn():
  def constant(name):
    return tf.keras.initializers.Constant(START[name])

  keras_model = tf.keras.Sequential(
    [
      tf.keras.layers.Dense(
        2,
        use_bias=False,
        kernel_initializer=constant('first'),
        input_shape=(2,),
      ),
      tf.keras.layers.BatchNormalization(
        epsilon=EPSILON,
        gamma_initializer=constant('gamma'),
        beta_initializer=constant('beta'),
      ),
      tf.keras.layers.Dense(
        1, use_bias=False, kernel_initializer=constant('last')
      ),
    ]
  )
  return tff.learning.models.from_keras_model(
    keras_model, loss=tf.keras.losses.MeanSquaredError(), input_spec=SPEC
  )


def dataset(client):
  whole = None
  for x, y in CLIENTS[client]:
    part = tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=np.float32(x), y=np.float32(y))
    ).batch(4)
    whole = part if whole is None else whole.concatenate(part)
  return whole


def loss(weights, x, y):
  z = x @ weights['first']
  z = (z - z.mean(0)) / np.sqrt(z.var(0) + EPSILON)
  z = weights['gamma'] * z + weights['beta']
  return np.mean((z @ weights['last'] - y) ** 2)


def gradient(weights, x, y, step=1e-5):
  """Central differences, entry by entry."""
  result = {}
  for name, w in weights.items():
    g = np.zeros_like(w)
    for at in np.ndindex(*w.shape):
      ends = []
      for sign in (1, -1):
        moved = {**weights, name: w.copy()}
        moved[name][at] += sign * step
        ends.append(loss(moved, x, y))
      g[at] = (ends[0] - ends[1]) / (2 * step)
    result[name] = g
  return result


def rounds(stays, anchor=0.0):
  """The server's weights and the clients' own after each round.

  With `anchor`, the proximal strength, a client is pulled to where it began.
  """
  server, own, path = dict(START), {}, []
  for cohort in COHORTS:
    ends, sizes = [], []
    for i in cohort:
      begin = {**server, **own.get(i, {})}
      w = dict(begin)
      for x, y in CLIENTS[i]:
        g = gradient(w, x, y)
        w = {
          n: w[n] - RATE * (g[n] + anchor * (w[n] - begin[n])) for n in START
        }
      own[i] = {n: w[n] for n in stays}
      ends.append(w)
      sizes.append(sum(len(x) for x, _ in CLIENTS[i]))
    for n in START:
      if n not in stays:
        server[n] = np.average([w[n] for w in ends], axis=0, weights=sizes)
    path.append((dict(server), {i: dict(o) for i, o in own.items()}))
  return path


def run(name, **hyperparameters):
  process = algorithms.build(
    name, model_fn, client_learning_rate=RATE, **hyperparameters
  )
  state, kept, path = process.initialize(), {}, []
  for cohort in COHORTS:
    fresh = process.initialize_client_state()
    states = [kept.get(i, fresh) for i in cohort]
    output = process.next(state, states, [dataset(i) for i in cohort])
    state = output.state
    kept.update(zip(cohort, output.client_states, strict=True))
    weights = process.get_model_weights(state)
    path.append((weights, dict(kept)))
  return process, path


def differs(found, expected):
  """The largest difference between weights in their order and by name."""
  return max(
    np.max(np.abs(np.asarray(a) - b))
    for a, b in zip(found, expected.values(), strict=True)
  )


@pytest.mark.parametrize(
  'name, strength',
  tiers.exhaustive_but(
    [('fedper', 0.0), ('fedbn', 0.5)],
    itertools.product(['fedper', 'fedbn'], [0.0, 0.5]),
  ),
)
def test_rounds(name, strength):
  process, path = run(name, proximal_strength=strength)
  expected = rounds(STAYS[name], strength)
  for (weights, kept), (server, own) in zip(path, expected, strict=True):
    assert differs(weights.trainable, server) < 2e-5
    for client, mine in own.items():
      personal = process.personal_weights(weights, kept[client])
      assert differs(personal.trainable, {**server, **mine}) < 2e-5
  # Averaging everything, or keeping the other part, is something else.
  neighbours = [[], *(s for n, s in STAYS.items() if n != name)]
  for stays in neighbours:
    server, _ = rounds(stays, strength)[-1]
    assert differs(path[-1][0].trainable, server) > 1e-2


@pytest.mark.parametrize('name', STAYS)
def test_noise_for_privacy_does_not_move_what_stays(name):
  """New clients begin from the server's values of these layers."""
  _, path = run(
    name, dp_clip_norm=0.1, dp_noise_multiplier=1.0, dp_clients_per_round=2
  )
  found = dict(zip(START, path[-1][0].trainable, strict=True))
  for layer, values in START.items():
    moved = np.max(np.abs(found[layer] - values))
    assert moved < 1e-7 if layer in STAYS[name] else moved > 1e-3


@pytest.mark.exhaustive
def test_two_layers_stay():
  process, path = run('fedper', personal_layers=2)
  server, own = rounds(['gamma', 'beta', 'last'])[-1]
  personal = process.personal_weights(path[-1][0], path[-1][1][0])
  assert differs(personal.trainable, {**server, **own[0]}) < 2e-5


@pytest.mark.exhaustive
def test_what_stays_is_not_sent():
  whole = traffic.of_process(algorithms.build('fedavg', model_fn))
  for name, floats in [('fedper', 2), ('fedbn', 4)]:
    sent = traffic.of_process(algorithms.build(name, model_fn))
    assert (whole.down - sent.down, whole.up - sent.up) == (4 * floats,) * 2


@pytest.mark.parametrize(
  'name, options, model, found',
  [
    ('fedper', {'personal_layers': 3}, model_fn, 'all of them would'),
    ('fedper', {'personal_layers': 2}, dense.model(), 'all of them would'),
    ('fedbn', {}, dense.model(), 'none of them would .*without a name'),
  ],
)
def test_a_model_that_cannot_be_divided(name, options, model, found):
  with pytest.raises(exchange.UnsuitableModelError, match=found):
    algorithms.build(name, model, **options)


@pytest.mark.exhaustive
def test_clients_under_way_keep_their_layers_too():
  components = algorithms.building.build_components(
    algorithms.resolve('fedper')
  )
  process = components.compose(model_fn, takes_messages=True)
  assert isinstance(process, processes.BufferedLearningProcess)
  assert process.personal_weights is not None


def test_adapters_stay_with_their_layers():
  names = [
    'dense/kernel/a', 'dense/kernel/b', 'dense/bias', 'norm/gamma',
    'last/kernel/a', 'last/kernel/b', 'last/bias',
  ]  # fmt: skip
  made = algorithms.resolve('fedper', personal_layers=2)
  chosen = building.build_components(made).exchange._choose(names)
  assert chosen == [False] * 3 + [True] * 4
