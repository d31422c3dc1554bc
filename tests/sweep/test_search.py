"""Searches that do not run a whole grid."""

import io

import numpy as np
import pytest

from tests import made_up
from tests import tiers
from tff_adaptive import errors
from tff_adaptive.lab.recording import hooks as hooks_lib
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import launch
from tff_adaptive.lab.sweep import study as study_lib
from tff_adaptive.lab.training import experiment as train
from tff_adaptive.lab.training.loop import stopping

_RATES = '--axis=client_learning_rate=0.001,0.003,0.01,0.03,0.1,0.3,1,3,1e4'


@pytest.fixture(name='ran')
def ran_fixture(monkeypatch):
  """No training: rows are made up. Holds (name, last round) of what was run."""
  ran = []

  def run(settings, hooks=(), **_):
    last = [0]

    class Look(hooks_lib.Hook):
      def round(self, event):
        last[0] = event.number

    try:
      made_up.write(settings, [Look(), *hooks])
    finally:
      ran.append((settings.experiment_name, last[0]))

  made_up.replace_training(monkeypatch, run)
  return ran


_METHOD = '--algorithm=fedavg'


def _told(root):
  words = [_METHOD, '--total_rounds=27', '--rounds_per_eval=1', '--workers=0']
  words += ['--clients_per_round=2', '--experiment_name=s']
  return [*words, f'--root_output_dir={root}']


def parse(root, *arguments):
  return flags.parse([*_told(root), *arguments])


def go(root, *arguments):
  return launch.run(parse(root, *arguments), stream=io.StringIO())


def named(rows, status):
  return [row.name for row in rows if row.status == status]


def outcomes(rows):
  return [(row.name, row.status, row.outcome.rounds) for row in rows]


@pytest.mark.exhaustive
def test_halving_ends_with_the_best_and_spends_little(tmp_path, ran):
  rows = go(tmp_path, _RATES, '--pruner=halving')
  by_name = {row.name: row for row in rows}
  assert 'client_learning_rate=0.1' in named(rows, 'finished')
  assert named(rows, 'diverged') == ['client_learning_rate=1e4']
  pruned = named(rows, 'pruned')
  assert len(pruned) >= 4 and len(pruned) + len(named(rows, 'finished')) == 8
  for name in pruned:
    outcome = by_name[name].outcome
    assert outcome.rounds in (3, 9)
    assert outcome.reason.endswith(f'after round {outcome.rounds}')
  assert sum(row.outcome.rounds for row in rows) < 0.7 * 9 * 27
  # What was pruned stays so; a whole grid takes it up again.
  del ran[:]
  go(tmp_path, _RATES, '--pruner=halving')
  assert not ran
  rows = go(tmp_path, _RATES)
  assert len(named(rows, 'finished')) == 8
  assert sorted(name for name, _ in ran) == sorted(pruned)


def test_halving_runs_all_seeds_of_what_is_left(tmp_path, ran):
  rows = go(tmp_path, _RATES, '--axis=seed=0,1', '--pruner=halving')
  finished = named(rows, 'finished')
  assert 'client_learning_rate=0.1,seed=0' in finished
  configurations = {name[:-1] for name in finished}
  assert set(finished) == {f'{c}{n}' for c in configurations for n in (0, 1)}
  assert len(ran) == len({name for name, _ in ran})


@pytest.mark.parametrize('at', tiers.exhaustive_but([4], [1, 4, 7]))
def test_halving_goes_on_after_a_stop(tmp_path, ran, monkeypatch, at):
  whole = go(tmp_path / 'whole', _RATES, '--pruner=halving')
  assert ran
  count = [0]

  def run(settings, hooks=(), **more):
    del more
    count[0] += 1

    class Stopper(hooks_lib.Hook):
      def round(self, event):
        # The row is written, and nobody has looked at it.
        if count[0] == at and event.number == 3:
          raise stopping.Stopped(15)

    made_up.write(settings, [Stopper(), *hooks])

  monkeypatch.setattr(train, 'run', run)
  with pytest.raises(stopping.Stopped):
    go(tmp_path / 'parts', _RATES, '--pruner=halving')
  rows = go(tmp_path / 'parts', _RATES, '--pruner=halving')
  assert outcomes(rows) == outcomes(whole)


