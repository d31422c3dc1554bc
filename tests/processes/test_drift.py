"""Figures of drift against NumPy, and where they are shown."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive import training
from tff_adaptive.lab.training import traffic
from tff_adaptive.lab.training.loop import rounds

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.2
ROUNDS = [(0, 1, 2), (1, 2), (0,)]


def cosine(a, b):
  lengths = np.linalg.norm(a) * np.linalg.norm(b)
  return a @ b / lengths if lengths else 0.0


def figures(updates, weights, last=None):
  """The definitions; what has no value is left out."""
  p = np.array(weights) / np.sum(weights)
  mean = p @ np.array(updates)
  squares = np.array([u @ u for u in updates])
  found = {
    'diversity': p**2 @ squares / (mean @ mean),
    'disagreement': p
    @ [(u - mean) @ (u - mean) for u in updates]
    / (mean @ mean),
    'cosine': p @ [cosine(u, mean) for u in updates],
    'norm': p @ np.sqrt(squares),
  }
  if len(updates) > 1:
    pairs = itertools.permutations(updates, 2)
    found['pairwise_cosine'] = np.mean([cosine(*pair) for pair in pairs])
  if last is not None:
    found['turn'] = cosine(mean, last)
  return found, mean


@pytest.fixture(name='aggregate', scope='module')
def aggregate_fixture(in_process_context):
  del in_process_context
  factory = processes.MeasuringDrift(tff.aggregators.MeanFactory())
  process = factory.create(
    tff.types.to_type((np.float32, [2])), tff.TensorType(np.float32)
  )

  def run(updates, weights, state=None):
    state = process.initialize() if state is None else state
    output = process.next(state, [np.float32(u) for u in updates], weights)
    metrics = {'aggregator': output.measurements}
    found = {
      name.removeprefix('drift/'): value
      for name, value in rounds.columns_of(metrics).items()
      if name.startswith('drift/')
    }
    return found, output.state

  return run


@pytest.mark.parametrize(
  'updates, weights, expected',
  [
    (
      [[0.3, -0.4]] * 3,
      [1.0] * 3,
      dict(diversity=1 / 3, disagreement=0, cosine=1, pairwise_cosine=1),
    ),
    (
      [[0.0, 2.0], [2.0, 0.0]],
      [3.0] * 2,
      dict(diversity=1, disagreement=1, cosine=0.5**0.5, pairwise_cosine=0),
    ),
    # An update of 0 has a cosine of 0, and a client of weight 0 is none.
    ([[1.0, 0.0], [0.0, 0.0]], [1.0] * 2, dict(cosine=0.5, pairwise_cosine=0)),
    ([[1.0, 0.0], [0.0, 5.0]], [1.0, 0.0], dict(cosine=1, disagreement=0)),
  ],
)
def test_what_must_hold(aggregate, updates, weights, expected):
  found, _ = aggregate(updates, weights)
  for name, value in expected.items():
    assert found[name] == pytest.approx(value, abs=1e-6), name
  assert 'turn' not in found
  assert ('pairwise_cosine' in found) == (np.count_nonzero(weights) > 1)


def test_what_has_no_value_is_left_out(aggregate):
  nobody, state = aggregate([[1.0, 2.0]], [0.0])
  assert not nobody
  first, state = aggregate([[1.0, 2.0]], [1.0], state)
  assert {*first} == {'diversity', 'disagreement', 'cosine', 'norm'}
  _, state = aggregate([[1.0, 2.0]], [0.0], state)
  back, _ = aggregate([[-1.0, -2.0]], [1.0], state)
  assert back['turn'] == pytest.approx(-1)


@pytest.fixture(name='measured', scope='module')
def measured_fixture(in_process_context):
  del in_process_context
  return algorithms.build(
    'fedavg', dense.model(), client_learning_rate=RATE, record_drift=True
  )


@pytest.fixture(name='plain', scope='module')
def plain_fixture(in_process_context):
  del in_process_context
  return algorithms.build('fedavg', dense.model(), client_learning_rate=RATE)


def test_rounds(measured):
  state, x, last = measured.initialize(), dense.START, None
  for cohort in ROUNDS:
    output = measured.next(
      state, [dense.dataset(dense.CLIENTS[i]) for i in cohort]
    )
    state = output.state
    updates = [dense.sgd(x, dense.CLIENTS[i], RATE) - x for i in cohort]
    weights = [dense.num_examples(dense.CLIENTS[i]) for i in cohort]
    expected, last = figures(updates, weights, last)
    x = x + last
    found = {
      name.removeprefix('drift/'): value
      for name, value in rounds.columns_of(output.metrics).items()
      if name.startswith('drift/')
    }
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_traffic_does_not_count_it(measured, plain):
  assert traffic.of_process(measured) == traffic.of_process(plain)


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', ['fedlion', 'fedmuon', 'local_amsgrad'])
def test_preconditioners(name):
  rate = 0.1
  process = algorithms.build(
    name, dense.model(), client_learning_rate=rate, record_drift=True
  )
  output = process.next(
    process.initialize(), [dense.dataset(client) for client in dense.CLIENTS]
  )
  found = rounds.columns_of(output.metrics)['drift/preconditioner']
  if name == 'fedlion':
    ends = []
    for client in dense.CLIENTS:
      x, m = dense.START, np.zeros(8)
      for batch in client:
        g = dense.gradient(x, batch)
        x = x - rate * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
      ends.append(m)
    spread = np.mean([np.sum((m - np.mean(ends, axis=0)) ** 2) for m in ends])
    assert found == pytest.approx(spread, rel=1e-3)
  assert found > 0
  alike = process.next(
    process.initialize(), [dense.dataset(dense.CLIENTS[0])] * 2
  )
  same = rounds.columns_of(alike.metrics)['drift/preconditioner']
  assert same == pytest.approx(0, abs=1e-6 * float(found) + 1e-9)


def test_it_changes_no_round(measured, plain):
  for process in (measured, plain):
    path, _, _ = dense.run(process, ROUNDS)
    dense.close(path, dense.fedavg(ROUNDS, RATE))


@pytest.mark.parametrize(
  'given',
  [{'aggregator': 'secure'}, {'dp_clip_norm': 1.0, 'dp_clients_per_round': 4}],
)
def test_what_hides_updates_has_no_drift(given):
  with pytest.raises(parameters.ParameterError, match='individual updates'):
    algorithms.check('fedavg', record_drift=True, **given)


@pytest.mark.exhaustive
def test_a_run_writes_and_draws_it(tmp_path):
  settings = training.settings(
    algorithm='fedavg',
    task='quadratic',
    total_rounds=4,
    rounds_per_eval=2,
    record_drift=True,
    root_output_dir=str(tmp_path),
  )
  result = training.run(settings, say=lambda _: None)
  rows = result.rows
  assert 'drift/turn' not in rows[1] or not rows[1]['drift/turn']
  for row in rows[2:]:
    assert -1 <= float(row['drift/turn']) <= 1
    assert float(row['drift/disagreement']) >= -1e-6
  with open(settings.folder / 'curves.png', 'rb') as file:
    width = tf.io.decode_png(file.read()).shape[1]
  assert width > 3 * 4.4 * 150  # Loss, quality or not, and the cosines.
