"""Asynchronous training: FedBuff's rule, who trains when, and exact resume."""

import gc
import signal

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import helpers
from tests import recorded
from tests import runs
from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import processes
from tff_adaptive.algorithms import building
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.commands import train
from tff_adaptive.lab.training import asynchronous
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.lab.training.participation import availability

pytestmark = pytest.mark.usefixtures('undrawn')

# Five clients of one weight, of which two are slow.
_DATA = {
  'a': linear.CLIENTS[0],
  'b': linear.CLIENTS[1],
  'c': linear.CLIENTS[2],
  'd': [([2.0, -1.0], [4.0, 1.0])],
  'e': [([1.0], [-3.0]), ([0.5], [2.0])],
}
_SPEED = {'a': 3.7, 'b': 1.0, 'c': 0.9, 'd': 1.3, 'e': 9.0}
_RATE = 0.06


def duration(client):
  return _SPEED[client] * linear.num_examples(_DATA[client])


def order(number):
  """All clients, in another order in every round."""
  ids = [*_DATA]
  np.random.default_rng(number).shuffle(ids)
  return ids


def fedbuff_paper(
  *, k, concurrency, steps, eta, s, weight=lambda c: 1.0, newest=False
):
  """Algorithm 1 of arXiv 2106.06639: the weight after each server step.

  Args:
    k: Updates to a server step.
    concurrency: Clients that train at once.
    steps: Server steps.
    eta: The server's rate.
    s: From staleness to a factor.
    weight: How much a client counts; the paper's count the same.
    newest: Whether clients train from the newest model, which is wrong.
  """
  local = linear.sgd(_RATE)
  w, t, now, begun = linear.START, 0, 0.0, 0
  training = []  # Time of the answer, order, client, model and its step.
  path, times, ages = [], [], []
  while t < steps:
    asked, buffer = iter(order(t + 1)), []
    while len(buffer) < k:
      if not any(over == now for over, *_ in training):
        busy = {c for _, _, c, *_ in training} | {c for c, *_ in buffer}
        while len(training) < concurrency:
          c = next((c for c in asked if c not in busy), None)
          if c is None:
            break
          training.append((now + duration(c), begun, c, w, t))
          begun += 1
      training.sort()
      now, _, c, w_c, t_c = training.pop(0)
      start = w if newest else w_c
      buffer.append((c, local(start, _DATA[c]) - start, t - t_c))
    total = sum(weight(c) for c, *_ in buffer)
    w += eta * sum(weight(c) * s(tau) * d for c, d, tau in buffer) / total
    t += 1
    path.append(w)
    times.append(now)
    ages.append([tau for *_, tau in buffer])
  return path, times, ages


def polynomial(tau):
  return (1 + tau) ** -0.5


def schedule_of(concurrency, k, **more):
  return asynchronous.Schedule(
    [*_DATA],
    order,
    lambda client, number: linear.num_examples(_DATA[client]),
    helpers.Scripted(_SPEED),
    wanted=k,
    concurrency=concurrency,
    **more,
  )


def rounds_of(schedule, *, concurrency, eta, weighting, staleness):
  process = processes.compose(
    linear.model_fn,
    tff.learning.optimizers.build_sgdm(_RATE),
    tff.learning.optimizers.build_sgdm(eta),
    client_weighting=weighting,
    takes_messages=True,
  )
  return asynchronous.AsynchronousRounds(
    process,
    process.set_model_weights(
      process.initialize(), initial_weights.draw(linear.model_fn, 0)
    ),
    concurrency=concurrency,
    schedule=schedule,
    discount=asynchronous.DISCOUNTS[staleness],
  )


@pytest.mark.parametrize(
  'k, concurrency, weighting, staleness',
  tiers.exhaustive_but(
    [(2, 4, 'uniform', 'polynomial')],
    [
      (2, 4, 'uniform', 'polynomial'),
      (2, 4, 'uniform', 'none'),
      (1, 3, 'examples', 'polynomial'),
      (3, 3, 'uniform', 'polynomial'),
    ],
  ),
)
def test_follows_the_paper(
  k, concurrency, weighting, staleness, in_process_context
):
  del in_process_context
  schedule = schedule_of(concurrency, k)
  rounds = rounds_of(
    schedule,
    concurrency=concurrency,
    eta=0.8,
    weighting=weighting,
    staleness=staleness,
  )
  path, times, ages = [], [], []
  for number in range(1, 9):
    cohort = schedule.cohort(number)
    columns = rounds.run(cohort, linear.datasets(_DATA[c] for c in cohort))
    assert columns['clients/count'] == len(cohort) == k
    path.append(float(rounds.model_weights().trainable[0][0][0]))
    times.append(schedule.columns(number)['virtual/seconds'])
    ages.append(schedule.columns(number)['staleness/mean'])
  given = dict(k=k, concurrency=concurrency, steps=8, eta=0.8)
  if weighting == 'examples':
    given['weight'] = lambda c: linear.num_examples(_DATA[c])
  right, other = polynomial, lambda tau: 1.0
  if staleness == 'none':
    right, other = other, right
  expected, clock, of_each = fedbuff_paper(s=right, **given)
  np.testing.assert_allclose(path, expected, rtol=1e-5)
  np.testing.assert_allclose(times, clock)
  np.testing.assert_allclose(ages, [np.mean(a) for a in of_each])
  assert max(map(max, of_each)) > 1
  # These inputs tell the rule from those beside it.
  for wrong in (
    fedbuff_paper(s=other, **given)[0],
    fedbuff_paper(s=right, newest=True, **given)[0],
  ):
    assert not np.allclose(path, wrong, rtol=1e-2)


