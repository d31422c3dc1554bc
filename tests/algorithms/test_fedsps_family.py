"""FedDecSPS, FedSPS-Normalized and FedSPS-Global against NumPy."""

import itertools

import numpy as np
import pytest

from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

C, GAMMA_B = 0.5, 0.2


def ratio(w, batch, lower_bound=0.0):
  gap = max(linear.loss(w, batch) - lower_bound, 0.0)
  return gap / linear.gradient(w, batch) ** 2


def feddecsps(
  w, batches, first, gamma_b=GAMMA_B, lower_bound=0.0, remembered=None
):
  """A client's round; `first` is the count of its first step.

  `remembered` is a list with the client's c_(k-1) gamma_(k-1), which the round
  changes.
  """
  box = [C * gamma_b] if remembered is None else remembered
  steps = []
  for k, batch in enumerate(batches, start=first):
    c_k = C * np.sqrt(k + 1)
    gamma = min(ratio(w, batch, lower_bound), box[0]) / c_k
    if gamma > 0:
      box[0] = c_k * gamma
    w = w - gamma * linear.gradient(w, batch)
    steps.append(gamma)
  return w, steps


@pytest.mark.parametrize(
  'count, lower_bound',
  tiers.exhaustive_but(
    [('training', 1.0)],
    itertools.product(['training', 'round'], [0.0, 1.0]),
    slow=[('round', 0.0)],
  ),
)
def test_feddecsps(count, lower_bound):
  process = algorithms.build(
    'feddecsps',
    linear.model_fn,
    gamma_b=GAMMA_B,
    count=count,
    lower_bound=lower_bound,
  )
  weights, _ = linear.run(process, 3)

  def path(counts):
    w, done, result = linear.START, 0, []
    for _ in range(3):
      w = w + linear.round_update(
        w, lambda w, b: feddecsps(w, b, done, GAMMA_B, lower_bound)[0]
      )
      if counts == 'training':
        done += max(map(len, linear.CLIENTS))
      result.append(w)
    return result

  expected = path(count)
  np.testing.assert_allclose(weights, expected, rtol=1e-4)
  other = path('round' if count == 'training' else 'training')
  assert not np.allclose(expected, other, rtol=1e-3)


@pytest.mark.exhaustive
def test_feddecsps_forgets_a_step_of_zero():
  """A batch below the bound takes no step, and later batches still do."""
  process = algorithms.build(
    'feddecsps', linear.model_fn, gamma_b=GAMMA_B, lower_bound=4.0
  )
  batches = [linear.CLIENTS[0][0], linear.CLIENTS[2][0]]
  assert linear.loss(linear.START, batches[0]) < 4.0
  weights, _ = linear.run(process, 1, [batches])
  expected, steps = feddecsps(linear.START, batches, 0, lower_bound=4.0)
  assert steps[0] == 0 < steps[1]
  np.testing.assert_allclose(weights[0], expected, rtol=1e-4)


COHORTS = [(0, 1), (2,), (0, 2), (1, 0), (2, 1)]


@pytest.mark.exhaustive
@pytest.mark.parametrize('count', ['training', 'round'])
def test_feddecsps_clients_that_remember(count):
  """Section 5: c_(k-1) gamma_(k-1) is never reset, on each client its own."""
  process = algorithms.build(
    'feddecsps', linear.model_fn, gamma_b=2.0, count=count, memory='client'
  )
  assert algorithms.is_stateful(process)
  state, memories, weights = process.initialize(), {}, []
  for cohort in COHORTS:
    output = process.next(
      state,
      [memories.get(i, process.initialize_client_state()) for i in cohort],
      linear.datasets([linear.CLIENTS[i] for i in cohort]),
    )
    state = output.state
    memories.update(zip(cohort, output.client_states))
    weights.append(linear.weight_of(process, state))

  def path(remembers):
    w, done, boxes, result = linear.START, 0, {}, []
    for cohort in COHORTS:
      ends, sizes = [], []
      for i in cohort:
        box = boxes.setdefault(i, [C * 2.0]) if remembers else None
        batches = linear.CLIENTS[i]
        ends.append(feddecsps(w, batches, done, 2.0, remembered=box)[0])
        sizes.append(linear.num_examples(batches))
      w = np.average(ends, weights=sizes)
      if count == 'training':
        done += max(len(linear.CLIENTS[i]) for i in cohort)
      result.append(w)
    return result

  np.testing.assert_allclose(weights, path(True), rtol=1e-4)
  assert not np.allclose(path(True), path(False), rtol=1e-3)


