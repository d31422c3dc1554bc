"""FedAdamW against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ALPHA, DECAY, BETA_1, BETA_2, EPSILON = 0.05, 0.4, 0.2, 0.8, 0.9, 1e-3
ROUNDS = [(0, 1), (1, 2), (0, 1, 2)]


def of_variables(v):
  """Each variable's mean, in all of its coordinates."""
  means = [np.full(part.size, part.mean()) for part in dense.parts(v)]
  return np.concatenate(means)


def fedadamw(decay=DECAY, neighbour=None, shares=(1.0, 1.0, 1.0)):
  x, path = dense.START, []
  shared, direction, count = np.zeros(8), np.zeros(8), 0
  for cohort in ROUNDS:
    updates, moments, paths, steps = [], [], [], []
    for i in cohort:
      w, m, v = x, np.zeros(8), shared
      for k, batch in enumerate(dense.CLIENTS[i], start=1):
        g = dense.gradient(w, batch)
        m = BETA_1 * m + (1 - BETA_1) * g
        v = BETA_2 * v + (1 - BETA_2) * g**2
        total = k if neighbour == 'v counts in the round' else count + k
        m_hat, v_hat = m / (1 - BETA_1**k), v / (1 - BETA_2**total)
        step = m_hat / (np.sqrt(v_hat) + EPSILON)
        w = w - shares[k - 1] * RATE * (step + ALPHA * direction + decay * w)
      updates.append(w - x)
      moments.append(v if neighbour == 'all of v' else of_variables(v))
      steps.append(len(dense.CLIENTS[i]))
      paths.append(RATE * sum(shares[: steps[-1]]))
    mean = dense.average(updates, cohort)
    shared = dense.average(moments, cohort)
    direction = -mean / dense.average(paths, cohort)
    if neighbour == 'v starts afresh':
      shared = np.zeros(8)
    count += max(steps)
    x = x + mean
    path.append(x)
  return path, shared, direction, count


@pytest.mark.parametrize(
  'warm_up', [2, pytest.param(0, marks=pytest.mark.slow)]
)
def test_rounds(warm_up):
  process = algorithms.build(
    'fedadamw',
    dense.model(),
    client_learning_rate=RATE,
    alpha=ALPHA,
    weight_decay=DECAY,
    client_beta_1=BETA_1,
    client_beta_2=BETA_2,
    client_adaptivity=EPSILON,
    client_warmup_steps=warm_up,
  )
  path, state, _ = dense.run(process, ROUNDS)
  shares = (0.5, 1.0, 1.0) if warm_up else (1.0, 1.0, 1.0)
  expected, moments, direction, count = fedadamw(shares=shares)
  dense.close(path, expected)
  statistics = state.client_work.statistics
  assert statistics['count'] == count == 8
  dense.close(statistics['v'], [moments[0], moments[-1]])
  found = np.concatenate([np.ravel(t) for t in statistics['direction']])
  dense.close(found, direction, rtol=1e-3)


def test_inputs_tell_fedadamw_from_its_neighbours():
  path, *_ = fedadamw()
  for neighbour in ('v counts in the round', 'all of v', 'v starts afresh'):
    assert dense.differ(path, fedadamw(neighbour=neighbour)[0]), neighbour
  # The transcribed formula's sign, against the text and the code.
  assert dense.differ(path, fedadamw(decay=-DECAY)[0])


def test_means_of_moments_are_not_private():
  with pytest.raises(parameters.ParameterError, match='second moments'):
    algorithms.check('fedadamw', dp_clip_norm=1.0, dp_clients_per_round=2)