def test_who_is_asked():
  schedule = schedule_of(3, 2)
  seen = {}
  for number in range(1, 30):
    answers = schedule.answers(number)
    assert len({*answers.cohort}) == len(answers.cohort) == 2
    for flight in answers.flights:
      assert flight.version < number
      # Nobody is asked twice for one version.
      assert seen.setdefault((flight.client, flight.version), flight) is flight
    together = [e.slot for e in answers.under_way]
    assert len({*together}) == len(together) <= 3
    assert len({e.client for e in answers.under_way}) == len(together)
  # Asked for late, it is the same: from the start, and from a checkpoint.
  late, resumed = schedule_of(3, 2), schedule_of(3, 2)
  assert late.answers(29) == schedule.answers(29)
  saved = {k: np.copy(v) for k, v in late.saved(29).items()}
  resumed.restore(29, saved)
  assert resumed.answers(30) == schedule.answers(30)


def test_a_round_ends_with_what_there_is_when_nobody_is_left_to_ask():
  schedule = asynchronous.Schedule(
    [*_DATA],
    order,
    lambda client, number: 1,
    helpers.Scripted({**_SPEED, 'a': 1.0, 'b': 1.0}, gone='ab'),
    wanted=4,
    concurrency=2,
    deadline=5.0,
  )
  for number in (1, 2, 3):
    assert sorted(schedule.cohort(number)) == ['c', 'd']
    columns = schedule.columns(number)
    assert columns['virtual/dropped'] == 2 and columns['virtual/late'] == 1
    assert columns['virtual/selected'] == 5
  nobody = asynchronous.Schedule(
    [*_DATA],
    order,
    lambda client, number: 1,
    helpers.Scripted(dict.fromkeys(_DATA, 2.0), gone=_DATA),
    wanted=2,
    concurrency=2,
  )
  assert nobody.cohort(1) == []
  assert nobody.columns(1)['virtual/seconds'] == 6.0  # 2 + 2 + 1 at once.


def test_which_methods_take_messages():
  taken, refused = set(), set()
  for name, method in methods.table().items():
    if method.has_clients:
      configuration = algorithms.resolve(name)
      components = building.build_components(configuration)
      reason = processes.needs_one_version(components.exchange)
      assert method.needs_one_version(configuration.build('own')) == bool(
        reason
      ), name
      (refused if reason else taken).add(name)
  assert refused == {
    *('fadamgc', 'fedadamw', 'fedcm', 'feddyn', 'fedexp', 'fedef21', 'fedlion'),
    *('fedmuon', 'fednova', 'fedsps_global', 'local_adaalter', 'local_amsgrad'),
    *('mime', 'mimelite', 'scaffold'),
  }
  assert {'fedadam', 'moon', 'direct_joint', 'fedcams', 'fedlesam'} <= taken


@pytest.mark.parametrize('count', ['training', 'round'])
@pytest.mark.parametrize('memory', ['round', 'client'])
def test_feddecsps_takes_messages_if_it_counts_alone(count, memory):
  configuration = algorithms.resolve('feddecsps', count=count, memory=memory)
  exchange = building.build_components(configuration).exchange
  needed = bool(processes.needs_one_version(exchange))
  assert (
    configuration.method.needs_one_version(configuration.build('own')) == needed
  )


run = runs.train


def settings_of(folder, *arguments, asynchronous_run=True, **name):
  usual = ['--client_optimizer=sgd', '--client_learning_rate=0.05']
  usual += ['--total_rounds=6', '--clients_per_round=3', '--rounds_per_eval=3']
  usual += ['--rounds_per_checkpoint=2', '--client_seconds_per_example=0.02']
  usual += ['--asynchronous'] if asynchronous_run else []
  return runs.settings_of(folder, *usual, *arguments, **name)


def table(settings):
  return recorded.rows(settings.folder)


def without_staleness(settings):
  return [
    {k: v for k, v in row.items() if not k.startswith('staleness/')}
    for row in table(settings)
  ]