@pytest.mark.exhaustive
def test_feddecsps_a_client_that_is_left_out_keeps_what_it_remembers():
  process = algorithms.build('feddecsps', linear.model_fn, memory='client')
  memory = process.initialize_client_state()
  output = process.next(
    process.initialize(),
    [memory, memory],
    linear.datasets([linear.CLIENTS[0], [([float('nan')], [1.0])]]),
  )
  kept = [float(state['bound']) for state in output.client_states]
  assert kept[0] < kept[1] == 1.0


def fedsps(w, batches):
  steps = []
  for batch in batches:
    gamma = min(ratio(w, batch) / C, GAMMA_B)
    w = w - gamma * linear.gradient(w, batch)
    steps.append(gamma)
  return w, steps


def test_fedsps_normalized_weighs_by_the_inverse_of_the_step_sum():
  """Prose of D.1.1: all steps; Algorithm 2 as printed: all but the last."""

  def path(count, power=-1.0):
    w, result = linear.START, []
    for _ in range(2):
      ends, steps = zip(*(fedsps(w, batches) for batches in linear.CLIENTS))
      sums = [sum(own[: len(own) - (count == 'printed')]) for own in steps]
      weights = [0.0 if s == 0 else s**power for s in sums]
      w = np.average(ends, weights=weights)
      result.append(w)
    return result

  for nu in ('all', 'printed'):
    process = algorithms.build(
      'fedsps_normalized', linear.model_fn, gamma_b=GAMMA_B, nu=nu
    )
    weights, _ = linear.run(process, 2)
    # By the printed form the client with one step is left out.
    np.testing.assert_allclose(weights, path(nu), rtol=1e-4)
  for other in (path('all', 0.0), path('printed')):
    assert not np.allclose(path('all'), other, rtol=1e-3)


@pytest.mark.exhaustive
def test_fedsps_normalized_leaves_out_clients_that_did_not_step():
  still = [([1.0], [linear.START])]  # Loss 0: no step.
  process = algorithms.build(
    'fedsps_normalized', linear.model_fn, gamma_b=GAMMA_B
  )
  alone, _ = linear.run(process, 1)
  weights, _ = linear.run(process, 1, [*linear.CLIENTS, still])
  np.testing.assert_allclose(weights, alone, rtol=1e-6)
  nobody, metrics = linear.run(process, 1, [still, still])
  assert nobody == [linear.START]
  assert metrics['finalizer']['update_non_finite'] == 1


def last_step(w, batches, gamma):
  """The client's end, and loss and gradient of its last step."""
  for batch in batches:
    value, g = linear.loss(w, batch), linear.gradient(w, batch)
    w = w - gamma * g
  return w, value, g


# The last gradients of the first round have both signs.
OPPOSED = [*linear.CLIENTS[:2], linear.CLIENTS[2][::-1]]


def fedsps_global(rounds, aggregation, gamma_0, gamma_b):
  w, gamma, path, gammas = linear.START, gamma_0, [], []
  for _ in range(rounds):
    ends, values, gradients = map(
      np.array, zip(*(last_step(w, batches, gamma) for batches in OPPOSED))
    )
    gammas.append(gamma)
    if aggregation == 'a':
      gamma = np.mean(np.minimum(values / (C * gradients**2), gamma_b))
    elif aggregation == 'b':
      gamma = min(values.sum() / (C * (gradients**2).sum()), gamma_b)
    else:
      gamma = min(values.mean() / (C * gradients.mean() ** 2), gamma_b)
    sizes = [linear.num_examples(batches) for batches in OPPOSED]
    w = np.average(ends, weights=sizes)
    path.append(w)
  return path, gammas


@pytest.mark.parametrize(
  'aggregation', tiers.exhaustive_but(['b'], ['a', 'b', 'c'])
)
def test_fedsps_global(aggregation):
  settings = dict(gamma_b=0.5, gamma_0=0.05)
  process = algorithms.build(
    'fedsps_global', linear.model_fn, aggregation=aggregation, **settings
  )
  weights, metrics = linear.run(process, 3, OPPOSED)
  paths = {
    a: fedsps_global(3, a, settings['gamma_0'], settings['gamma_b'])
    for a in 'abc'
  }
  path, gammas = paths[aggregation]
  np.testing.assert_allclose(weights, path, rtol=1e-4)
  figures = metrics['client_work']['step_size']
  assert figures['mean'] == pytest.approx(gammas[-1], rel=1e-4)
  assert figures['within_clients'] == pytest.approx(0.0, abs=1e-6)
  for other in set('abc') - {aggregation}:
    assert not np.allclose(path, paths[other][0], rtol=1e-4), other


