"""Delta-SGD, stochastic Polyak, Adam and AdaGrad clients against the papers."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import optimizers
from tff_adaptive import parameters

from . import rules
from . import running

# Batch k has the loss sum(a_k (x - b_k)^2) / 2: curvatures and minima differ,
# so that the gradient's change depends on whose batch it is taken on.
CURVATURES = np.array(
  [[1.0, 3.0, 0.5], [2.0, 0.3, 1.5], [0.2, 1.0, 4.0], [1.5, 2.5, 0.1]] * 2
)
MINIMA = np.array(
  [[0.0, 0.5, 0.0], [0.3, -0.5, 1.0], [2.0, 0.0, -0.4], [-1.0, 0.2, 0.0]] * 2
)
GRADIENTS = [
  lambda x, a=a, b=b: a * (x - b) for a, b in zip(CURVATURES, MINIMA)
]
LOSSES = [
  lambda x, a=a, b=b: 0.5 * np.sum(a * (x - b) ** 2)
  for a, b in zip(CURVATURES, MINIMA)
]
SIZES = [4, 4, 4, 4, 4, 4, 4, 2]


def close(path, expected, rtol=2e-4):
  np.testing.assert_allclose(path, expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize('batch', ['same', 'successive'])
@pytest.mark.parametrize(
  'settings',
  [
    dict(gamma=2.0, delta=0.1, eta_0=0.2, theta_0=1.0),
    dict(gamma=1.0, delta=0.5, eta_0=0.05, theta_0=2.0),
  ],
)
def test_delta_sgd(batch, settings):
  optimizer = optimizers.client('delta_sgd', smoothness_batch=batch, **settings)
  path, steps = running.run_client(optimizer, GRADIENTS)
  expected, etas = rules.delta_sgd(GRADIENTS, batch=batch, **settings)
  close(path, expected)
  np.testing.assert_allclose([s for s, _ in steps], etas, rtol=1e-3)


def test_delta_sgd_takes_both_branches():
  _, steps = running.run_client(
    optimizers.client('delta_sgd', smoothness_batch='same'), GRADIENTS
  )
  assert len({bound for _, bound in steps[1:]}) == 2


def test_delta_sgd_inputs_tell_its_neighbours_apart():
  settings = dict(gamma=2.0, delta=0.1, eta_0=0.2, theta_0=1.0)
  same, _ = rules.delta_sgd(GRADIENTS, batch='same', **settings)
  successive, _ = rules.delta_sgd(GRADIENTS, batch='successive', **settings)
  first_step_grown, _ = rules.delta_sgd(
    GRADIENTS, batch='same', **(settings | dict(eta_0=0.2 * np.sqrt(1.1)))
  )
  slow, _ = rules.delta_sgd(
    GRADIENTS, batch='same', **(settings | {'delta': 0})
  )
  damped, _ = rules.delta_sgd(
    GRADIENTS, batch='same', **(settings | {'gamma': 1})
  )
  for other in (successive, first_step_grown, slow, damped):
    assert running.differs(same, other)


@pytest.mark.parametrize('batch', ['same', 'successive'])
def test_delta_sgd_grows_where_the_gradient_does_not_change(batch):
  constant = [lambda x: np.array([1.0, 1.0, 1.0])] * 4
  optimizer = optimizers.client(
    'delta_sgd', eta_0=0.1, delta=0.44, theta_0=1.0, smoothness_batch=batch
  )
  path, steps = running.run_client(optimizer, constant)
  expected, etas = rules.delta_sgd(constant, 2.0, 0.44, 0.1, 1.0, batch)
  close(path, expected)
  assert etas[1] == pytest.approx(0.12)
  assert all(bound for _, bound in steps[1:])


@pytest.mark.parametrize('batch', ['same', 'successive'])
def test_delta_sgd_stays_finite_without_any_gradient(batch):
  nothing = [lambda x: np.zeros(3)] * 3
  optimizer = optimizers.client('delta_sgd', smoothness_batch=batch)
  path, steps = running.run_client(optimizer, nothing)
  close(path, [rules.START] * 3)
  assert np.all(np.isfinite([s for s, _ in steps]))


def test_delta_sgd_cap():
  constant = [lambda x: np.ones(3)] * 6
  optimizer = optimizers.client('delta_sgd', max_step_size=0.25)
  _, steps = running.run_client(optimizer, constant)
  assert max(s for s, _ in steps) == pytest.approx(0.25)
  # The first step is no exception.
  lower = optimizers.client('delta_sgd', eta_0=0.2, max_step_size=0.1)
  path, steps = running.run_client(lower, constant)
  assert [s for s, _ in steps] == [pytest.approx(0.1)] * 6
  close(path[0], rules.START - 0.1)


@pytest.mark.parametrize(
  'settings',
  [
    dict(c=0.5, gamma_b=0.6, lower_bound=0.0),
    dict(c=2.0, gamma_b=0.3, lower_bound=0.2),
  ],
)
def test_polyak(settings):
  optimizer = optimizers.client('polyak', **settings)
  path, steps = running.run_client(optimizer, GRADIENTS, LOSSES)
  expected, gammas = rules.polyak(LOSSES, GRADIENTS, **settings)
  close(path, expected)
  np.testing.assert_allclose([s for s, _ in steps], gammas, rtol=1e-3)


def test_polyak_inputs_tell_its_neighbours_apart():
  base = dict(c=0.5, gamma_b=0.6, lower_bound=0.0)
  path, gammas = rules.polyak(LOSSES, GRADIENTS, **base)
  assert min(gammas) < 0.6 == max(gammas)  # Both branches are taken.
  for change in (dict(c=1.0), dict(gamma_b=0.5), dict(lower_bound=0.5)):
    other, _ = rules.polyak(LOSSES, GRADIENTS, **(base | change))
    assert running.differs(path, other)
  smooth, _ = rules.polyak(LOSSES, GRADIENTS, **base, sizes=SIZES)
  assert running.differs(path, smooth)


@pytest.mark.parametrize('grows', ['bound', 'step'])
def test_polyak_smoothing(grows):
  # Batch 4's loss is below the bound: its step of 0 is not remembered.
  losses = [*LOSSES[:4], lambda x: 0.1, *LOSSES[5:]]
  settings = dict(c=0.2, gamma_b=0.4, lower_bound=0.2)
  if grows == 'bound':
    settings['gamma_b'] = 1.0
  optimizer = optimizers.client('polyak', smoothing=grows, **settings)
  path, steps = running.run_client(optimizer, GRADIENTS, losses, SIZES)
  expected, gammas = rules.polyak(
    losses, GRADIENTS, **settings, sizes=SIZES, grows=grows
  )
  close(path, expected)
  np.testing.assert_allclose([s for s, _ in steps], gammas, rtol=1e-3)
  assert gammas[4] == 0 < gammas[5]
  for neighbour in (
    dict(sizes=SIZES, grows='step' if grows == 'bound' else 'bound'),
    dict(sizes=len(SIZES) * [1], grows=grows),
    {},
  ):
    other, _ = rules.polyak(losses, GRADIENTS, **settings, **neighbour)
    assert running.differs(expected, other)


@pytest.mark.parametrize('grows', ['bound', 'step'])
def test_polyak_smoothing_counts_what_the_client_has(grows):
  """m_i is the client's data, of which a round may iterate a part."""
  settings = dict(c=0.2, gamma_b=1.0, lower_bound=0.0)
  optimizer = optimizers.client(
    'polyak', smoothing=grows, client_examples=120, **settings
  )
  assert not optimizer.needs_client_size
  path, steps = running.run_client(optimizer, GRADIENTS, LOSSES, SIZES)
  expected, gammas = rules.polyak(
    LOSSES, GRADIENTS, **settings, sizes=SIZES, grows=grows, examples=120
  )
  close(path, expected)
  np.testing.assert_allclose([s for s, _ in steps], gammas, rtol=1e-3)
  iterated, _ = rules.polyak(
    LOSSES, GRADIENTS, **settings, sizes=SIZES, grows=grows
  )
  assert running.differs(expected, iterated)


