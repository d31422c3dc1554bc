"""Clients that are slow, late or gone: who counts, and what stays."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests import helpers
from tests import recorded
from tests import runs
from tests import tiers
from tff_adaptive import errors
from tff_adaptive.lab.commands import train
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.training import accounting
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training import parts
from tff_adaptive.lab.training.data import batches
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import cohorts
from tff_adaptive.lab.training.participation import system_model

pytestmark = pytest.mark.usefixtures('undrawn')

_SLOW = ['--client_seconds_per_example=0.02', '--client_speed_spread=1']
# Clients of 20 examples, and a dense model of two layers.
_SMALL = ['--task=table', '--data=synthetic']
# Everything at once; some rounds have nobody at all.
_ALL = [
  *(*_SMALL, '--client_seconds_per_example=0.07', '--client_speed_spread=1'),
  *('--client_dropout=0.4', '--over_selection=1.5', '--deadline=2'),
]


_SGD = ('--client_optimizer=sgd', '--client_learning_rate=0.05')


def settings_of(folder, *arguments, client=_SGD, **name):
  usual = ['--algorithm=fedavg', '--total_rounds=6', '--clients_per_round=4']
  usual += ['--rounds_per_eval=3', '--rounds_per_checkpoint=2', *client]
  return runs.settings_of(folder, *usual, *arguments, **name)


def run(settings):
  said = []
  result = experiment.run(settings, say=said.append)
  return result, said


def table(settings, virtual=True):
  return [
    {k: v for k, v in row.items() if virtual or not k.startswith('virtual/')}
    for row in recorded.rows(settings.folder)
  ]


def parts_of(settings):
  """A run's parts, as the program makes them."""
  task = experiment.create_task(settings)
  draw = cohorts.build_cohort_fn(
    task.datasets.train_data.client_ids,
    clients_per_round=settings.clients_per_round,
    over_selection=settings.over_selection or 1.0,
  )
  built = experiment.build(settings, task)
  return parts.make(settings, task, built, draw, experiment.training_data)


@pytest.mark.parametrize(
  'seconds, wanted, deadline, cohort, round_seconds, late',
  [
    # All count: the slowest decides.
    ({'a': 3, 'b': 1, 'c': 2}, 3, None, 'abc', 30, 0),
    # The first two of three, in the order drawn.
    ({'a': 3, 'b': 1, 'c': 2}, 2, None, 'bc', 20, 1),
    # Of those that answer together the first drawn counts.
    ({'a': 2, 'b': 2, 'c': 1}, 2, None, 'ac', 20, 1),
    # An answer at the deadline counts; too few, so that it is waited for.
    ({'a': 3, 'b': 1, 'c': 2}, 3, 20, 'bc', 20, 1),
    ({'a': 3, 'b': 1, 'c': 2}, 2, 25, 'bc', 20, 1),
    # Nobody knows that a client has gone before it would have answered.
    ({'a': 1, 'b': None, 'c': 4}, 3, None, 'ac', 40, 0),
    ({'a': 1, 'b': None, 'c': None}, 2, 50, 'a', 50, 0),
    ({'a': 1, 'b': None, 'c': 2}, 2, 50, 'ac', 20, 0),
    # Nobody.
    ({'a': None, 'b': None}, 2, 50, '', 50, 0),
    ({'a': None, 'b': None}, 2, None, '', 10, 0),
    ({'a': 7, 'b': 8}, 2, 50, '', 50, 2),
  ],
)
def test_who_counts(seconds, wanted, deadline, cohort, round_seconds, late):
  found = availability.Availability(
    lambda number: [*seconds],
    lambda client, number: 10,
    helpers.Scripted(
      {c: s or 1.0 for c, s in seconds.items()},
      gone=[c for c, s in seconds.items() if s is None],
    ),
    wanted=wanted,
    deadline=deadline,
  )
  assert found.cohort(1) == [*cohort]
  assert found.columns(1) == {
    'virtual/selected': len(seconds),
    'virtual/dropped': sum(s is None for s in seconds.values()),
    'virtual/late': late,
    'virtual/round_seconds': round_seconds,
    'virtual/most_work': 10 if cohort else 0,
  }


