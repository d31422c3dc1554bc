"""FedSAM and FedLESAM against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import building

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, RHO = 0.2, 0.6
ROUNDS = [(0, 1), (0, 2), (1, 2), (0, 1)]


def together(e):
  return e / np.linalg.norm(e) if e.any() else e


def apart(e):
  """Each variable scaled for itself."""
  return np.concatenate([together(part.ravel()) for part in dense.parts(e)])


def summed(e):
  """The variables' norms added up, as FedLESAM's released code does."""
  return e / sum(np.linalg.norm(part) for part in dense.parts(e))


def fedsam(rho=RHO, scaled=together, same_batch=True, rounds=ROUNDS):
  x, path = dense.START, []
  for cohort in rounds:
    ends = []
    for i in cohort:
      w, client = x, dense.CLIENTS[i]
      for k, batch in enumerate(client):
        seen = batch if same_batch else client[k - 1]
        e = rho * scaled(dense.gradient(w, seen))
        w = w - RATE * dense.gradient(w + e, batch)
      ends.append(w)
    x = dense.average(ends, cohort)
    path.append(x)
  return path


def test_fedsam():
  process = algorithms.build(
    'fedsam', dense.model(), client_learning_rate=RATE, rho=RHO
  )
  path, _, _ = dense.run(process, ROUNDS)
  dense.close(path, fedsam())


def test_inputs_tell_fedsam_from_its_neighbours():
  path = fedsam()
  for other in (
    fedsam(rho=0.0),  # Federated averaging.
    fedsam(rho=-RHO),
    fedsam(scaled=apart),
    fedsam(same_batch=False),
  ):
    assert dense.differ(path, other)


def test_without_a_gradient_fedsam_stays():
  components = building.build_components(algorithms.resolve('fedsam'))
  optimizer = components.client_optimizer
  weights = (tf.constant([1.0, 2.0]),)
  state = optimizer.initialize(_specs(weights))
  zeros = (tf.zeros([2]),)
  batch = _Batch(lambda at: tuple(0 * w for w in at))
  _, after = optimizer.next(state, weights, zeros, batch=batch)
  np.testing.assert_array_equal(after[0], weights[0])
  with pytest.raises(TypeError, match='needs the batch'):
    optimizer.next(state, weights, zeros)


class _Batch:
  def __init__(self, gradient_fn):
    self.gradient_fn = gradient_fn


def _specs(weights):
  return tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights)


def fedlesam(neighbour=None, scaled=together):
  x, old, path, last = dense.START, {}, [], np.zeros(8)
  for cohort in ROUNDS:
    ends = []
    for i in cohort:
      e = RHO * scaled(old[i] - x) if i in old else np.zeros(8)
      if neighbour == 'the last update, for all':
        e = -RHO * together(last)
      w = x
      for batch in dense.CLIENTS[i]:
        w = w - RATE * dense.gradient(w + e, batch)
      ends.append(w)
      old[i] = x
    renewed = dense.average(ends, cohort)
    x, last = renewed, renewed - x
    path.append(x)
  return path, old


def test_fedlesam():
  process = algorithms.build(
    'fedlesam', dense.model(), client_learning_rate=RATE, rho=RHO
  )
  assert algorithms.is_stateful(process)
  path, _, memories = dense.run(process, ROUNDS)
  expected, old = fedlesam()
  dense.close(path, expected)
  for i, memory in memories.items():
    received = np.concatenate([np.ravel(t) for t in memory['received']])
    dense.close(received, old[i])


def test_inputs_tell_fedlesam_from_its_neighbours():
  path, _ = fedlesam()
  for other in (
    fedlesam('the last update, for all')[0],
    fedlesam(scaled=summed)[0],
    fedsam(),
    dense.fedavg(ROUNDS, RATE),
  ):
    assert dense.differ(path, other)


@pytest.mark.parametrize('name, gradients', [('fedsam', 2), ('fedlesam', 1)])
def test_the_base_steps_from_gradients_alone(name, gradients):
  with pytest.raises(parameters.ParameterError, match='adagrad, adam, adamw'):
    algorithms.check(name, client_optimizer='polyak')
  configuration = algorithms.resolve(
    name, client_optimizer=optimizers.client('delta_sgd')
  )
  with pytest.raises(ValueError, match='only gradients; DeltaSgd also uses'):
    building.build_components(configuration)
  text = algorithms.describe(name, client_optimizer='adam')
  assert 'g(x + e)' in text and 'client optimizer adam' in text
  # Of a base that chooses its step size it is known.
  components = building.build_components(
    algorithms.resolve(name, client_optimizer='dog', record_step_sizes=True)
  )
  weights = (tf.constant([1.0]),)
  state = components.client_optimizer.initialize(_specs(weights))
  assert components.client_optimizer.step_size(state) is not None
  assert 'learning_rate' in components.client_optimizer.get_hparams(state)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedsam', 'fedlesam'])
@pytest.mark.parametrize('client', ['adam', 'dog', 'sm3_adagrad'])
def test_other_bases_and_servers(name, client):
  process = algorithms.build(
    name,
    dense.model(),
    client_optimizer=client,
    server_optimizer='yogi',
    client_warmup_steps=2,
    client_lr_schedule='inv_sqrt_decay',
    client_lr_decay_steps=2,
    client_lr_decay_rate=0.5,
    dp_clip_norm=1.0,
    dp_noise_multiplier=0.1,
    dp_clients_per_round=2,
  )
  path, _, _ = dense.run(process, ROUNDS)
  assert np.isfinite(path).all() and dense.differ(path[0], path[-1])