def test_polyak_bound_after_five_steps_of_twenty():
  """Section 6 on a client of 600 examples: 2^(4 * 20 / 600) = 1.10."""
  constant = 5 * [lambda x: np.ones(3)]
  steep = 5 * [lambda x: 100.0]  # The ratio is far above any bound.
  for examples, bound in ((600, 1.097), (None, 1.741)):
    optimizer = optimizers.client(
      'polyak', smoothing='bound', client_examples=examples
    )
    _, steps = running.run_client(optimizer, constant, steep, 5 * [20])
    assert steps[-1] == (pytest.approx(bound, abs=1e-3), True)


@pytest.mark.parametrize(
  'settings', [dict(smoothing='bound', gamma_b=0.4), dict(client_examples=600)]
)
def test_what_no_smoothing_looks_at_is_refused(settings):
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    optimizers.client('polyak', **settings)


def test_polyak_below_its_lower_bound_takes_no_step():
  optimizer = optimizers.client('polyak', lower_bound=100.0)
  path, steps = running.run_client(optimizer, GRADIENTS, LOSSES)
  close(path, [rules.START] * len(GRADIENTS))
  assert {s for s, _ in steps} == {0.0}


def test_polyak_without_gradient_does_not_move():
  optimizer = optimizers.client('polyak', gamma_b=0.7)
  path, steps = running.run_client(
    optimizer, [lambda x: np.zeros(3)], [lambda x: 1.0]
  )
  close(path, [rules.START])
  assert steps == [(pytest.approx(0.7), True)]
  # Nor does it count as a step where the loss has nothing left to lose.
  _, steps = running.run_client(
    optimizer, [lambda x: np.zeros(3)], [lambda x: 0.0]
  )
  assert steps == [(0.0, False)]


