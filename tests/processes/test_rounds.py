"""Whole rounds against NumPy, and any client under any server."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import processes
from tff_adaptive import runtime

from . import linear

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.05


def test_fedavg_follows_the_arithmetic():
  process = algorithms.build(
    'fedavg',
    linear.model_fn,
    client_learning_rate=RATE,
    server_learning_rate=0.7,
  )
  weights, metrics = linear.run(process, 3)
  np.testing.assert_allclose(
    weights, linear.fedavg(linear.sgd(RATE), 3, eta=0.7), rtol=1e-5
  )
  train = metrics['client_work']['train']
  assert train['num_examples'] == 11 and train['num_batches'] == 6
  assert metrics['client_work']['clients'] == collections.OrderedDict(
    count=3, empty=0, rejected=0, steps=6
  )


@pytest.mark.exhaustive
def test_uniform_weighting():
  process = algorithms.build(
    'fedavg',
    linear.model_fn,
    client_learning_rate=RATE,
    client_weighting='uniform',
  )
  weights, _ = linear.run(process, 2)
  expected = linear.fedavg(linear.sgd(RATE), 2, weight=lambda _: 1)
  np.testing.assert_allclose(weights, expected, rtol=1e-5)
  assert not np.allclose(
    expected, linear.fedavg(linear.sgd(RATE), 2), rtol=1e-3
  )


def test_fedadam_follows_the_arithmetic():
  eta, beta_1, beta_2, tau = 0.1, 0.8, 0.9, 0.05
  process = algorithms.build(
    'fedadam',
    linear.model_fn,
    client_learning_rate=RATE,
    server_learning_rate=eta,
    beta_1=beta_1,
    beta_2=beta_2,
    server_adaptivity=tau,
  )
  weights, _ = linear.run(process, 3)
  w, m, v, path = linear.START, 0.0, tau**2, []
  for _ in range(3):
    delta = linear.round_update(w, linear.sgd(RATE))
    m = beta_1 * m + (1 - beta_1) * delta
    v = beta_2 * v + (1 - beta_2) * delta**2
    w = w + eta * m / (np.sqrt(v) + tau)
    path.append(w)
  np.testing.assert_allclose(weights, path, rtol=1e-5)


def proximal_process(mu):
  return algorithms.build(
    'fedprox', linear.model_fn, client_learning_rate=RATE, proximal_strength=mu
  )


def test_fedprox_pulls_towards_the_received_model():
  mu = 3.0
  weights, _ = linear.run(proximal_process(mu), 2)
  expected = linear.fedavg(linear.sgd(RATE, mu), 2)
  np.testing.assert_allclose(weights, expected, rtol=1e-5)
  # Neither no term nor the reversed one of tff.learning 0.87.0 gives this.
  for other in (0.0, -mu):
    assert not np.allclose(
      expected, linear.fedavg(linear.sgd(RATE, other), 2), 1e-3
    )


def delta_sgd(batch_kind, mu=0.0):
  """Delta-SGD on a client, with both gradients of F + (mu/2)|x - x_t|^2."""

  def local(start, batches):
    w, eta, theta = start, 0.2, 1.0
    w_before = g_before = None
    for batch in batches:
      at = lambda w, batch=batch: linear.gradient(w, batch) + mu * (w - start)
      g = at(w)
      if w_before is not None:
        other = g_before if batch_kind == 'successive' else at(w_before)
        change = abs(g - other)
        first = abs(w - w_before) / change if change else np.inf
        new = min(first, np.sqrt(1 + 0.1 * theta) * eta)
        theta, eta = new / eta, new
      w_before, g_before = w, g
      w = w - eta * g
    return w

  return local


@pytest.mark.parametrize(
  'batch_kind, mu',
  tiers.exhaustive_but(
    [('same', 1.5)], itertools.product(['same', 'successive'], [0.0, 1.5])
  ),
)
def test_delta_sgd_with_and_without_proximal_term(batch_kind, mu):
  process = algorithms.build(
    'delta_sgd',
    linear.model_fn,
    smoothness_batch=batch_kind,
    proximal_strength=mu,
  )
  weights, metrics = linear.run(process, 2)
  expected = linear.fedavg(delta_sgd(batch_kind, mu), 2)
  np.testing.assert_allclose(weights, expected, rtol=1e-4)
  other = 'same' if batch_kind == 'successive' else 'successive'
  assert not np.allclose(
    expected, linear.fedavg(delta_sgd(other, mu), 2), rtol=1e-3
  )
  # The second gradient of a step leaves no trace in the metrics.
  assert metrics['client_work']['train']['num_examples'] == 11
  assert metrics['client_work']['train']['num_batches'] == 6


def polyak(mu=0.0, c=0.5, gamma_b=0.15, grows=False):
  def local(start, batches):
    w, bound = start, 1.0 if grows else gamma_b
    total = linear.num_examples(batches)
    for k, batch in enumerate(batches):
      if grows and k:
        bound *= 2 ** (len(batch[0]) / total)
      value = linear.loss(w, batch) + mu / 2 * (w - start) ** 2
      g = linear.gradient(w, batch) + mu * (w - start)
      w = w - min(value / (c * g**2), bound) * g
    return w

  return local


@pytest.mark.parametrize(
  'more,settings',
  tiers.exhaustive_but(
    [({'grows': True}, {'smoothing': 'bound'})],
    [
      ({}, {'gamma_b': 0.15}),
      ({'mu': 1.5}, {'gamma_b': 0.15, 'proximal_strength': 1.5}),
      ({'grows': True}, {'smoothing': 'bound'}),
    ],
  ),
)
def test_fedsps(more, settings):
  process = algorithms.build('fedsps', linear.model_fn, **settings)
  weights, metrics = linear.run(process, 2)
  np.testing.assert_allclose(
    weights, linear.fedavg(polyak(**more), 2), rtol=1e-4
  )
  share = metrics['client_work']['step_size']['at_bound']
  assert 0 < share < 1 or settings.get('smoothing')


_FIRST_STEPS = {
  # Clips nothing by itself, and is SGD.
  'biclip': {'clip_upper': 0.5},
  # Both begin with steps of 1e-6, which AMS at the server makes smaller than
  # what separates 0.5 from its neighbour in float32.
  'dog': {'r_epsilon': 0.01},
  'prodigy': {'d_0': 0.01},
}


def train_pairs(pairs):
  results = []
  for client, server in pairs:
    process = processes.compose(
      linear.model_fn,
      optimizers.client(client, **_FIRST_STEPS.get(client, {})),
      optimizers.server(server),
    )
    weights, _ = linear.run(process, 1)
    results.append(weights[0])
  assert np.all(np.isfinite(results))
  assert linear.START not in results
  return results


@pytest.mark.exhaustive
def test_every_client_optimizer_trains():
  names = optimizers.client_names()
  results = train_pairs([(name, 'sgd') for name in names])
  # For a matrix of one entry SM3 keeps what AdaGrad keeps.
  expected = len(names) - 1
  assert len(set(results)) == expected


@pytest.mark.exhaustive
def test_every_server_optimizer_trains():
  train_pairs([('delta_sgd', name) for name in optimizers.server_names()])


def test_clients_compute_no_initial_weights():
  def unwanted(shape, dtype=None):
    wrong = tf.debugging.Assert(False, ['Computed the initial weights.'])
    with tf.control_dependencies([wrong]):
      return tf.zeros(shape, dtype)

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          tf.keras.layers.Dense(
            1, kernel_initializer=unwanted, input_shape=(1,)
          )
        ]
      ),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=linear.SPEC,
    )

  work = processes.build_client_work(
    model_fn, tff.learning.optimizers.build_sgdm(RATE)
  )
  weights = tff.learning.models.ModelWeights(
    [np.ones([1, 1], np.float32), np.zeros([1], np.float32)], []
  )
  data = linear.datasets()
  output = work.next(work.initialize(), [weights] * len(data), data)
  assert output.measurements['clients']['rejected'] == 0
  with pytest.raises(runtime.RuntimeFailure, match='initial weights'):
    tff.tensorflow.computation(
      lambda: model_fn().trainable_variables[0].read_value()
    )()


@pytest.mark.slow
def test_any_client_under_any_server():
  train_pairs(
    [
      (client, server)
      for client in optimizers.client_names()
      for server in optimizers.server_names()
    ]
  )


def test_hyperparameters_can_be_set_in_the_state():
  process = algorithms.build('fedavg', linear.model_fn)
  state = process.initialize()
  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = np.float32(RATE)
  hparams['finalizer']['learning_rate'] = np.float32(0.5)
  state = process.set_hparams(state, hparams)
  output = process.next(state, linear.datasets())
  np.testing.assert_allclose(
    linear.weight_of(process, output.state),
    linear.fedavg(linear.sgd(RATE), 1, eta=0.5)[0],
    rtol=1e-5,
  )
