"""AdamW, Lion, Muon, BiClip and Nesterov's momentum against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods

from . import running

GRADIENTS = np.array(
  [[1.0, -0.5, 0.05], [-0.3, 0.8, 0.0], [0.2, 0.1, -2.0], [0.7, -1.5, 0.4]]
)
RATE = 0.1


def adamw(rate, beta_1, beta_2, epsilon, decay, coupled=False):
  """`coupled` adds the decay to the gradient (Adam with L2)."""
  x = running.join(running.start()).astype(np.float64)
  m = v = np.zeros_like(x)
  path = []
  for k, g in enumerate(GRADIENTS, start=1):
    if coupled:
      g = g + decay * x
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    step = (m / (1 - beta_1**k)) / (np.sqrt(v / (1 - beta_2**k)) + epsilon)
    x = x - rate * (step + (0 if coupled else decay * x))
    path.append(x)
  return path


def lion(rate, beta_1, beta_2, decay):
  x = running.join(running.start()).astype(np.float64)
  m = np.zeros_like(x)
  path = []
  for g in GRADIENTS:
    c = beta_1 * m + (1 - beta_1) * g
    x = x - rate * (np.sign(c) + decay * x)
    m = beta_2 * m + (1 - beta_2) * g
    path.append(x)
  return path


def biclip(rate, lower, upper, mode):
  x = running.join(running.start()).astype(np.float64)
  path = []
  for g in GRADIENTS:
    size = np.abs(g) if mode == 'coordinate' else np.linalg.norm(g)
    clipped = np.minimum(np.maximum(size, lower), upper)
    if mode == 'coordinate':
      step = np.sign(g) * clipped
    else:
      step = g * clipped / size
    x = x - rate * step
    path.append(x)
  return path


def nesterov(rate, momentum, ahead=True):
  """Without looking `ahead` it is the heavy ball of FedAvgM."""
  x = running.join(running.start()).astype(np.float64)
  m = np.zeros_like(x)
  path = []
  for delta in GRADIENTS:
    m = momentum * m + delta
    x = x + rate * (delta + momentum * m if ahead else m)
    path.append(x)
  return path


def of_client(name, **settings):
  gradients = [lambda x, g=g: g for g in GRADIENTS]
  path, _ = running.run_client(optimizers.client(name, **settings), gradients)
  return path


def differ(one, other):
  return np.abs(np.array(one) - np.array(other)).max() > 1e-3


def test_adamw():
  found = of_client('adamw', learning_rate=RATE, beta_2=0.9, weight_decay=0.2)
  expected = adamw(RATE, 0.9, 0.9, 1e-8, 0.2)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  assert differ(expected, adamw(RATE, 0.9, 0.9, 1e-8, 0.2, coupled=True))
  assert differ(expected, adamw(RATE, 0.9, 0.9, 1e-8, 0.0))


def test_lion():
  found = of_client('lion', learning_rate=RATE, beta_2=0.5, weight_decay=0.2)
  expected = lion(RATE, 0.9, 0.5, 0.2)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  # Exchanged decays.
  assert differ(expected, lion(RATE, 0.5, 0.9, 0.2))


@pytest.mark.parametrize('mode', ['coordinate', 'norm'])
def test_biclip(mode):
  found = of_client(
    'biclip', learning_rate=RATE, clip_lower=0.6, clip_upper=1.2, clip_mode=mode
  )
  expected = biclip(RATE, 0.6, 1.2, mode)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  other = {'coordinate': 'norm', 'norm': 'coordinate'}[mode]
  assert differ(expected, biclip(RATE, 0.6, 1.2, other))
  assert differ(expected, biclip(RATE, 0.0, np.inf, mode))


def test_biclips_defaults_clip_nothing():
  np.testing.assert_allclose(
    of_client('biclip', learning_rate=RATE),
    of_client('sgd', learning_rate=RATE),
    rtol=1e-6,
  )
  with pytest.raises(parameters.ParameterError, match='must not be above'):
    optimizers.client('biclip', client_clip_lower=2.0, client_clip_upper=1.0)


def test_nesterov():
  optimizer = optimizers.server(
    'sgd', learning_rate=RATE, momentum=0.9, nesterov=True
  )
  found = running.run_server(optimizer, GRADIENTS)
  expected = nesterov(RATE, 0.9)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  assert differ(expected, nesterov(RATE, 0.9, ahead=False))
  with pytest.raises(parameters.ParameterError, match='`momentum` is 0'):
    optimizers.server('sgd', nesterov=True)


def newton_schulz(matrix):
  x = matrix / (np.linalg.norm(matrix) + 1e-7)
  for _ in range(5):
    a = x @ x.T
    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
  return x


SCALES = {
  'spectral': lambda rows, columns: np.sqrt(columns / rows),
  'rms': lambda rows, columns: 0.2 * np.sqrt(max(rows, columns)),
  'none': lambda rows, columns: 1.0,
}


@pytest.mark.parametrize('scale', SCALES)
@pytest.mark.parametrize('looks_ahead', [False, True])
def test_muon(scale, looks_ahead):
  rng = np.random.default_rng(0)
  x, b = rng.normal(size=[2, 3]), rng.normal(size=[3])
  batches = [(rng.normal(size=[2, 3]), rng.normal(size=[3])) for _ in range(3)]
  optimizer = optimizers.client(
    'muon', learning_rate=RATE, muon_scale=scale, nesterov=looks_ahead
  )
  weights = (tf.constant(x, tf.float32), tf.constant(b, tf.float32))
  state = optimizer.initialize(running.specs(weights))
  m, m_1, m_2 = np.zeros_like(x), np.zeros_like(b), np.zeros_like(b)
  for k, (g, h) in enumerate(batches, start=1):
    state, weights = optimizer.next(
      state, weights, (tf.constant(g, tf.float32), tf.constant(h, tf.float32))
    )
    m = 0.95 * m + g
    taken = g + 0.95 * m if looks_ahead else m
    step = SCALES[scale](2, 3) * newton_schulz(taken)
    x = x - RATE * (step + 0.01 * x)
    m_1 = 0.9 * m_1 + 0.1 * h
    m_2 = 0.95 * m_2 + 0.05 * h**2
    step = (m_1 / (1 - 0.9**k)) / (np.sqrt(m_2 / (1 - 0.95**k)) + 1e-8)
    b = b - RATE * (step + 0.01 * b)
    np.testing.assert_allclose(weights[0], x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights[1], b, rtol=1e-4, atol=1e-6)
  other = {'spectral': 'rms', 'rms': 'none', 'none': 'spectral'}[scale]
  assert abs(SCALES[scale](2, 3) - SCALES[other](2, 3)) > 0.05


def of_server(name, **settings):
  return running.run_server(optimizers.server(name, **settings), GRADIENTS)


def test_a_lion_server():
  def path(beta_1, beta_2):
    x = running.join(running.start()).astype(np.float64)
    m = np.zeros_like(x)
    result = []
    for delta in GRADIENTS:
      x = x + RATE * np.sign(beta_1 * m + (1 - beta_1) * delta)
      m = beta_2 * m + (1 - beta_2) * delta
      result.append(x)
    return result

  found = of_server('lion', learning_rate=RATE, beta_1=0.9, beta_2=0.5)
  np.testing.assert_allclose(found, path(0.9, 0.5), rtol=1e-5)
  assert differ(found, path(0.5, 0.9))
  signs = of_server('lion', learning_rate=RATE, beta_1=0.0, beta_2=0.0)
  np.testing.assert_allclose(signs, path(0.0, 0.0), rtol=1e-5)


@pytest.mark.parametrize('mode', ['coordinate', 'norm'])
def test_a_biclip_server(mode):
  found = of_server(
    'biclip', server_clip_lower=0.6, server_clip_upper=1.2, clip_mode=mode
  )
  # A step along Delta is one against the gradient -Delta.
  np.testing.assert_allclose(found, biclip(-1.0, 0.6, 1.2, mode), rtol=1e-5)


def test_building_blocks_are_servers_of_federated_averaging():
  for name in ('lion', 'biclip'):
    assert methods.of_server(name, ()).name == 'fedavg'
    algorithms.check('fedavg', server_optimizer=name)
    algorithms.check('scaffold', server_optimizer=name)
  assert 'fedbiclip' not in algorithms.names()
  with pytest.raises(parameters.ParameterError, match='its own server opt'):
    algorithms.check('fedavg', server_optimizer='adam')