def _rates(low, high):
  return ','.join(f'{10**e:.3g}' for e in np.arange(low, high + 0.01, 0.5))


@pytest.mark.parametrize(
  'kind', tiers.exhaustive_but(['qmc'], ['tpe', 'qmc', 'random'])
)
def test_searches_draw_from_ranges(tmp_path, ran, kind):
  told = [
    '--axis=client_learning_rate=1e-4..10',
    '--axis=server_learning_rate=0.01..100',
    '--axis=client_epochs_per_round=1..3',
    f'--search={kind}',
  ]
  rows = go(tmp_path, *told, '--trials=24')
  assert len(rows) == 24 == len(ran)
  assert {row.status for row in rows} == {'finished'}
  rates = sorted(float(row.flags['client_learning_rate']) for row in rows)
  assert rates[0] < 1e-3 and rates[-1] > 1 and len(set(rates)) == 24
  assert rates[0] >= 1e-4 and rates[-1] <= 10
  assert {row.flags['client_epochs_per_round'] for row in rows} == set('123')
  # The made-up losses are least at 0.1 and 1.
  best = min(rows, key=lambda r: r.outcome.measures['train/loss'])
  if kind == 'tpe':
    assert 0.01 <= float(best.flags['client_learning_rate']) <= 1
  # More trials go on from there.
  del ran[:]
  rows = go(tmp_path, *told, '--trials=26')
  assert len(ran) == 2 and len(named(rows, 'finished')) == 26
  with pytest.raises(errors.SettingsError, match='another sweep'):
    go(tmp_path, told[0], told[3])


def test_methods_are_searched_with_axes_of_their_own(tmp_path, ran):
  told = ['--total_rounds=4', '--clients_per_round=2', '--experiment_name=s']
  told += [f'--root_output_dir={tmp_path}', '--workers=0', '--trials=10']
  told += ['--axis=algorithm=fedavg,fedadam', '--search=random']
  told += ['--axis=client_learning_rate=0.01..1', '--repeat_best=1,2']
  told += ['--axis=fedadam:server_learning_rate=0.1,1']
  rows = launch.run(flags.parse(told), stream=io.StringIO())
  firsts = [row for row in rows if row.settings['seed'] == 0]
  assert len(firsts) == 10 and len(rows) == 14 == len(ran)
  assert {row.flags['algorithm'] for row in firsts} == {'fedavg', 'fedadam'}
  for row in rows:
    own = row.flags['algorithm'] == 'fedadam'
    assert ('server_learning_rate' in row.flags) == own


def test_a_search_of_few_values_tries_each_once(tmp_path, ran):
  told = [_RATES, '--search=random', '--trials=30']
  rows = go(tmp_path, *told)
  assert len(rows) == 9 == len(ran)
  # The parent process and later commands read this from the study.
  assert study_lib.Study(parse(tmp_path, *told)).left() == 0
  more = [*told, '--trials=31']
  assert study_lib.Study(parse(tmp_path, *more)).left() == 22


def test_a_search_passes_over_values_that_contradict_each_other(tmp_path, ran):
  told = ['--client_learning_rate=0.1', '--lora_rank=2']
  axes = ['--axis=lora_rule=lora,fedex', '--axis=aggregator=mean,median']
  rows = go(tmp_path, *told, *axes, '--search=random', '--trials=4')
  # fedex needs the mean.
  assert {row.flags['aggregator'] for row in rows} == {'mean', 'median'}
  assert len(rows) == 3 == len(ran)