@pytest.mark.parametrize('name', tiers.every_task())
def test_examples_are_counted_as_they_are_iterated(name):
  options = {
    **tasks.info(name).small_options,
    'epochs': 2,
    'max_elements': 7,
    'batch_size': 2,
  }
  there = tasks.parameters_of(name)
  options = {k: v for k, v in options.items() if k in there}
  task = tasks.create(name, data='synthetic', **options)
  for max_steps in (None, 2):
    clients = batches.training_clients(
      task.datasets,
      seed=3,
      cache_bytes=2**20,
      as_lists=True,
      max_steps=max_steps,
    )
    for client in clients.client_ids[:3]:
      count = sum(
        tf.nest.flatten(batch)[0].shape[0]
        for batch in clients.for_client(client, 4)
      )
      assert clients.num_examples(client, 4) == count > 0


def test_examples_of_foreign_tasks_are_counted_too():
  datasets = helpers.task(sizes=(6, 9, 0)).datasets
  counts = [
    [clients.num_examples(c, 2) for c in clients.client_ids]
    for clients in (
      data.ClientDatasets(datasets, seed=0),
      data.ClientDatasets(datasets, seed=0, max_steps=1),
    )
  ]
  assert counts == [[6, 9, 0], [4, 4, 0]]


@pytest.fixture(name='trained', scope='module')
def trained_fixture(tmp_path_factory):
  """Trains once with the same flags, however many tests ask for it."""
  folder = tmp_path_factory.mktemp('runs')
  done = {}

  def trained(name, *arguments):
    if name not in done:
      settings = settings_of(folder, *_SMALL, *arguments, name=name)
      run(settings)
      done[name] = settings
    return done[name]

  return trained


def sure(trained):
  return trained('sure', *_SLOW, '--rounds_per_eval=1')


@pytest.mark.exhaustive
def test_time_alone_changes_nothing_else(trained):
  rows = table(sure(trained))
  plain = trained('plain', '--rounds_per_eval=1')
  assert table(sure(trained), virtual=False) == table(plain)
  total = 0.0
  for row in rows[1:]:
    total += float(row['virtual/round_seconds'])
    assert float(row['virtual/seconds']) == pytest.approx(total)
    assert row['virtual/selected'] == '4' == row['clients/count']
  assert total > 0 and rows[0]['virtual/seconds'] == ''


@pytest.mark.parametrize(
  'arguments',
  tiers.exhaustive_but(
    [['--algorithm=scaffold']],
    [
      ['--algorithm=scaffold'],
      ['--algorithm=moon'],
      ['--algorithm=feddyn'],
      ['--algorithm=fedcams', '--compressor=topk'],
    ],
  ),
  ids=lambda arguments: arguments[0].partition('=')[2],
)
def test_memories_of_those_who_do_not_answer_stay(
  tmp_path, arguments, in_process_context
):
  del in_process_context
  more = [a for a in _ALL if 'over' not in a]
  settings = settings_of(tmp_path, *more, '--clients_per_round=12', *arguments)
  made = parts_of(settings)
  ids = made.clients.client_ids
  store = made.rounds._kept

  def kept():
    return {c: tf.nest.flatten(store.of([c])) for c in ids}

  def differ(one, other):
    return any(not np.array_equal(a, b) for a, b in zip(one, other))

  fresh = kept()
  drawn = cohorts.build_cohort_fn(ids, clients_per_round=12)
  absent = 0
  for number in (1, 2, 3):
    cohort = made.cohort_fn(number)
    assert cohort == [c for c in drawn(number) if c in cohort]
    before = kept()
    made.rounds.run(cohort, made.clients.for_round(number, cohort).batches)
    for client, state in kept().items():
      assert differ(state, before[client]) == (client in cohort)
      absent += client in {*drawn(number)} - {*cohort} and differ(
        state, fresh[client]
      )
  assert absent  # Drawn, gone, and with something to lose.


def absent_ones(trained):
  return trained('absent', '--algorithm=scaffold', '--ema_decay=0.5', *_ALL)


