"""Local-AdaAlter and Local-AMSGrad against NumPy."""

import numpy as np
import pytest

from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, EPSILON = 0.1, 0.7


def averages(values, weight=linear.num_examples):
  weights = [weight(batches) for batches in linear.CLIENTS]
  return [np.average(column, weights=weights) for column in zip(*values)]


def adaalter(rounds, start, departure=None):
  x, b2, path = linear.START, start, []
  for _ in range(rounds):
    ends = []
    for batches in linear.CLIENTS:
      w, a2 = x, b2
      for j, batch in enumerate(batches, start=1):
        g = linear.gradient(w, batch)
        if departure == 'accumulates first':
          w = w - RATE * g / np.sqrt(a2 + g**2 + j * EPSILON**2)
        elif departure == 'constant epsilon':
          w = w - RATE * g / np.sqrt(b2 + EPSILON**2)
        else:
          w = w - RATE * g / np.sqrt(b2 + j * EPSILON**2)
        a2 = a2 + g**2
      ends.append((w, a2))
    x, b2 = averages(ends)
    path.append(x)
  return path


@pytest.mark.parametrize('start', tiers.exhaustive_but([2.0], [None, 2.0]))
def test_local_adaalter(start):
  more = {} if start is None else {'initial_accumulator': start}
  process = algorithms.build(
    'local_adaalter',
    linear.model_fn,
    client_learning_rate=RATE,
    client_adaptivity=EPSILON,
    **more,
  )
  weights, _ = linear.run(process, 3)
  first = EPSILON**2 if start is None else start
  expected = adaalter(3, first)
  np.testing.assert_allclose(weights, expected, rtol=1e-4)
  for departure in ('accumulates first', 'constant epsilon'):
    assert not np.allclose(expected, adaalter(3, first, departure), rtol=1e-3)
  assert not np.allclose(expected, adaalter(3, 0.1), rtol=1e-3)


def amsgrad(rounds, beta_1, beta_2, epsilon, local_max=False, keeps=True):
  x, m, v, v_max, path = linear.START, 0.0, epsilon, epsilon, []
  for _ in range(rounds):
    ends = []
    for batches in linear.CLIENTS:
      w, own_m, own_v, divisor = x, m, v, v_max
      for batch in batches:
        g = linear.gradient(w, batch)
        own_m = beta_1 * own_m + (1 - beta_1) * g
        own_v = beta_2 * own_v + (1 - beta_2) * g**2
        if local_max:
          divisor = max(divisor, own_v)
        w = w - RATE * own_m / np.sqrt(divisor)
      ends.append((w, own_m, own_v))
    x, m, v = averages(ends)
    v_max = max(v_max, v) if keeps else v
    path.append(x)
  return path


def test_local_amsgrad():
  settings = dict(beta_1=0.8, beta_2=0.6)
  process = algorithms.build(
    'local_amsgrad',
    linear.model_fn,
    client_learning_rate=RATE,
    client_adaptivity=EPSILON,
    **settings,
  )
  weights, _ = linear.run(process, 4)
  expected = amsgrad(4, 0.8, 0.6, EPSILON)
  np.testing.assert_allclose(weights, expected, rtol=1e-4)
  assert not np.allclose(
    expected, amsgrad(4, 0.8, 0.6, EPSILON, local_max=True), rtol=1e-3
  )
  assert not np.allclose(
    expected, amsgrad(4, 0.8, 0.6, EPSILON, keeps=False), rtol=3e-4
  )


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', ['local_adaalter', 'local_amsgrad'])
def test_the_statistics_of_bad_clients_are_left_out(name):
  process = algorithms.build(name, linear.model_fn)
  alone, _ = linear.run(process, 2)
  nan, overflow = [([float('nan')], [1.0])], [([1e12], [1e12])]
  weights, metrics = linear.run(
    process, 2, [*linear.CLIENTS, nan, overflow, []]
  )
  np.testing.assert_allclose(weights, alone, rtol=1e-5)
  assert metrics['client_work']['clients']['rejected'] == 2


@pytest.mark.parametrize('name', ['local_adaalter', 'local_amsgrad'])
def test_both_sides_belong_to_the_method(name):
  with pytest.raises(parameters.ParameterError, match='server optimizer'):
    algorithms.check(name, server_optimizer='adam')
