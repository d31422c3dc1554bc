"""FedAda2 with blended clients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

# One client after the other, so that each one's update can be read off the
# server: plain averaging of one client is that client.
ALONE = [[batches] for batches in linear.CLIENTS]


def build(**settings):
  return algorithms.build(
    'fedada2_blended',
    linear.model_fn,
    server_optimizer='adagrad',
    server_learning_rate=0.5,
    server_adaptivity=0.5,
    **settings,
  )


def step_counts(process, clients):
  output = process.next(process.initialize(), linear.datasets(clients))
  return int(output.metrics['client_work']['clients']['steps'])


@pytest.mark.exhaustive
def test_draws_repeat_and_follow_seed_and_round():
  """SGD with two very different rates shows who drew what."""
  settings = dict(
    client_mix='sgd=0.5,adagrad=0.5',
    client_learning_rates='sgd=0.05,adagrad=1e-9',
  )
  process = build(**settings)

  def moved(process, rounds=12):
    state, pattern = process.initialize(), []
    for r in range(rounds):
      output = process.next(state, linear.datasets(ALONE[r % 3]))
      pattern.append(float(output.metrics['finalizer']['update_norm']) > 1e-6)
      state = output.state
    return pattern

  pattern = moved(process)
  assert pattern == moved(process)
  assert 1 < sum(pattern) < 11
  assert pattern != moved(build(**settings, seed=1))


@pytest.mark.exhaustive
def test_fewer_epochs_are_fewer_steps():
  clients = [[([1.0], [float(i)])] * 4 for i in range(12)]
  everything = build(epochs_mix='2=1')
  assert step_counts(everything, clients) == 48
  some = step_counts(build(epochs_mix='1=0.5,2=0.5'), clients)
  assert 24 < some < 48
  assert step_counts(build(epochs_mix='1=1'), clients) == 48


def test_a_part_of_the_batches_is_rounded_up():
  optimizer = optimizers.client('blended', epochs_mix='1=1,2=0')
  state = optimizer.initialize((tf.TensorSpec([1]),))
  for batches, used in ((4, 2), (3, 2), (1, 1), (0, 0)):
    seed, count = tf.constant([3, 5]), tf.constant(batches, tf.int64)
    assert optimizer.draw(state, seed, count)[1] == used


@pytest.mark.exhaustive
def test_the_optimizer_drawn_decides_epochs_delay_start_and_weight():
  """Algorithm 5, client after client, with the draws read off the steps.

  Weights of a mean would cancel where a round has one client: they scale.
  """
  mix = dict(
    client_mix='adagrad=0.5,sgd=0.5',
    client_learning_rates='adagrad=0.3,sgd=0.05',
    client_epochs='adagrad=1,sgd=2',
    client_delays='adagrad=2',
    client_starts='adagrad=0.7',
    client_weights='adagrad=3,sgd=0.25',
    # What optimizers have of their own is not drawn.
    delay_mix='1=1',
    epochs_mix='2=1',
  )
  process = algorithms.build(
    'fedada2_blended',
    linear.model_fn,
    server_optimizer='adagrad',
    server_learning_rate=0.5,
    server_adaptivity=0.5,
    seed=3,
    **mix,
  )
  twice = [2 * batches for batches in linear.CLIENTS]

  def adagrad(w, batches):
    v, start = 0.7, w
    for k, batch in enumerate(batches[: len(batches) // 2]):
      g = linear.gradient(w, batch)
      v = v + g**2 if k % 2 == 0 else v
      w = w - 0.3 * g / (np.sqrt(v) + 1e-5)
    return 3 * (w - start)

  def sgd(w, batches):
    start = w
    for batch in batches:
      w = w - 0.05 * linear.gradient(w, batch)
    return 0.25 * (w - start)

  state, w, v, seen = process.initialize(), linear.START, 0.25, set()
  for r in range(6):
    batches = twice[r % 3]
    output = process.next(state, linear.datasets([batches]))
    state = output.state
    steps = output.metrics['client_work']['clients']['steps']
    local = sgd if steps == len(batches) else adagrad
    seen.add(local.__name__)
    delta = local(w, batches)
    v = v + delta**2
    w = w + 0.5 * delta / (np.sqrt(v) + 0.5)
    assert linear.weight_of(process, state) == pytest.approx(w, rel=1e-4)
  assert seen == {'adagrad', 'sgd'}


@pytest.mark.parametrize(
  'settings,words',
  [
    (dict(client_mix='adam=0.5,sgd=0.4'), 'must sum to 1, got 0.9'),
    (dict(client_mix='adam'), 'each choice once with its probability'),
    (dict(client_mix='adam=-1,sgd=2'), 'each choice once with its probability'),
    (dict(client_mix='adamz=1'), 'may name adagrad, adam'),
    (dict(delay_mix='0=1'), 'whole numbers at least 1'),
    (dict(epochs_mix='x=1'), 'whole numbers at least 1'),
    (dict(client_learning_rates='sgd=0'), 'above 0, got 0'),
    (dict(client_learning_rates='delta_sgd=1'), 'that have one'),
    (dict(client_delays='sgd=2'), 'that have one'),
    (dict(client_starts='adam=-1'), 'at least 0, got -1'),
    (dict(client_epochs='adam=0'), 'at least 1, got 0'),
    (dict(client_weights='adam=1,adam=2'), 'once each'),
    (dict(client_weights='adam=0'), 'above 0, got 0'),
  ],
)
def test_mixes_that_make_no_sense(settings, words):
  with pytest.raises(parameters.ParameterError, match=words):
    build(**settings)