# Clients of 20 examples, and a dense model of two layers.
_SMALL = ['--task=table', '--data=synthetic']


@pytest.mark.parametrize(
  'algorithm', tiers.exhaustive_but([], ['moon', 'direct_joint'])
)
def test_in_step_it_is_synchronous_training(tmp_path, algorithm):
  """Who is equally fast, and as many as count, answers together."""
  arguments = [*_SMALL, f'--algorithm={algorithm}', '--total_rounds=3']
  arguments += ['--max_elements_per_client=20']
  if algorithm == 'direct_joint':
    arguments += ['--client_optimizer=adagrad']
  alike, apart = (
    settings_of(tmp_path, *arguments, name=f'{kind}', asynchronous_run=kind)
    for kind in (False, True)
  )
  run(alike)
  run(apart)
  expected = table(alike)
  for row in expected:
    # Of a cohort, which asynchronous training has not.
    del row[availability.MOST_WORK]
  assert without_staleness(apart) == expected
  assert {row['staleness/max'] for row in table(apart)[1:]} == {'0'}
  assert table(apart)[-1]['virtual/seconds'] == '1.2'


_APART = [
  *(*_SMALL, '--algorithm=moon', '--ema_decay=0.5', '--concurrency=7'),
  *('--client_speed_spread=1', '--client_dropout=0.1', '--deadline=1'),
]


@pytest.fixture(name='whole', scope='module')
def whole_fixture(tmp_path_factory):
  """A run in which clients are stale."""
  settings = settings_of(tmp_path_factory.mktemp('whole'), *_APART)
  run(settings)
  assert max(int(r['staleness/max']) for r in table(settings)[1:]) > 1
  return settings


@pytest.mark.exhaustive
def test_stopped_and_resumed(whole, tmp_path, monkeypatch):
  # Held in memory first, and on disk alone later.
  kept, halves = (
    settings_of(tmp_path, *_APART, f'--client_state_mib={mib}')
    for mib in (2048, 0)
  )
  cls = asynchronous.AsynchronousRounds
  original, calls = cls.run, []

  def stopping_run(self, cohort, datasets):
    calls.append(cohort)
    if len(calls) in (4, 6):
      original(self, cohort, datasets)  # Undone by the loop.
      raise stopping.Stopped(signal.SIGTERM)
    return original(self, cohort, datasets)

  monkeypatch.setattr(cls, 'run', stopping_run)
  for settings in (kept, halves):
    with pytest.raises(stopping.Stopped):
      run(settings)
    gc.collect()  # As the end of the program does: the file is let go.
  monkeypatch.setattr(cls, 'run', original)
  assert run(halves).resumed_from == 4
  assert table(halves) == table(whole)


def test_foreign_tasks_have_data_of_the_round_in_which_clients_began():
  datasets = helpers.task(sizes=(6, 9, 5, 8)).datasets
  clients = data.ClientDatasets(datasets, seed=0)
  ids = clients.client_ids
  schedule = asynchronous.Schedule(
    ids,
    lambda number: ids,
    clients.num_examples,
    helpers.Scripted({c: 1.0 + i for i, c in enumerate(ids)}),
    wanted=2,
    concurrency=4,
  )
  staggered = asynchronous.AsynchronousClients(clients, schedule)
  assert not staggered.prepared_ahead
  stale = 0
  for number in (1, 2, 3):
    answers = schedule.answers(number)
    found = staggered.for_round(number, answers.cohort).batches
    for client, flight, batches_ in zip(
      answers.cohort, answers.flights, found, strict=True
    ):
      stale += flight.version + 1 < number
      expected = clients.for_client(client, flight.version + 1)
      for one, two in zip(batches_, expected, strict=True):
        np.testing.assert_array_equal(one['x'], two['x'])
  assert stale


def test_a_process_of_such_a_method_is_refused_too():
  components = building.build_components(algorithms.resolve('fedexp'))
  with pytest.raises(ValueError, match='cannot take messages'):
    components.compose(linear.model_fn, takes_messages=True)


@pytest.mark.parametrize(
  'arguments, words',
  [
    (['--concurrency=21'], '--concurrency=21 is more than the 20'),
    (['--clients_per_round=21'], '--clients_per_round=21 is more than the 20'),
  ],
)
def test_more_than_there_are(tmp_path, arguments, words):
  settings = settings_of(tmp_path, '--algorithm=fedavg', *arguments)
  for start in (run, train.describe):
    with pytest.raises(errors.SettingsError, match=words):
      start(settings)


def test_dry_run_says_what_is_in_force(tmp_path):
  text = train.describe(settings_of(tmp_path, *_APART))
  for part in (
    'the server takes a step after every 3 answers',
    '(staleness polynomial)',
    'after 1 virtual seconds a client is given up',
    '--asynchronous=True',
    'each client receives',
  ):
    assert part in text, text