@pytest.mark.exhaustive
def test_stopped_and_resumed(trained, tmp_path, stop_in_round):
  halves = settings_of(
    tmp_path, '--algorithm=scaffold', '--ema_decay=0.5', *_ALL
  )
  stop_in_round(3)
  with pytest.raises(stopping.Stopped):
    run(halves)
  result, _ = run(halves)
  assert result.resumed_from >= 2
  assert table(halves) == table(absent_ones(trained))


@pytest.mark.exhaustive
def test_a_round_in_which_nobody_answers(tmp_path, capsys):
  settings = settings_of(
    tmp_path,
    *_SMALL,
    *_SLOW,
    '--client_dropout=0.6',
    '--deadline=900',
    '--record_step_sizes',
    '--clients_per_round=2',
    '--rounds_per_eval=1',
    client=['--client_optimizer=delta_sgd'],
  )
  _, said = run(settings)
  rows = table(settings)
  empty = [row for row in rows[1:] if row['clients/count'] == '0']
  assert 0 < len(empty) < 6
  for row in empty:
    before = rows[int(row['round']) - 1]
    assert row['virtual/dropped'] == '2'
    assert row['virtual/round_seconds'] == '900.0'
    assert row['validation/loss'] == before['validation/loss']
    assert not row['train/loss'] and not row['update/norm']
  answered = {r['round']: int(r['clients/count']) for r in rows[1:]}
  steps = tables.RowFile(settings.folder / 'step_sizes.csv').rows
  for number, count in answered.items():
    assert sum(row['round'] == number for row in steps) == count
  assert any('virtual seconds' in line for line in said)
  told = f'Round {empty[0]["round"]}: no client answered'
  assert told in capsys.readouterr().out


def test_more_than_there_are(tmp_path):
  settings = settings_of(
    tmp_path, *_SLOW, '--over_selection=1.1', '--clients_per_round=20'
  )
  for start in (run, train.describe):
    with pytest.raises(errors.SettingsError, match=r'draws 22 .* at most 1\.'):
      start(settings)


def test_over_selection_rounds_up_as_it_is_written():
  ids = [f'{i}' for i in range(30)]
  plain = cohorts.build_cohort_fn(ids, clients_per_round=10)
  for factor, count in ((1.0, 10), (1.1, 11), (1.25, 13), (1.3, 13), (3.0, 30)):
    more = cohorts.build_cohort_fn(
      ids, clients_per_round=10, over_selection=factor
    )
    assert len(more(2)) == count
    assert more(2)[:10] == plain(2)  # Those of the reference come first.


@pytest.mark.exhaustive
def test_privacy_with_dropouts_is_accounted_as_without(tmp_path):
  private = ['--dp_clip_norm=0.5', '--dp_noise_multiplier=1']
  gone = settings_of(
    tmp_path, *private, '--client_dropout=0.5', '--total_rounds=2'
  )
  run(gone)
  task = experiment.create_task(gone)
  ledger = accounting.open_ledger(
    settings_of(tmp_path, *private, '--total_rounds=2'),
    len(task.datasets.train_data.client_ids),
  )
  for number, row in enumerate(table(gone)[1:], start=1):
    assert 'virtual/seconds' not in row
    told = float(row['privacy/epsilon'])
    assert told == ledger.columns(number)['privacy/epsilon']


def test_dry_run_says_what_is_in_force(tmp_path):
  text = train.describe(settings_of(tmp_path, *_ALL))
  for part in (
    'clients take 0.07 virtual seconds an example on average (spread 1)',
    '0.4 of the sampled clients drop out',
    'the first 4 of 1.5 times as many to answer count',
    'after 2 virtual seconds none does',
    '--deadline=2.0',
  ):
    assert part in text, text
  phones = settings_of(
    tmp_path,
    '--client_devices=cross_device',
    '--client_seconds_per_step=2',
    '--client_mbit_up=3',
  )
  text = train.describe(phones)
  spread = system_model.KINDS['cross_device'].speed_spread
  assert f'2 virtual seconds a gradient on average (spread {spread:g})' in text
  assert 'Mbit/s down and 3 up' in text
