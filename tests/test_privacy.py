"""Differential privacy: what is refused, and what is sent."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff
from scipy import stats

from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive import runtime
from tff_adaptive.algorithms import building
from tff_adaptive.privacy import mechanism as privacy

USUAL = {
  name: parameter.default
  for name, parameter in parameters.parameters_of(privacy.Aggregation).items()
}
REFUSED = (
  *('scaffold', 'mime', 'mimelite', 'local_adaalter', 'local_amsgrad'),
  *('fedsps_global', 'fedsps_normalized', 'fedexp', 'fednova', 'fedcm'),
  *('feddyn', 'fedmuon', 'fedadamw', 'fadamgc', 'fedef21', 'fedlion'),
)


def settings(**given):
  return privacy.Aggregation(**(USUAL | {'dp_clients_per_round': 4} | given))


# --- What is accepted.


@pytest.mark.parametrize(
  'given, words',
  [
    ({'dp_noise_multiplier': 1.0}, 'noise without clipping'),
    (
      {'dp_clip_norm': 1.0, 'client_weighting': 'examples'},
      "must be 'uniform' under differential privacy",
    ),
    ({'dp_clip_norm': 0.0}, 'above 0 or None, got 0'),
    (
      {'dp_clip_norm': 1.0, 'dp_noise_multiplier': -1},
      'at least 0 or None, got -1',
    ),
    ({'dp_adaptive_clipping': True, 'dp_clip_quantile': 1.5}, 'at most 1'),
    ({'dp_clip_norm': 1.0, 'dp_clip_quantile': 0.7}, 'would be ignored'),
    ({'dp_clip_norm': 1.0, 'aggregator_zeroing': True}, 'without noise'),
    ({'dp_clip_norm': 1.0, 'aggregator_clipping': True}, 'without noise'),
    ({'dp_clip_norm': 1.0, 'aggregator': 'compression'}, 'quantisation'),
    (
      {'dp_adaptive_clipping': True, 'aggregator': 'secure'},
      'needs a fixed bound',
    ),
    (
      {'dp_adaptive_clipping': True, 'dp_noise_multiplier': 1.0},
      'more than 10 clients a round, got 4',
    ),
    (
      {'dp_clip_norm': 1.0, 'dp_clients_per_round': None},
      'needs `dp_clients_per_round`',
    ),
    ({'dp_clip_norm': 1.0, 'aggregator': 'robust'}, 'single clients'),
    ({'dp_clip_norm': 1.0, 'aggregator': 'median'}, 'single clients'),
    ({'aggregator': 'average'}, "'mean', 'robust', 'median', 'trimmed_mean'"),
    ({'aggregator': 'robust', 'aggregator_clipping': True}, 'be ignored'),
    ({'aggregator': 'median', 'aggregator_zeroing': True}, 'be ignored'),
    ({'aggregator': 'median', 'aggregator_trim': 0.1}, 'be ignored'),
    (
      {'aggregator': 'median', 'client_weighting': 'examples'},
      'all clients count alike',
    ),
  ],
)
def test_errors_are_one_sentence(given, words):
  given = {'dp_clients_per_round': 4} | given
  if not privacy.is_asked(given):
    del given['dp_clients_per_round']
  with pytest.raises(parameters.ParameterError) as error:
    algorithms.check('fedavg', **given)
  message = str(error.value)
  assert words in message
  assert '\n' not in message and message.endswith('.')


def test_a_setting_without_clipping_would_be_ignored():
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    algorithms.check('fedavg', dp_clients_per_round=4)
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    algorithms.check(
      'fedavg', dp_clip_norm=1.0, dp_clients_per_round=4, model_aggregator=1
    )


@pytest.mark.parametrize('name', algorithms.names())
def test_methods_that_send_more_than_their_update_are_refused(name):
  given = dict(
    dp_clip_norm=1.0, dp_noise_multiplier=1.0, dp_clients_per_round=4
  )
  if name not in REFUSED:
    algorithms.check(name, **given)
    return
  with pytest.raises(parameters.ParameterError) as error:
    algorithms.check(name, **given)
  assert 'does not support differential privacy: besides their' in str(
    error.value
  )


def test_feddecsps_that_counts_over_all_of_training_is_refused():
  given = dict(dp_clip_norm=1.0, dp_clients_per_round=4)
  algorithms.check('feddecsps', **given)
  with pytest.raises(parameters.ParameterError, match='does not support diff'):
    algorithms.check('feddecsps', count='training', **given)


@pytest.mark.parametrize('name', algorithms.names())
def test_refused_are_the_methods_that_report_something(name):
  """The table of methods against what the exchanges do."""
  exchange = building.build_components(algorithms.resolve(name)).exchange
  own = type(exchange or processes.NoExchange())
  usual = processes.Exchange
  reports = (
    own.report is not usual.report
    or own.weight is not usual.weight
    or 'cohort_size' in own.merge.__code__.co_names  # Counts who took part.
    or exchange.full_gradient_pass is not None
    if exchange is not None
    else False
  )
  assert reports == (name in REFUSED)


# --- What comes of a round's updates.

SPECS = collections.OrderedDict(
  a=tff.TensorType(np.float32, [3]), b=tff.TensorType(np.float32, [])
)


def updates(norms):
  """Updates of given norms, in different directions."""
  rng = np.random.default_rng(3)
  result = []
  for norm in norms:
    direction = rng.normal(size=4)
    direction *= norm / np.linalg.norm(direction)
    result.append(
      collections.OrderedDict(
        a=direction[:3].astype(np.float32), b=np.float32(direction[3])
      )
    )
  return result


def flat(update):
  return np.concatenate([update['a'], [update['b']]])


def aggregate(factory, values, weights=None, rounds=1):
  """The results of several rounds, and the last one's measurements."""
  process = factory.create(tff.to_type(SPECS), tff.TensorType(np.float32))
  state, results = process.initialize(), []
  for _ in range(rounds):
    output = process.next(state, values, weights or [1.0] * len(values))
    state = output.state
    results.append(flat(output.result))
  return results, output.measurements


