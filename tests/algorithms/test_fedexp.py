"""FedExP against NumPy."""

import itertools

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, EPSILON = 0.2, 0.05
# A client alone is not extrapolated: its ratio is below 1/2.
ROUNDS = [(0, 1, 2), (1,), (0, 2), (1, 2)]


def fedexp(
  rounds=ROUNDS, epsilon=EPSILON, weight=dense.num_examples, largest=np.inf
):
  """The paper's rule; `largest` = 1 makes it federated averaging."""
  x, path, rates = dense.START, [], []
  for cohort in rounds:
    updates = [dense.sgd(x, dense.CLIENTS[i], RATE) - x for i in cohort]
    mean = dense.average(updates, cohort, weight)
    squares = dense.average([u @ u for u in updates], cohort, weight)
    rate = max(1.0, squares / (2 * (mean @ mean + epsilon)))
    rates.append(min(rate, largest))
    x = x + rates[-1] * mean
    path.append(x)
  return path, rates


def build(average_last_two=False, **more):
  return algorithms.build(
    'fedexp',
    dense.model(),
    client_learning_rate=RATE,
    server_adaptivity=EPSILON,
    average_last_two=average_last_two,
    **more,
  )


def test_rounds():
  path, state, _ = dense.run(build(), ROUNDS)
  expected, rates = fedexp()
  dense.close(path, expected)
  statistics = state.client_work.statistics
  assert statistics['rate'] == pytest.approx(rates[-1], rel=1e-4)
  # Both sides of the maximum decide somewhere.
  assert rates[0] > 1 and rates[1] == 1.0


@pytest.mark.slow
def test_uniform_weights():
  path, _, _ = dense.run(build(client_weighting='uniform'), ROUNDS[:2])
  expected, _ = fedexp(ROUNDS[:2], weight=lambda _: 1)
  dense.close(path, expected)
  assert dense.differ(expected, fedexp(ROUNDS[:2])[0])


def test_inputs_tell_fedexp_from_its_neighbours():
  path, _ = fedexp()
  for other in (
    fedexp(largest=1.0),  # Federated averaging.
    fedexp(epsilon=3 * EPSILON),  # The code adds epsilon for every client.
    fedexp(epsilon=0.0),
  ):
    assert dense.differ(path, other[0])


@pytest.fixture(name='averaging', scope='module')
def averaging_fixture(in_process_context):
  del in_process_context
  return build(average_last_two=True)


@pytest.mark.exhaustive
def test_the_last_two_models_are_averaged(averaging):
  process = averaging
  path, state, _ = dense.run(process, ROUNDS)
  last, _ = fedexp()
  expected = [last[0]] + [(a + b) / 2 for a, b in itertools.pairwise(last)]
  dense.close(path, expected)
  assert dense.differ(path[1:], last[1:])
  assert dense.differ(path[0], (last[0] + dense.START) / 2)
  # Who sets the weights gets these, and the next round's are not averaged.
  weights = process.get_model_weights(state)
  state = process.set_model_weights(state, weights)
  dense.close(dense.weights_of(process, state), expected[-1])
  output = process.next(state, [dense.dataset(dense.CLIENTS[1])])
  alone = dense.sgd(expected[-1], dense.CLIENTS[1], RATE)
  dense.close(dense.weights_of(process, output.state), alone)


def test_a_cohort_without_a_usable_client_changes_nothing(averaging):
  process = averaging
  path, state, _ = dense.run(process, ROUNDS[:2])
  output = process.next(state, [dense.dataset(dense.BAD)])
  dense.close(dense.weights_of(process, output.state), path[-1])


def test_what_has_no_use_is_refused():
  for name in ('server_learning_rate', 'momentum'):
    with pytest.raises(parameters.ParameterError, match='does not use it'):
      algorithms.check('fedexp', **{name: 0.5})
  with pytest.raises(parameters.ParameterError, match='does not use it'):
    algorithms.check('fedexp', server_lr_schedule='step_decay')
  with pytest.raises(parameters.ParameterError, match='squared norms'):
    algorithms.check('fedexp', dp_clip_norm=1.0, dp_clients_per_round=2)


@pytest.mark.parametrize(
  'given', [{'aggregator': 'median'}, {'aggregator_clipping': True}]
)
def test_sums_that_leave_out_or_clip_updates_are_refused(given):
  with pytest.raises(parameters.ParameterError, match='norms of all updates'):
    algorithms.check('fedexp', **given)
