"""DoG, Prodigy and schedule-free SGD against the papers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive.optimizers import protocol

from . import rules
from . import running

# Batch k has the loss sum(a_k (x - b_k)^2) / 2.
GRADIENTS = [
  lambda x, a=a, b=b: np.array(a) * (x - np.array(b))
  for a, b in (
    ((1.0, 3.0, 0.5), (0.0, 0.5, 0.0)),
    ((2.0, 0.3, 1.5), (0.3, -0.5, 1.0)),
    ((0.2, 1.0, 4.0), (2.0, 0.0, -0.4)),
    ((1.5, 2.5, 0.1), (-1.0, 0.2, 0.0)),
  )
] * 3
SETTINGS = {
  'dog': {'learning_rate': 0.7, 'r_epsilon': 1e-2, 'epsilon': 1e-8},
  'prodigy': {'learning_rate': 0.8, 'epsilon': 1e-30, 'd_0': 1e-2},
  'schedule_free_sgd': {'learning_rate': 0.3, 'beta_1': 0.8},
}


def dog(
  gradients, learning_rate, r_epsilon, epsilon, start=rules.START, late=False
):
  """`late` leaves the current gradient out of G."""
  x, r, total = start, r_epsilon * (1 + np.linalg.norm(start)), epsilon
  path, steps = [], []
  for gradient in gradients:
    g = np.asarray(gradient(x))
    r = max(r, np.linalg.norm(x - start))
    before, total = total, total + np.sum(g**2)
    steps.append(learning_rate * r / np.sqrt(before if late else total))
    x = x - steps[-1] * g
    path.append(x)
  return path, steps


def prodigy(
  gradients,
  learning_rate,
  epsilon,
  d_0,
  beta_1=0.9,
  beta_2=0.999,
  start=rules.START,
  corrects=False,
  grows=True,
):
  """`corrects` the bias, as optax does; a d that never `grows` is Adam's."""
  x, d, r, path, ds = start, d_0, 0.0, [], []
  s = m = v = np.zeros_like(start)
  for k, gradient in enumerate(gradients, start=1):
    g = np.asarray(gradient(x))
    eta = learning_rate
    if corrects:
      eta *= np.sqrt(1 - beta_2**k) / (1 - beta_1**k)
    m = beta_1 * m + (1 - beta_1) * d * g
    v = beta_2 * v + (1 - beta_2) * d**2 * g**2
    r = np.sqrt(beta_2) * r + eta * d**2 * np.sum(g * (start - x))
    s = np.sqrt(beta_2) * s + eta * d**2 * g
    x = x - eta * d * m / (np.sqrt(v) + d * epsilon)
    ds.append(eta * d)
    if grows:
      d = max(d, r / np.sum(np.abs(s)))
    path.append(x)
  return path, ds


def schedule_free_sgd(
  gradients, learning_rate, beta_1, start=rules.START, sends='x', rates=None
):
  x = z = start
  path, total = [], 0.0
  for k, gradient in enumerate(gradients):
    eta = learning_rate * (rates[k] if rates else 1.0)
    y = (1 - beta_1) * z + beta_1 * x
    z = z - eta * np.asarray(gradient(y))
    total += eta**2
    x = (1 - eta**2 / total) * x + eta**2 / total * z
    sent = {'x': x, 'z': z, 'y': (1 - beta_1) * z + beta_1 * x}
    path.append(sent[sends])
  return path


PAPERS = {
  'dog': lambda *a, **k: dog(*a, **k)[0],
  'prodigy': lambda *a, **k: prodigy(*a, **k)[0],
  'schedule_free_sgd': schedule_free_sgd,
}


@pytest.mark.parametrize('name', PAPERS)
def test_rules(name):
  optimizer = optimizers.client(name, **SETTINGS[name])
  path, _ = running.run_client(optimizer, GRADIENTS)
  expected = PAPERS[name](GRADIENTS, **SETTINGS[name])
  np.testing.assert_allclose(path, expected, rtol=2e-4, atol=1e-5)