@pytest.mark.parametrize('first', ['adam', 'sgd'])
def test_values_that_suit_some_combination_may_come_first(tmp_path, ran, first):
  other = 'sgd' if first == 'adam' else 'adam'
  axes = [
    f'--axis=client_optimizer={first},{other}',
    '--axis=algorithm=scaffold,fedavg',
    '--axis=client_learning_rate=0.01..0.1',
    # More combinations than are tried.
    '--axis=client_epochs_per_round=1,2,3,4,5,6,7,8,9',
    '--axis=server_learning_rate=' + ','.join(map(str, range(1, 20))),
  ]
  arguments = [*axes, '--search=random', '--trials=4']
  sweep = flags.parse([a for a in _told(tmp_path) + arguments if a != _METHOD])
  rows = launch.run(sweep, stream=io.StringIO())
  assert len(rows) == 4
  arguments[0] = f'--axis=client_optimizer={first},lamb'
  with pytest.raises(errors.SettingsError, match="'lamb'"):
    flags.parse([a for a in _told(tmp_path) + arguments if a != _METHOD])


def test_a_search_takes_further_seeds(tmp_path, ran):
  search = [
    '--axis=client_learning_rate=0.01..0.1',
    '--search=random',
    '--trials=2',
  ]
  assert len(go(tmp_path, *search, '--axis=seed=0,1')) == 4
  rows = go(tmp_path, *search, '--axis=seed=0,1,2')
  assert len(rows) == 6 == len(ran)
  assert len({row.settings['client_learning_rate'] for row in rows}) == 2


def test_seeds_of_64_bits_draw_points_of_a_sequence(tmp_path, ran):
  search = ['--search=qmc', '--trials=3', f'--seed={2**40}']
  rows = go(tmp_path, '--axis=client_learning_rate=0.01..1', *search)
  assert len(rows) == 3


def test_a_search_that_ends_early_repeats_the_best(tmp_path, ran):
  rates = '--axis=client_learning_rate=0.01,0.1'
  search = ['--search=random', '--trials=6', '--repeat_best=1,2']
  rows = go(tmp_path, rates, *search)
  assert [name for name, _ in ran[2:]] == [
    f'client_learning_rate=0.1,seed={seed}' for seed in (1, 2)
  ]
  assert len(rows) == len(ran) == 4


@pytest.mark.exhaustive
def test_tpe_goes_on_after_a_stop_as_if_there_was_none(
  tmp_path, ran, monkeypatch
):
  told = [f'--axis=client_learning_rate={_rates(-4, 1)}', '--search=tpe']
  told += ['--trials=9']
  whole = go(tmp_path / 'whole', *told)
  order = [name for name, _ in ran]
  good = train.run
  count = [0]

  def run(settings, hooks=(), **more):
    count[0] += 1
    if count[0] in (3, 8):
      made_up.write(settings, hooks, stop_at=5)
    good(settings, hooks=hooks, **more)

  monkeypatch.setattr(train, 'run', run)
  del ran[:]
  for _ in range(2):
    with pytest.raises(stopping.Stopped):
      go(tmp_path / 'parts', *told)
  assert outcomes(go(tmp_path / 'parts', *told)) == outcomes(whole)
  assert [name for name, _ in ran] == order


def test_tpe_survives_configurations_that_diverge(tmp_path, ran):
  rows = go(tmp_path, _RATES, '--search=tpe', '--trials=9')
  assert named(rows, 'diverged') == ['client_learning_rate=1e4']
  assert len(named(rows, 'finished')) == 8 and len(ran) == 9


def test_tpe_repeats_what_finished_with_the_other_seeds(tmp_path, ran):
  rows = go(tmp_path, _RATES, '--axis=seed=0,1,2', '--search=tpe', '--trials=4')
  by_configuration = {}
  for row in rows:
    rate = row.flags['client_learning_rate']
    by_configuration.setdefault(rate, set()).add(row.status)
  tried = [s for s in by_configuration.values() if s != {'untried'}]
  assert len(tried) == 4 and tried.count({'finished'}) >= 3
  assert len(ran) == len(rows)


def test_tpe_that_prunes(tmp_path, ran):
  told = [_RATES, '--search=tpe', '--trials=8', '--pruner=halving']
  rows = go(tmp_path, *told)
  assert named(rows, 'pruned') and named(rows, 'finished')
  assert len(ran) == 8
  assert sum(row.outcome.rounds for row in rows) < 8 * 27
