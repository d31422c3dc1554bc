"""SCAFFOLD, option II, batched, against NumPy."""

import numpy as np
import pytest

from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.05
ROUNDS = [(0, 1), (0, 2), (1, 2), (0, 1)]


def scaffold(
  rounds, population, weight=linear.num_examples, rate=lambda r, k: RATE
):
  """Algorithm 6 of Adaptive Federated Optimization on the linear model.

  `rate(r, k)` is that of round r's local step k, both from 0.
  """
  x, c, own, path = linear.START, 0.0, {}, []
  for r, cohort in enumerate(rounds):
    ends, changes, weights = [], [], []
    for i in cohort:
      c_i = own.get(i, c)
      w, batches = x, linear.CLIENTS[i]
      rates = [rate(r, k) for k in range(len(batches))]
      for batch, eta in zip(batches, rates):
        w = w - eta * (linear.gradient(w, batch) - c_i + c)
      renewed = c_i - c + (x - w) / sum(rates)
      ends.append(w)
      changes.append(renewed - c_i)
      weights.append(weight(batches))
      own[i] = renewed
    c = c + len(cohort) / population * np.average(changes, weights=weights)
    x = np.average(ends, weights=weights)
    path.append(x)
  return path, c, own


def run(process, rounds):
  state, memories, path = process.initialize(), {}, []
  for cohort in rounds:
    output = process.next(
      state,
      [memories.get(i, process.initialize_client_state()) for i in cohort],
      linear.datasets([linear.CLIENTS[i] for i in cohort]),
    )
    state = output.state
    memories.update(zip(cohort, output.client_states))
    path.append(linear.weight_of(process, state))
  return path, state, memories


@pytest.mark.parametrize(
  'weighting', tiers.exhaustive_but(['examples'], ['examples', 'uniform'])
)
def test_rounds(weighting):
  process = algorithms.build(
    'scaffold',
    linear.model_fn,
    client_learning_rate=RATE,
    population=3,
    client_weighting=weighting,
  )
  assert algorithms.is_stateful(process)
  path, state, memories = run(process, ROUNDS)
  weight = linear.num_examples if weighting == 'examples' else lambda _: 1
  expected, c, own = scaffold(ROUNDS, 3, weight)
  np.testing.assert_allclose(path, expected, rtol=1e-4)
  statistics = state.client_work.statistics
  np.testing.assert_allclose(statistics['c'][0][0][0], c, rtol=1e-4)
  for i, memory in memories.items():
    assert memory['seen']
    np.testing.assert_allclose(memory['c'][0][0][0], own[i], rtol=1e-4)


def test_inputs_tell_scaffold_from_its_neighbours():
  path, _, _ = scaffold(ROUNDS, 3)
  full, _, _ = scaffold(ROUNDS, 2)
  fedavg, x = [], linear.START
  for cohort in ROUNDS:
    clients = [linear.CLIENTS[i] for i in cohort]
    x = x + linear.round_update(x, linear.sgd(RATE), clients)
    fedavg.append(x)
  assert not np.allclose(path, full, rtol=1e-3)
  assert not np.allclose(path, fedavg, rtol=1e-3)


@pytest.mark.exhaustive
def test_without_a_population_the_cohort_is_all_there_is():
  rounds = [(0, 1, 2)] * 3
  process = algorithms.build(
    'scaffold', linear.model_fn, client_learning_rate=RATE
  )
  path, _, _ = run(process, rounds)
  np.testing.assert_allclose(path, scaffold(rounds, 3)[0], rtol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'settings,share',
  [
    (
      dict(
        client_lr_schedule='exp_decay',
        client_lr_decay_steps=1,
        client_lr_decay_rate=0.5,
      ),
      lambda r, k: 0.5**r,
    ),
    # Clients do one to three steps: fewer than two, two, and more.
    (dict(client_warmup_steps=2), lambda r, k: min(1, (k + 1) / 2)),
  ],
)
def test_changing_rates_reach_the_control_variates(settings, share):
  process = algorithms.build(
    'scaffold',
    linear.model_fn,
    client_learning_rate=RATE,
    population=3,
    **settings,
  )
  path, _, memories = run(process, ROUNDS)
  expected, _, own = scaffold(ROUNDS, 3, rate=lambda r, k: RATE * share(r, k))
  np.testing.assert_allclose(path, expected, rtol=1e-4)
  for i, memory in memories.items():
    np.testing.assert_allclose(memory['c'][0][0][0], own[i], rtol=1e-4)


def test_bad_and_empty_clients_keep_what_they_had():
  process = algorithms.build('scaffold', linear.model_fn, population=3)
  state = process.initialize()
  fresh = process.initialize_client_state()
  first = process.next(state, [fresh], linear.datasets([linear.CLIENTS[0]]))
  kept = first.client_states[0]
  nan = [([float('nan')], [1.0])]
  output = process.next(
    first.state,
    [kept, fresh, fresh],
    linear.datasets([nan, [], linear.CLIENTS[1]]),
  )
  np.testing.assert_array_equal(output.client_states[0]['c'][0], kept['c'][0])
  assert not output.client_states[1]['seen']
  assert output.client_states[2]['seen']
  alone = process.next(
    first.state, [fresh], linear.datasets([linear.CLIENTS[1]])
  )
  assert linear.weight_of(process, output.state) == linear.weight_of(
    process, alone.state
  )
  np.testing.assert_allclose(
    output.state.client_work.statistics['c'][0],
    alone.state.client_work.statistics['c'][0],
  )


def test_stateful_processes_set_weights_and_hyperparameters():
  process = algorithms.build('scaffold', linear.model_fn)
  state = process.initialize()
  weights = process.get_model_weights(state)
  weights = weights.__class__([np.array([[2.0]], np.float32)], [])
  state = process.set_model_weights(state, weights)
  assert linear.weight_of(process, state) == 2.0
  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = np.float32(0.0)
  state = process.set_hparams(state, hparams)
  output = process.next(
    state, [process.initialize_client_state()], linear.datasets()[:1]
  )
  assert linear.weight_of(process, output.state) == 2.0
