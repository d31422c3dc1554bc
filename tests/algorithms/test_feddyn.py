"""FedDyn against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ALPHA = 0.2, 0.4
ROUNDS = [(0, 1), (0, 2), (1, 2), (0, 1)]


def feddyn(rounds=ROUNDS, population=3, neighbour=None):
  x, h, own, path = dense.START, np.zeros(8), {}, []
  for cohort in rounds:
    updates = []
    for i in cohort:
      gradient, w = own.get(i, np.zeros(8)), x
      for batch in dense.CLIENTS[i]:
        g = dense.gradient(w, batch) - gradient + ALPHA * (w - x)
        w = w - RATE * g
      own[i] = gradient - ALPHA * (w - x)
      updates.append(w - x)
    mean, before = dense.average(updates, cohort), h
    h = h - ALPHA * len(cohort) / population * mean
    x = x + mean - (before if neighbour == 'old h' else h) / ALPHA
    if neighbour == 'h is not learned':
      h = np.zeros(8)
    path.append(x)
  return path, h, own


def build(**more):
  return algorithms.build(
    'feddyn',
    dense.model(),
    client_learning_rate=RATE,
    proximal_strength=ALPHA,
    **more,
  )


def flat(tensors):
  return np.concatenate([np.ravel(t) for t in tensors])


@pytest.fixture(name='process', scope='module')
def process_fixture(in_process_context):
  del in_process_context
  return build(population=3)


def test_rounds(process):
  assert algorithms.is_stateful(process)
  path, state, memories = dense.run(process, ROUNDS)
  expected, h, own = feddyn()
  dense.close(path, expected)
  dense.close(flat(state.client_work.statistics['h']), h)
  for i, memory in memories.items():
    dense.close(flat(memory['gradient']), own[i])


def test_inputs_tell_feddyn_from_its_neighbours():
  path, _, _ = feddyn()
  assert dense.differ(path, feddyn(population=2)[0])
  for neighbour in ('old h', 'h is not learned'):
    assert dense.differ(path, feddyn(neighbour=neighbour)[0]), neighbour
  assert dense.differ(path, dense.fedavg(ROUNDS, RATE, mu=ALPHA))


def test_the_first_round_of_all_goes_twice_as_far(process):
  """x_1 = x_0 + 2 Delta, as the rule is written."""
  path, _, _ = dense.run(process, [(0, 1, 2)])
  (one,) = dense.fedavg([(0, 1, 2)], RATE, mu=ALPHA)
  dense.close(path[0], dense.START + 2 * (one - dense.START))


@pytest.mark.exhaustive
def test_its_fixed_point_is_stationary(process):
  """Where federated averaging stops elsewhere, having clients that drift."""
  # Every client's steps are on all of its data.
  whole = [
    [tuple(np.concatenate(part) for part in zip(*client))] * steps
    for client, steps in zip(dense.CLIENTS, (3, 1, 2))
  ]
  sizes = [3 * dense.num_examples(dense.CLIENTS[0]), 3, 6]
  assert [dense.num_examples(client) for client in whole] == sizes

  def gradient(x):
    gradients = [dense.gradient(x, client[0]) for client in whole]
    return np.linalg.norm(np.average(gradients, axis=0, weights=sizes))

  everyone = [(0, 1, 2)] * 400
  path, _, _ = dense.run(process, everyone, whole)
  assert gradient(path[-1]) < 1e-4
  x = dense.START
  for _ in everyone:
    ends = [dense.sgd(x, client, RATE) for client in whole]
    x = np.average(ends, axis=0, weights=sizes)
  assert gradient(x) > 0.01


def test_bad_clients_keep_what_they_had(process):
  states = dense.keeps(process, 'gradient')
  # Nor does a round without anybody move the server.
  dense.close(*(dense.weights_of(process, state) for state in states))
  before, after = (flat(s.client_work.statistics['h']) for s in states)
  np.testing.assert_array_equal(before, after)


def test_what_is_refused():
  with pytest.raises(parameters.ParameterError, match='does not use it'):
    algorithms.check('feddyn', server_learning_rate=0.5)
  with pytest.raises(parameters.ParameterError, match='above 0, got 0'):
    algorithms.check('feddyn', proximal_strength=0.0)
  with pytest.raises(parameters.ParameterError, match='their participation'):
    algorithms.check('feddyn', dp_clip_norm=1.0, dp_clients_per_round=2)
