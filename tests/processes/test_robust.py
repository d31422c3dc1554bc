"""Robust aggregation: median and trimmed mean of Yin et al., TFF's zeroing."""

import fractions
import itertools
import math
import statistics

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import processes
from tff_adaptive import runtime
from tff_adaptive.privacy import mechanism

BETA = 0.29
ROBUST = ('robust', 'median', 'trimmed_mean')


def median(values):
  """Definition 1 of arXiv 1803.01498, each coordinate by itself."""
  return np.array([statistics.median(column) for column in values.T])


def trimmed_mean(values, beta):
  """Definition 2, each coordinate by itself."""
  cut = math.floor(fractions.Fraction(str(beta)) * len(values))
  kept = [sorted(column)[cut : len(column) - cut] for column in values.T]
  return np.array([sum(column) / len(column) for column in kept])


def aggregate(aggregator, values, weights=None, **given):
  """One aggregation of vectors of three numbers and a number."""
  factory = processes.build_aggregator(
    mechanism.Aggregation(aggregator=aggregator, **given)
  )
  value_type = tff.to_type([(np.float32, [3]), np.float32])
  process = factory.create(value_type, tff.TensorType(np.float32))
  split = [(v[:3], v[3]) for v in np.float32(values)]
  weights = [1.0] * len(values) if weights is None else weights
  output = process.next(process.initialize(), split, weights)
  return np.array([*output.result[0], output.result[1]])


@pytest.mark.usefixtures('in_process_context')
class TestAggregation:
  @pytest.mark.parametrize('clients', [1, 2, 3, 4, 7, 8, 100])
  def test_follows_the_paper(self, clients):
    values = np.random.default_rng(clients).normal(size=[clients, 4])
    np.testing.assert_allclose(
      aggregate('median', values), median(values), rtol=1e-5
    )
    found = aggregate('trimmed_mean', values, aggregator_trim=BETA)
    np.testing.assert_allclose(
      found, trimmed_mean(values, BETA), rtol=1e-4, atol=1e-7
    )
    if clients > 4:
      # The inputs tell both from each other, and from other shares.
      for other in 0.0, BETA - 1 / clients, BETA + 1 / clients, 0.49:
        assert not np.allclose(found, trimmed_mean(values, other), rtol=1e-3)

  def test_a_share_that_leaves_nothing_is_the_median(self):
    values = np.array([[1.0, 5, 2, 8], [3, 4, 7, 0]])
    found = aggregate('trimmed_mean', values, aggregator_trim=0.49)
    np.testing.assert_allclose(found, median(values))

  @pytest.mark.parametrize('aggregator', ['median', 'trimmed_mean'])
  def test_clients_count_alike_except_those_of_weight_zero(self, aggregator):
    values = np.random.default_rng(5).normal(size=[6, 4])
    found = aggregate(aggregator, values, [3.0, 0.0, 1e9, 1.0, 0.0, 2.0])
    expected = aggregate(aggregator, values[[0, 2, 3, 5]])
    np.testing.assert_allclose(found, expected)
    assert np.isnan(aggregate(aggregator, values, [0.0] * 6)).all()


def weight_after(context, clients, rounds=1, **given):
  """The weight of a linear model after rounds of FedAvg."""
  process = algorithms.build(
    'fedavg', linear.model_fn, client_learning_rate=0.05, **given
  )
  with tff.framework.get_context_stack().install(context):
    state = process.initialize()
    for _ in range(rounds):
      state = process.next(state, linear.datasets(clients)).state
    return linear.weight_of(process, state)


# Two steps on labels of 1e6: an update 1e5 times the others'.
HOSTILE = [([1.0, 2.0], [1e6, 1e6]), ([1.0], [1e6])]
HONEST = [*linear.CLIENTS, [([1.0, 0.5], [2.0, 1.0])]]


@pytest.fixture(name='contexts', scope='module')
def contexts_fixture():
  native = runtime.create_native_context()
  yield {'in_process': runtime.create_in_process_context(), 'native': native}
  native.close()


@pytest.fixture(name='honest', scope='module')
def honest_fixture(contexts):
  context = contexts['in_process']
  assert abs(weight_after(context, [*HONEST, HOSTILE])) > 1e3
  return weight_after(context, HONEST, rounds=3)


@pytest.mark.native
@pytest.mark.parametrize(
  'place, aggregator',
  tiers.exhaustive_but(
    [('in_process', name) for name in ROBUST] + [('native', 'median')],
    itertools.product(['in_process', 'native'], ROBUST),
  ),
)
def test_one_hostile_client_does_little(contexts, honest, place, aggregator):
  given = {'aggregator': aggregator}
  if aggregator == 'trimmed_mean':
    given['aggregator_trim'] = 0.25
  attacked = weight_after(
    contexts[place], [*HONEST, HOSTILE], rounds=3, **given
  )
  assert attacked == pytest.approx(honest, abs=0.6)
  assert abs(attacked - linear.START) > 0.01  # It trained nevertheless.


@pytest.mark.parametrize('aggregator', ['median', 'trimmed_mean'])
def test_a_round_is_the_median_of_the_updates(contexts, aggregator):
  def end(batches):
    w = linear.START
    for batch in batches:
      w = w - 0.05 * linear.gradient(w, batch)
    return [w - linear.START]

  moves = np.array([end(batches) for batches in HONEST])
  expected = {
    'median': median(moves),
    'trimmed_mean': trimmed_mean(moves, 0.2),
  }[aggregator]
  found = weight_after(contexts['in_process'], HONEST, aggregator=aggregator)
  assert found - linear.START == pytest.approx(expected[0], rel=1e-4)


@pytest.mark.parametrize(
  'aggregator', tiers.exhaustive_but(['trimmed_mean'], ROBUST)
)
def test_a_client_with_nan_is_left_out(contexts, aggregator):
  without, beside = (
    weight_after(contexts['in_process'], clients, aggregator=aggregator)
    for clients in (HONEST, [*HONEST, [([1.0], [float('nan')])]])
  )
  assert beside == pytest.approx(without, rel=1e-5)