def test_polyak_says_what_it_lacks():
  optimizer = optimizers.client('polyak')
  weights = running.start()
  state = optimizer.initialize(running.specs(weights))
  with pytest.raises(TypeError, match='batch'):
    optimizer.next(state, weights, weights)


@pytest.mark.parametrize('z', [1, 3])
def test_adagrad(z):
  optimizer = optimizers.client(
    'adagrad', learning_rate=0.1, epsilon=0.01, delay=z
  )
  path, _ = running.run_client(optimizer, GRADIENTS)
  close(path, rules.client_adagrad(GRADIENTS, 0.1, 0.01, z))


@pytest.mark.parametrize('z', [1, 3])
def test_adam(z):
  optimizer = optimizers.client(
    'adam', learning_rate=0.1, beta_1=0.8, beta_2=0.9, epsilon=0.01, delay=z
  )
  path, _ = running.run_client(optimizer, GRADIENTS)
  close(path, rules.client_adam(GRADIENTS, 0.1, 0.8, 0.9, 0.01, z))


def test_adam_with_a_start_of_its_own():
  """Algorithm 8: v_0 >= 0, and the printed correction of v."""
  optimizer = optimizers.client(
    'adam',
    learning_rate=0.1,
    beta_1=0.8,
    beta_2=0.9,
    epsilon=0.01,
    initial_accumulator=0.3,
  )
  path, _ = running.run_client(optimizer, GRADIENTS)
  expected = rules.client_adam(GRADIENTS, 0.1, 0.8, 0.9, 0.01, 1, v_start=0.3)
  close(path, expected)
  assert running.differs(
    expected, rules.client_adam(GRADIENTS, 0.1, 0.8, 0.9, 0.01, 1)
  )


def test_delays_are_told_apart():
  for rule, settings in (
    (rules.client_adagrad, (0.1, 0.01)),
    (rules.client_adam, (0.1, 0.8, 0.9, 0.01)),
  ):
    paths = [rule(GRADIENTS, *settings, z) for z in (1, 2, 3)]
    assert running.differs(paths[0], paths[1])
    assert running.differs(paths[1], paths[2])


def test_adam_without_delay_is_keras_adam_with_epsilon_moved():
  """Keras adds epsilon to the uncorrected root: equal where epsilon is 0."""
  optimizer = optimizers.client(
    'adam', learning_rate=0.1, beta_1=0.8, beta_2=0.9, epsilon=0.0
  )
  path, _ = running.run_client(optimizer, GRADIENTS)
  keras = tf.keras.optimizers.Adam(0.1, 0.8, 0.9, epsilon=1e-30)
  variable, theirs = tf.Variable(rules.START.astype(np.float32)), []
  for gradient in GRADIENTS:
    g = tf.constant(gradient(variable.numpy()), tf.float32)
    keras.apply_gradients([(g, variable)])
    theirs.append(variable.numpy())
  close(path, theirs)


@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_sgd(momentum):
  optimizer = optimizers.client('sgd', learning_rate=0.1, momentum=momentum)
  path, _ = running.run_client(optimizer, GRADIENTS)
  m = np.zeros(3)

  def step(_, x, g):
    nonlocal m
    m = momentum * m + g
    return x - 0.1 * m

  close(path, rules.client_path(GRADIENTS, step))
