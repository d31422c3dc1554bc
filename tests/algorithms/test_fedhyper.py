"""FedHyper against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, FIRST, LOWER, UPPER = 0.3, 1.2, 0.9, 1.25
ROUNDS = [(0, 1), (1, 2), (0, 2), (2,), (0, 1, 2)]


def fedhyper(first=FIRST, lower=LOWER, upper=UPPER, of='plain', goes_on=True):
  """`of` tells whose product it is; an unclipped sum `goes_on` or does not."""
  x, path, rates = dense.START, [], []
  rate = kept = first
  last = None
  for cohort in ROUNDS:
    ends = [dense.sgd(x, dense.CLIENTS[i], RATE) for i in cohort]
    mean = dense.average(ends, cohort) - x
    if last is not None:
      kept = kept + mean @ last
      rate = np.clip(kept, lower, upper)
      if goes_on:
        kept = rate
    x = x + rate * mean
    last = mean if of == 'plain' else rate * mean
    path.append(x)
    rates.append(rate)
  return path, rates


def build(**more):
  settings = dict(
    client_learning_rate=RATE,
    server_learning_rate=FIRST,
    hyper_lower=LOWER,
    hyper_upper=UPPER,
  )
  return algorithms.build('fedhyper', dense.model(), **(settings | more))


def test_rounds():
  path, state, _ = dense.run(build(), ROUNDS)
  expected, rates = fedhyper()
  dense.close(path, expected)
  statistics = state.client_work.statistics
  assert statistics['rate'] == pytest.approx(rates[-1], rel=1e-4)
  assert LOWER in rates or UPPER in rates
  assert len({*rates}) > 2
  assert dense.differ(expected, fedhyper(of='scaled')[0])
  assert dense.differ(expected, fedhyper(goes_on=False)[0])


@pytest.mark.exhaustive
def test_a_round_without_answers_leaves_the_rate():
  process = build()
  state = process.initialize()
  data = [dense.dataset(dense.CLIENTS[i]) for i in (0, 1)]
  state = process.next(state, data).state
  after = process.next(state, [dense.dataset(dense.BAD)]).state
  for old, new in zip(
    state.client_work.statistics['last_update'],
    after.client_work.statistics['last_update'],
  ):
    assert np.any(old)
    np.testing.assert_array_equal(old, new)
  assert after.client_work.statistics['rate'] == FIRST


@pytest.mark.exhaustive
def test_set_weights_forget_the_last_update():
  process = build()
  state = process.initialize()
  weights = process.get_model_weights(state)
  data = [dense.dataset(dense.CLIENTS[i]) for i in (0, 1)]
  state = process.next(state, data).state
  state = process.set_model_weights(state, weights)
  state = process.next(state, data).state
  expected = fedhyper()[0][0]
  dense.close(dense.weights_of(process, state), expected)


def test_bounds_out_of_order():
  with pytest.raises(parameters.ParameterError, match='must not be above'):
    algorithms.check('fedhyper', hyper_lower=2.0, hyper_upper=1.0)
