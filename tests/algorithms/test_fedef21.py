"""FedEF21 against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ETA, ALL, RATIO = 0.2, 0.8, 3, 0.4
ROUNDS = [(0, 1), (0, 2), (1, 2), (0, 1)]


def sign(u):
  return np.sign(u) * np.abs(u).sum() / len(u)


def top(u, ratio=RATIO):
  k = max(int(ratio * len(u)), 1)
  kept = np.zeros_like(u)
  largest = np.argsort(-np.abs(u))[:k]
  kept[largest] = u[largest]
  return kept


def of_variables(u):
  return np.concatenate([top(part.ravel()) for part in dense.parts(u)])


def fedef21(compress=top, population=ALL, cohort_alone=False, weight=None):
  x, g, own, path = dense.START, np.zeros(8), {}, []
  weight = weight or dense.num_examples
  for cohort in ROUNDS:
    sent = []
    for i in cohort:
      estimate = own.get(i, np.zeros(8))
      change = dense.sgd(x, dense.CLIENTS[i], RATE) - x - estimate
      sent.append(compress(change))
      own[i] = estimate + sent[-1]
    mean = dense.average(sent, cohort, weight)
    share = len(cohort) / (population or len(cohort))
    g = g + share * mean
    if cohort_alone:
      g = dense.average([own[i] for i in cohort], cohort, weight)
    x = x + ETA * g
    path.append(x)
  return path, own


def build(**more):
  settings = dict(
    client_learning_rate=RATE,
    server_learning_rate=ETA,
    compression_ratio=RATIO,
    population=ALL,
  )
  return algorithms.build('fedef21', dense.model(), **(settings | more))


def test_rounds():
  path, _, memories = dense.run(build(), ROUNDS)
  expected, own = fedef21()
  dense.close(path, expected)
  for i, memory in memories.items():
    estimate = np.concatenate([np.ravel(t) for t in memory['estimate']])
    dense.close(estimate, own[i], rtol=1e-3)
  assert dense.differ(expected, fedef21(population=None)[0])
  assert dense.differ(expected, fedef21(of_variables)[0])
  assert dense.differ(expected, fedef21(cohort_alone=True)[0])


def test_a_round_without_clients_that_count_changes_nothing():
  process = build()
  _, state, memories = dense.run(process, ROUNDS[:2])
  before = dense.weights_of(process, state)
  output = process.next(
    state, [memories[0]], [dense.dataset(dense.CLIENTS[0]).take(0)]
  )
  np.testing.assert_array_equal(dense.weights_of(process, output.state), before)
  assert output.metrics['finalizer']['update_non_finite'] == 1


@pytest.mark.exhaustive
def test_signs():
  process = build(compressor='sign', compression_ratio=None)
  dense.close(dense.run(process, ROUNDS)[0], fedef21(sign)[0])


def test_what_is_refused():
  with pytest.raises(
    parameters.ParameterError, match='error of their own compress'
  ):
    algorithms.check('fedef21', aggregator='compression')
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    algorithms.check('fedef21', compressor='sign', compression_ratio=0.1)
  with pytest.raises(parameters.ParameterError, match='their participation'):
    algorithms.check('fedef21', dp_clip_norm=1.0, dp_clients_per_round=4)
