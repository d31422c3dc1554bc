"""Searches that do not run a whole grid."""

import io

import numpy as np
import pytest

from tests import made_up
from tff_adaptive import errors
from tff_adaptive.sweep import search
from tff_adaptive.sweep import sweep
from tff_adaptive.training import experiment as train
from tff_adaptive.training import stopping

_RATES = '--axis=client_learning_rate=0.001,0.003,0.01,0.03,0.1,0.3,1,3,1e4'


@pytest.fixture(name='ran')
def ran_fixture(monkeypatch):
  """No training: rows are made up. Holds (name, last round) of what was run."""
  ran = []

  def run(settings, on_row=None, **_):
    last = [0]

    def look(row):
      last[0] = row['round']
      on_row(row)

    try:
      made_up.write(settings, look)
    finally:
      ran.append((settings.experiment_name, last[0]))

  made_up.replace_training(monkeypatch, run)
  return ran


def go(root, *arguments):
  parsed = sweep.parse(
    [
      '--algorithm=fedavg',
      '--total_rounds=27',
      '--rounds_per_eval=1',
      '--clients_per_round=2',
      '--experiment_name=s',
      f'--root_output_dir={root}',
      '--workers=0',
      *arguments,
    ]
  )
  return sweep.run(parsed, stream=io.StringIO())


def named(rows, status):
  return [r['name'] for r in rows if r['status'] == status]


def test_rungs():
  # 9 configurations, a third goes on twice: 27 / 9, 27 / 3, 27 rounds.
  assert search.rungs(9, 27, 3) == [3, 9, 27]
  assert search.rungs(1224, 1500, 3) == [3, 7, 19, 56, 167, 500, 1500]
  assert search.rungs(2, 27, 3) == [27]
  assert search.rungs(100, 2, 2) == [1, 2]


def test_halving_ends_with_the_best_and_spends_little(tmp_path, ran):
  rows = go(tmp_path, _RATES, '--search=halving')
  assert named(rows, 'finished') == ['client_learning_rate=0.1']
  by_name = {r['name']: r for r in rows}
  assert by_name['client_learning_rate=1e4']['status'] == 'diverged'
  assert by_name['client_learning_rate=0.001']['rounds'] == 3
  # Three went on to round 9.
  middle = [r['name'] for r in rows if r['rounds'] == 9]
  assert len(middle) == 2 and all(
    'best 1 of 9' in by_name[n]['reason'] for n in middle
  )
  assert 'best 3 of 9' in by_name['client_learning_rate=0.001']['reason']
  spent = sum(r['rounds'] for r in rows)
  assert spent == 9 * 3 + 3 * 6 + 18 - (
    3 - by_name['client_learning_rate=1e4']['rounds']
  )
  # What was pruned stays so; a whole grid takes it up again.
  del ran[:]
  go(tmp_path, _RATES, '--search=halving')
  assert not ran
  rows = go(tmp_path, _RATES)
  assert len(named(rows, 'finished')) == 8


def test_halving_keeps_all_seeds_of_a_configuration(tmp_path, ran):
  rows = go(
    tmp_path,
    '--axis=client_learning_rate=0.01,0.1,1',
    '--axis=seed=0,1',
    '--search=halving',
  )
  assert ran
  assert named(rows, 'finished') == [
    'client_learning_rate=0.1,seed=0',
    'client_learning_rate=0.1,seed=1',
  ]


def test_halving_goes_on_after_a_stop(tmp_path, ran, monkeypatch):
  whole = go(tmp_path / 'whole', _RATES, '--search=halving')
  original = train.run
  calls = []

  def run(settings, **more):
    calls.append(settings)
    if len(calls) == 11:  # In the second rung.
      raise stopping.Stopped(15)
    original(settings, **more)

  monkeypatch.setattr(train, 'run', run)
  with pytest.raises(stopping.Stopped):
    go(tmp_path / 'parts', _RATES, '--search=halving')
  rows = go(tmp_path / 'parts', _RATES, '--search=halving')

  def outcome(rows):
    return [(r['name'], r['status'], r['rounds']) for r in rows]

  assert outcome(rows) == outcome(whole)
  assert ran


def test_halving_needs_equal_rounds():
  with pytest.raises(errors.SettingsError, match='equal rounds'):
    sweep.parse(['--axis=total_rounds=3,4', '--search=halving'])


def test_bayesian_finds_the_best_of_many_in_few_trials(tmp_path, ran):
  client = ','.join(f'{10**e:.3g}' for e in np.arange(-4, 1.01, 0.5))
  server = ','.join(f'{10**e:.3g}' for e in np.arange(-2, 2.01, 0.5))
  told = [
    f'--axis=client_learning_rate={client}',
    f'--axis=server_learning_rate={server}',
    '--search=bayesian',
  ]
  rows = go(tmp_path, *told, '--trials=16')
  finished = [r for r in rows if r['status'] == 'finished']
  assert len(rows) == 99 and len(finished) == 16 == len(ran)
  pruned = [r for r in rows if r['status'] == 'pruned']
  assert len(pruned) == 83 and '16 configurations' in pruned[0]['reason']
  best = min(finished, key=lambda r: r['train/loss'])
  # The made-up losses are least at 0.1 and 1.
  assert best['flags'] == {
    'client_learning_rate': '0.1',
    'server_learning_rate': '1',
  }
  # More trials go on from there.
  del ran[:]
  rows = go(tmp_path, *told, '--trials=18')
  assert len(ran) == 2 and len(named(rows, 'finished')) == 18


def test_bayesian_survives_configurations_that_diverge(tmp_path, ran):
  rows = go(tmp_path, _RATES, '--search=bayesian', '--trials=9')
  assert named(rows, 'diverged') == ['client_learning_rate=1e4']
  assert len(named(rows, 'finished')) == 8 and len(ran) == 9


def test_places_of_configurations():
  keys = [
    (('algorithm', 'fedavg'), ('rate', '0.01')),
    (('algorithm', 'fedavg'), ('rate', '1')),
    (('algorithm', 'fedadam'), ('rate', '0.1'), ('tau', '3')),
    (('algorithm', 'fedadam'), ('rate', '0.1'), ('tau', '5')),
  ]
  np.testing.assert_allclose(
    search.encode(keys),
    [
      # fedavg, fedadam, log rate, tau or the middle where there is none
      [1, 0, 0.0, 0.5],
      [1, 0, 1.0, 0.5],
      [0, 1, 0.5, 0.0],
      [0, 1, 0.5, 1.0],
    ],
  )


def test_improvement_is_expected_between_the_good_ones():
  places = np.array([[0.0], [0.3], [0.5], [1.0]])
  values = (places[:, 0] - 0.42) ** 2
  candidates = np.linspace(0, 1, 101)[:, None]
  chosen = candidates[search.best_expected(places, values, candidates), 0]
  assert 0.3 < chosen < 0.5


@pytest.mark.parametrize(
  'arguments, part',
  [
    (['--trials=3'], '--trials=3 would be ignored'),
    (['--search=bayesian', '--halving_factor=2'], 'would be ignored'),
    (['--search=halving', '--halving_factor=1'], 'at least 2'),
    (['--search=best'], '--search'),
  ],
)
def test_complaints(tmp_path, arguments, part):
  with pytest.raises(errors.SettingsError, match=part):
    go(tmp_path, _RATES, *arguments)
  assert not list(tmp_path.iterdir())
