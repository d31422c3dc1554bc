"""Direct joint adaptivity, zero start and FedAda2 against NumPy."""

import itertools

import numpy as np
import pytest

from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

# Of the size of gradients and updates, so that starting values matter.
RATE, ETA, EPSILON, TAU = 0.3, 0.5, 0.5, 0.4
B1, B2 = 0.8, 0.9  # The clients'.
SB1, SB2 = 0.7, 0.6  # The server's.


def client(kind, x, batches, received):
  """One client; `received` is the server's v, or None for a zero start."""
  w, m = x, 0.0
  v = 0.0 if received is None else received
  for k, batch in enumerate(batches, start=1):
    g = linear.gradient(w, batch)
    if kind == 'adagrad':
      v = v + g**2
      w = w - RATE * g / (np.sqrt(v) + EPSILON)
    elif kind == 'adam':
      m = B1 * m + (1 - B1) * g
      v = B2 * v + (1 - B2) * g**2
      v_hat = v / (1 - B2**k) if received is None else v
      w = w - RATE * m / (1 - B1**k) / (np.sqrt(v_hat) + EPSILON)
    else:  # SM3-Adam: a matrix of 1 x 1 is its own slice.
      m = B1 * m + (1 - B1) * g
      v = B2 * v + (1 - B2) * g**2
      w = w - RATE * m / (np.sqrt(v) + EPSILON)
  return w


def joint(client_kind, server_kind, direct, rounds=3):
  x, m, v, path = linear.START, 0.0, TAU**2, []
  for _ in range(rounds):
    local = lambda w, batches, v=v: client(
      client_kind, w, batches, v if direct else None
    )
    delta = linear.round_update(x, local)
    if server_kind == 'adagrad':
      m, v = delta, v + delta**2
    else:
      m = SB1 * m + (1 - SB1) * delta
      v = SB2 * v + (1 - SB2) * delta**2
    x = x + ETA * m / (np.sqrt(v) + TAU)
    path.append(x)
  return path


def build(name, client_kind, server_kind):
  settings = dict(
    client_optimizer=client_kind,
    server_optimizer=server_kind,
    client_learning_rate=RATE,
    client_adaptivity=EPSILON,
    server_learning_rate=ETA,
    server_adaptivity=TAU,
  )
  if client_kind.endswith('adam'):
    settings |= dict(client_beta_1=B1, client_beta_2=B2)
  if server_kind == 'adam':
    settings |= dict(beta_1=SB1, beta_2=SB2)
  return algorithms.build(name, linear.model_fn, **settings)


@pytest.mark.parametrize(
  'client_kind, server_kind',
  tiers.exhaustive_but(
    [('sm3_adagrad', 'adagrad')],
    itertools.product(
      ['adagrad', 'adam', 'sm3_adagrad', 'sm3_adam'], ['adagrad', 'adam']
    ),
    # Every rule of a side is in one of the others.
    slow=[
      *(('adagrad', 'adagrad'), ('adam', 'adagrad')),
      *(('sm3_adagrad', 'adam'), ('sm3_adam', 'adam')),
    ],
  ),
)
def test_direct_joint(client_kind, server_kind):
  process = build('direct_joint', client_kind, server_kind)
  weights, _ = linear.run(process, 3)
  kind = 'adagrad' if client_kind == 'sm3_adagrad' else client_kind
  expected = joint(kind, server_kind, True)
  np.testing.assert_allclose(weights, expected, rtol=1e-5)
  assert not np.allclose(expected, joint(kind, server_kind, False), rtol=1e-4)


@pytest.mark.parametrize(
  'name,client_kind',
  tiers.exhaustive_but(
    [('fedada2', 'sm3_adam')],
    [
      ('joint_zero_init', 'adagrad'),
      ('joint_zero_init', 'adam'),
      ('fedada2', 'sm3_adagrad'),
      ('fedada2', 'sm3_adam'),
    ],
  ),
)
def test_zero_start(name, client_kind):
  weights, _ = linear.run(build(name, client_kind, 'adagrad'), 3)
  kind = 'adagrad' if client_kind == 'sm3_adagrad' else client_kind
  np.testing.assert_allclose(weights, joint(kind, 'adagrad', False), rtol=1e-4)


@pytest.mark.exhaustive
def test_direct_joint_under_a_server_schedule():
  """The schedule keeps the server's state one level down."""
  process = algorithms.build(
    'direct_joint',
    linear.model_fn,
    client_learning_rate=RATE,
    client_adaptivity=EPSILON,
    server_learning_rate=2 * ETA,
    server_adaptivity=TAU,
    server_lr_schedule='exp_decay',
    server_lr_decay_steps=1,
    server_lr_decay_rate=0.5,
  )
  weights, _ = linear.run(process, 2)
  x, v, path = linear.START, TAU**2, []
  for eta in (2 * ETA, ETA):
    delta = linear.round_update(x, lambda w, b, v=v: client('adagrad', w, b, v))
    v = v + delta**2
    x = x + eta * delta / (np.sqrt(v) + TAU)
    path.append(x)
  np.testing.assert_allclose(weights, path, rtol=1e-4)


@pytest.mark.exhaustive
def test_warm_up_over_local_steps():
  process = algorithms.build(
    'joint_zero_init',
    linear.model_fn,
    client_learning_rate=RATE,
    client_adaptivity=EPSILON,
    client_warmup_steps=2,
    server_optimizer='adagrad',
    server_learning_rate=ETA,
    server_adaptivity=TAU,
  )
  weights, _ = linear.run(process, 2)
  x, v, path = linear.START, TAU**2, []
  for _ in range(2):

    def local(start, batches):
      w, own = start, 0.0
      for k, batch in enumerate(batches, start=1):
        g = linear.gradient(w, batch)
        own += g**2
        w = w - RATE * min(1, k / 2) * g / (np.sqrt(own) + EPSILON)
      return w

    delta = linear.round_update(x, local)
    v += delta**2
    x = x + ETA * delta / (np.sqrt(v) + TAU)
    path.append(x)
  np.testing.assert_allclose(weights, path, rtol=1e-4)


def test_pairs_without_a_preconditioner_are_refused():
  for settings in (
    dict(server_optimizer='sgd'),
    dict(client_optimizer='delta_sgd'),
  ):
    with pytest.raises(parameters.ParameterError, match='accepts the'):
      algorithms.build('direct_joint', linear.model_fn, **settings)
  with pytest.raises(parameters.ParameterError, match='second moment'):
    algorithms.build(
      'direct_joint', linear.model_fn, server_optimizer=optimizers.server('sgd')
    )


@pytest.mark.exhaustive
def test_the_direct_form_sends_the_preconditioner():
  """The state that is broadcast holds one more model's worth of numbers."""
  direct = build('direct_joint', 'adagrad', 'adagrad').initialize()
  zero = build('joint_zero_init', 'adagrad', 'adagrad').initialize()
  assert list(direct.client_work.statistics) == ['v']
  assert not zero.client_work.statistics