def clipped_mean(values, clip, clients):
  flats = [flat(v) for v in values]
  return sum(
    f * min(1.0, clip / np.linalg.norm(f)) for f in flats
  ) / clients  # fmt: skip


@pytest.mark.usefixtures('in_process_context')
class TestAggregators:
  NORMS = (0.1, 0.5, 2.0, 30.0)

  @pytest.mark.parametrize('aggregator', ['mean', 'secure'])
  def test_clipped_mean_without_noise(self, aggregator):
    values = updates(self.NORMS)
    factory = processes.build_aggregator(
      settings(dp_clip_norm=0.75, aggregator=aggregator)
    )
    (result,), _ = aggregate(factory, values, weights=[1.0, 2.0, 3.0, 40.0])
    np.testing.assert_allclose(
      result, clipped_mean(values, 0.75, 4), rtol=1e-5, atol=1e-7
    )
    # Neighbours that must differ: another norm, another denominator.
    assert not np.allclose(result, clipped_mean(values, 0.7, 4), rtol=1e-3)
    assert not np.allclose(result, clipped_mean(values, 0.75, 3), rtol=1e-3)

  def test_no_update_moves_the_sum_further_than_the_norm(self):
    huge = collections.OrderedDict(
      a=np.array([3e38, -3e38, 3e38], np.float32), b=np.float32(3e38)
    )
    tiny = collections.OrderedDict(
      a=np.array([1e-30, 0, 0], np.float32), b=np.float32(0)
    )
    zero = collections.OrderedDict(a=np.zeros(3, np.float32), b=np.float32(0))
    factory = processes.build_aggregator(settings(dp_clip_norm=0.5))
    for update, norm in ((huge, 0.5), (tiny, 1e-30), (zero, 0.0)):
      (result,), _ = aggregate(factory, [update, zero])
      assert np.linalg.norm(4 * result.astype(np.float64)) == pytest.approx(
        norm, rel=1e-5
      )

  def test_noise_has_its_size_on_every_coordinate(self):
    rounds, clip, sigma = 500, 0.5, 3.0
    zero = collections.OrderedDict(a=np.zeros(3, np.float32), b=np.float32(0))
    factory = processes.build_aggregator(
      settings(dp_clip_norm=clip, dp_noise_multiplier=sigma), seed=5
    )
    results, _ = aggregate(factory, [zero], rounds=rounds)
    draws = np.array(results).ravel() * 4 / (sigma * clip)
    assert stats.kstest(draws, 'norm').pvalue > 1e-3
    # 2000 draws give sigma to 1.6 %; a tenth too much or too little is seen.
    assert abs(draws.std() - 1) < 0.06
    table = np.array(results)
    between = np.corrcoef(table.T) - np.eye(4)
    assert np.abs(between).max() < 0.2
    assert abs(np.corrcoef(table[1:, 0], table[:-1, 0])[0, 1]) < 0.2

  def test_noise_is_a_function_of_seed_and_round(self):
    values = updates(self.NORMS)

    def run(seed, rounds=3):
      factory = processes.build_aggregator(
        settings(dp_clip_norm=1.0, dp_noise_multiplier=1.0), seed=seed
      )
      return aggregate(factory, values, rounds=rounds)[0]

    np.testing.assert_array_equal(run(1), run(1))
    assert not np.allclose(run(1)[0], run(2)[0])
    assert not np.allclose(run(1)[0], run(1)[1])

  def test_adaptive_clipping_is_tffs(self):
    values = updates(self.NORMS)
    ours = processes.build_aggregator(
      settings(
        dp_adaptive_clipping=True,
        dp_clip_norm=0.2,
        dp_clip_quantile=0.6,
        dp_clip_learning_rate=0.3,
      )
    )
    theirs = tff.aggregators.as_weighted_aggregator(
      tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
        noise_multiplier=0.0,
        clients_per_round=4.0,
        initial_l2_norm_clip=0.2,
        target_unclipped_quantile=0.6,
        learning_rate=0.3,
      )
    )
    mine, measured = aggregate(ours, values, rounds=9)
    reference, measured_there = aggregate(theirs, values, rounds=9)
    np.testing.assert_allclose(mine, reference, rtol=1e-5, atol=1e-7)
    assert measured['dp_query_metrics']['clip_norm'] == pytest.approx(
      measured_there['dp_query_metrics']['clip'], rel=1e-5
    )
    # In between two norms of the four, where half of them are clipped.
    assert 0.2 < measured['dp_query_metrics']['clip_norm'] < 2.0

  @pytest.mark.parametrize('adaptive', [False, True])
  def test_sum_and_count_have_the_noise_of_tffs(self, adaptive):
    ours = settings(
      dp_adaptive_clipping=adaptive,
      dp_clip_norm=0.2,
      dp_noise_multiplier=1.5,
      dp_clients_per_round=40,
    )
    if not adaptive:
      assert ours.sum_noise_multiplier == 1.5
      return
    assert ours.count_stddev == 2.0
    # Both mechanisms together, with sensitivities 1 and 1/2.
    assert (
      ours.sum_noise_multiplier**-2 + (0.5 / ours.count_stddev) ** 2
    ) ** -0.5 == pytest.approx(1.5)

  @pytest.mark.exhaustive
  def test_robust_compression_and_secure_compose(self):
    values = updates([1.0, 1.0, 1.0, 1e9])
    plain = np.mean([flat(v) for v in values[:3]], axis=0) * 3 / 4
    for aggregator in ('mean', 'compression', 'secure'):
      factory = processes.build_aggregator(
        settings(
          aggregator=aggregator,
          aggregator_zeroing=True,
          aggregator_clipping=aggregator == 'mean',
          dp_clients_per_round=None,
        )
      )
      (result,), measured = aggregate(factory, values)
      assert np.linalg.norm(result - plain) < 1e-4, aggregator
      assert measured['zeroed_count'] == 1

  def test_rounds_of_a_method(self):
    """One round of FedAvg under clipping is the clipped mean of its updates."""

    def change(**given):
      process = algorithms.build(
        'fedavg', linear.model_fn, client_learning_rate=0.05, **given
      )
      state = process.initialize()
      output = process.next(state, linear.datasets(linear.CLIENTS))
      return linear.weight_of(process, output.state) - linear.START

    def end(batches):
      w = linear.START
      for batch in batches:
        w = w - 0.05 * linear.gradient(w, batch)
      return w - linear.START

    moves = np.array([end(batches) for batches in linear.CLIENTS])
    clip = float(np.sort(np.abs(moves))[1])
    expected = np.clip(moves, -clip, clip).sum() / 3
    assert abs(expected - moves.mean()) > 1e-3
    # The denominator is public, not the number of clients that came.
    assert change(dp_clip_norm=clip, dp_clients_per_round=6) == pytest.approx(
      expected / 2, rel=1e-4
    )
    # An unweighted aggregator object is taken as well.
    assert change(
      model_aggregator=tff.aggregators.UnweightedMeanFactory()
    ) == pytest.approx(moves.mean(), rel=1e-4)

  @pytest.mark.slow
  # These have no use for a model of one layer.
  @pytest.mark.parametrize(
    'name', sorted({*algorithms.names()} - {'fedbn', 'fedper', 'moon'})
  )
  def test_aggregators_compose_with_every_method(self, name):
    def weight(**given):
      process = algorithms.build(name, linear.model_fn, **given)
      clients, kept = linear.datasets(), ()
      if algorithms.is_stateful(process):
        kept = ([process.initialize_client_state() for _ in clients],)
      output = process.next(process.initialize(), *kept, clients)
      return linear.weight_of(process, output.state)

    plain = weight()
    # These need updates as they are.
    exact = name in ('fedcams', 'fedef21', 'fedexp')
    if exact or name == 'fedsps_normalized':
      with pytest.raises(parameters.ParameterError):
        weight(aggregator='secure')
    else:
      assert weight(aggregator='secure') == pytest.approx(plain, abs=1e-3)
    bounds = dict(aggregator_zeroing=True, aggregator_clipping=True)
    if exact:
      with pytest.raises(parameters.ParameterError):
        weight(**bounds)
      return
    # Nothing is large enough to be quantised or zeroed; clipping shortens.
    moved = weight(aggregator='compression', **bounds)
    assert min(plain, linear.START) - 1e-3 <= moved
    assert moved <= max(plain, linear.START) + 1e-3

  @pytest.mark.native
  @pytest.mark.exhaustive
  def test_private_rounds_are_the_same_in_tffs_own_runtime(self):
    process = algorithms.build(
      'fedada2',
      linear.model_fn,
      client_learning_rate=0.05,
      dp_clip_norm=0.1,
      dp_noise_multiplier=1.0,
      dp_clients_per_round=3,
    )

    def two_rounds():
      state = process.initialize()
      for _ in range(2):
        state = process.next(state, linear.datasets(linear.CLIENTS)).state
      return linear.weight_of(process, state)

    context = runtime.create_native_context()
    try:
      with tff.framework.get_context_stack().install(context):
        native = two_rounds()
    finally:
      context.close()
    assert native != pytest.approx(linear.START, abs=1e-3)
    assert native == pytest.approx(two_rounds(), rel=1e-4)