# The first batches' local steps at the start; all differ.
FIRST = [ratio(linear.START, batches[0]) / C for batches in OPPOSED]


@pytest.mark.exhaustive
@pytest.mark.parametrize('gamma_b', [0.5, 0.07])
def test_fedsps_global_starts_with_its_first_client_s_step(gamma_b):
  """D.2.3: the local SPS step of client 0 at x_0 on its first batch."""
  process = algorithms.build('fedsps_global', linear.model_fn, gamma_b=gamma_b)
  weights, metrics = linear.run(process, 2, OPPOSED)
  gamma_0 = min(FIRST[0], gamma_b)
  assert (gamma_0 == gamma_b) == (gamma_b == 0.07)  # Both cases of the minimum.
  path, gammas = fedsps_global(2, 'a', gamma_0, gamma_b)
  np.testing.assert_allclose(weights, path, rtol=1e-4)
  figures = metrics['client_work']['step_size']
  assert figures['max'] == pytest.approx(gammas[-1], rel=1e-4)
  for other in (gamma_b, *FIRST[1:]):
    if other != gamma_0:
      wrong, _ = fedsps_global(2, 'a', other, gamma_b)
      assert not np.allclose(path, wrong, rtol=1e-3)


@pytest.mark.exhaustive
def test_fedsps_global_asks_the_first_client_that_can_answer():
  process = algorithms.build('fedsps_global', linear.model_fn, gamma_b=0.5)
  nan = [([float('nan')], [1.0])]
  clients = [[], nan, *OPPOSED[1:]]
  _, metrics = linear.run(process, 1, clients)
  figures = metrics['client_work']['step_size']
  assert figures['max'] == pytest.approx(min(FIRST[1], 0.5), rel=1e-4)


@pytest.mark.exhaustive
def test_fedsps_global_keeps_its_step_through_a_round_without_clients():
  process = algorithms.build(
    'fedsps_global', linear.model_fn, gamma_0=0.05, gamma_b=0.5
  )
  state = process.initialize()
  nan = [([float('nan')], [1.0])]
  state = process.next(state, linear.datasets([nan])).state
  output = process.next(state, linear.datasets())
  figures = output.metrics['client_work']['step_size']
  assert figures['mean'] == pytest.approx(0.05)


@pytest.mark.parametrize(
  'name,settings',
  tiers.exhaustive_but(
    [],
    [
      ('feddecsps', {}),
      ('fedsps_normalized', {}),
      ('fedsps_global', dict(aggregation='a')),
      ('fedsps_global', dict(aggregation='b')),
      ('fedsps_global', dict(aggregation='c')),
    ],
    slow=[('fedsps_global', dict(aggregation=a)) for a in 'ab'],
  ),
)
def test_clients_that_are_left_out_leave_no_trace(name, settings):
  process = algorithms.build(name, linear.model_fn, gamma_b=0.2, **settings)
  alone, clean = linear.run(process, 2)
  # More steps than any other client does: FedDecSPS would count them.
  bad = 5 * [([float('nan')], [1.0])]
  weights, metrics = linear.run(process, 2, [*linear.CLIENTS, bad, []])
  np.testing.assert_allclose(weights, alone, rtol=1e-6)
  clients = metrics['client_work']['clients']
  assert (clients['rejected'], clients['empty']) == (1, 1)
  np.testing.assert_allclose(
    list(metrics['client_work']['step_size'].values()),
    list(clean['client_work']['step_size'].values()),
    rtol=1e-5,
    atol=1e-7,
  )


def test_fedsps_normalized_refuses_what_would_weigh_otherwise():
  for aggregator in ('median', 'secure'):
    with pytest.raises(parameters.ParameterError, match='the weights of'):
      algorithms.check('fedsps_normalized', aggregator=aggregator)
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    algorithms.check('fedsps_normalized', client_weighting='uniform')