def test_inputs_tell_the_rules_from_their_neighbours():
  here = SETTINGS['dog']
  path, _ = dog(GRADIENTS, **here)
  for other in (
    dog(GRADIENTS, **here, late=True)[0],
    dog(GRADIENTS, **(here | {'r_epsilon': 1e-3}))[0],
    rules.client_path(GRADIENTS, lambda k, x, g: x - 0.01 * g),
  ):
    assert running.differs(path, other)
  here = SETTINGS['prodigy']
  path, _ = prodigy(GRADIENTS, **here)
  for other in (
    prodigy(GRADIENTS, **here, corrects=True)[0],
    prodigy(GRADIENTS, **here, grows=False)[0],
    prodigy(GRADIENTS, **here, beta_2=0.99)[0],
  ):
    assert running.differs(path, other)
  here = SETTINGS['schedule_free_sgd']
  path = schedule_free_sgd(GRADIENTS, **here)
  for other in (
    schedule_free_sgd(GRADIENTS, **here, sends='y'),
    schedule_free_sgd(GRADIENTS, **here, sends='z'),
    schedule_free_sgd(GRADIENTS, **(here | {'beta_1': 0.0})),
  ):
    assert running.differs(path, other)


@pytest.mark.parametrize('name, rule', [('dog', dog), ('prodigy', prodigy)])
def test_step_sizes_are_what_was_used(name, rule):
  optimizer = optimizers.client(name, **SETTINGS[name])
  _, steps = running.run_client(optimizer, GRADIENTS)
  _, expected = rule(GRADIENTS, **SETTINGS[name])
  np.testing.assert_allclose([s for s, _ in steps], expected, rtol=1e-4)
  assert expected[-1] > 1.5 * expected[0]  # It grows, and below no bound.
  assert not any(at_bound for _, at_bound in steps)


@pytest.mark.parametrize('name', PAPERS)
def test_without_a_gradient_nothing_moves(name):
  nothing = [lambda x: np.zeros(3)] * 3
  accepted = optimizers.parameters_of('client', name)
  more = {'epsilon': 0.0} if 'epsilon' in accepted else {}
  optimizer = optimizers.client(name, **more)
  path, _ = running.run_client(optimizer, nothing)
  np.testing.assert_array_equal(path, [rules.START] * 3)


def test_schedule_free_says_what_it_lacks():
  optimizer = optimizers.client('schedule_free_sgd')
  state = optimizer.initialize(tf.TensorSpec([]))
  with pytest.raises(TypeError, match='Schedule-free SGD needs the batch'):
    optimizer.next(state, tf.constant(1.0), tf.constant(1.0))


@pytest.mark.exhaustive
def test_schedule_free_weighs_by_the_rates_of_a_warm_up(in_process_context):
  del in_process_context
  process = algorithms.build(
    'fedavg',
    linear.model_fn,
    client_optimizer='schedule_free_sgd',
    client_learning_rate=0.05,
    client_warmup_steps=3,
    client_lr_schedule='exp_decay',
    client_lr_decay_steps=1,
    client_lr_decay_rate=0.5,
  )
  weights, _ = linear.run(process, 2)

  def local(w, batches, rate):
    gradients = [
      lambda x, b=batch: np.array([linear.gradient(x[0], b)])
      for batch in batches
    ]
    return schedule_free_sgd(
      gradients, rate, 0.9, np.array([w]), rates=[1 / 3, 2 / 3, 1.0]
    )[-1][0]

  x, path = linear.START, []
  for rate in (0.05, 0.025):
    x += linear.round_update(x, lambda w, b, rate=rate: local(w, b, rate))
    path.append(x)
  np.testing.assert_allclose(weights, path, rtol=1e-5)


def test_a_mix_of_clients_takes_each_gradient_where_it_belongs():
  blended = optimizers.client(
    'blended', client_mix='sgd=0.5,schedule_free_sgd=0.5'
  )
  weights = running.start()
  state = blended.initialize(running.specs(weights))
  states = list(state['states'])
  states[1]['ahead'] = running.split([1.0, 1.0, 1.0])
  for index, beyond in ((0, 0.0), (1, 0.1)):
    drawn = {**state, 'optimizer': tf.constant(index), 'states': tuple(states)}
    point = blended.gradient_point(drawn, weights, ())
    np.testing.assert_allclose(
      running.join(point), rules.START + beyond, rtol=1e-6
    )
  plain = optimizers.client('blended', client_mix='sgd=0.5,adam=0.5')
  state = plain.initialize(running.specs(weights))
  assert plain.gradient_point(state, weights, ()) is None
  assert isinstance(plain, protocol.LocalOptimizer)
