"""FAdamGC against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ETA, BETA_1, BETA_2, EPSILON, ALL = 0.1, 0.8, 0.7, 0.6, 0.01, 4
# New clients, one that comes back, and two that come back together.
ROUNDS = [(0, 1), (1, 2), (0, 1, 2)]


def amsgrad(x, client, correction, entry='gradient', largest=True):
  """`entry` tells where the correction enters: gradient, step, or nowhere."""
  m, v, v_max, raw = np.zeros(8), np.zeros(8), np.zeros(8), []
  for batch in client:
    g = dense.gradient(x, batch)
    raw.append(g)
    if entry == 'gradient':
      g = g + correction
    m = BETA_1 * m + (1 - BETA_1) * g
    v = BETA_2 * v + (1 - BETA_2) * g**2
    v_max = np.maximum(v_max, v) if largest else v
    step = m / (np.sqrt(v_max) + EPSILON)
    if entry == 'step':
      step = step + correction
    x = x - RATE * step
  return x, np.mean(raw, axis=0)


def fadamgc(rounds=ROUNDS, population=ALL, **local):
  x, y, own, path = dense.START, np.zeros(8), {}, []
  for cohort in rounds:
    updates, changes = [], []
    for i in cohort:
      old = own.get(i, y)
      end, new = amsgrad(x, dense.CLIENTS[i], y - old, **local)
      updates.append(end - x)
      changes.append(new - old)
      own[i] = new
    x = x + ETA * dense.average(updates, cohort)
    y = y + len(cohort) / population * dense.average(changes, cohort)
    path.append(x)
  return path, own


def build(**more):
  settings = dict(
    client_learning_rate=RATE,
    client_beta_1=BETA_1,
    client_beta_2=BETA_2,
    client_adaptivity=EPSILON,
    server_learning_rate=ETA,
    population=ALL,
  )
  return algorithms.build('fadamgc', dense.model(), **(settings | more))


def test_rounds():
  path, _, memories = dense.run(build(), ROUNDS)
  expected, own = fadamgc()
  dense.close(path, expected)
  for i, memory in memories.items():
    found = np.concatenate([np.ravel(t) for t in memory['c']])
    dense.close(found, own[i], rtol=1e-3)
  assert dense.differ(expected, fadamgc(entry='step')[0])
  assert dense.differ(expected, fadamgc(largest=False)[0])
  assert dense.differ(expected, fadamgc(population=2)[0])
  # While every client is new there is nothing to correct.
  plain = fadamgc(entry='nowhere')[0]
  np.testing.assert_array_equal(expected[0], plain[0])
  assert dense.differ(expected, plain)


@pytest.mark.exhaustive
def test_bad_clients_keep_their_control_variate():
  dense.keeps(build(), 'c')
