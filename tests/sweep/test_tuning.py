"""Grids by method, and tuning on one seed with repeats of the best."""

import csv
import dataclasses
import io
import json
import re
from unittest import mock

import pytest

import main
from tests import made_up
from tff_adaptive import errors
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import launch
from tff_adaptive.lab.sweep import study
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training.loop import stopping

pytestmark = pytest.mark.usefixtures('undrawn')

_METHODS = '--axis=algorithm=fedavg,fedadam'
_OWN = [
  _METHODS,
  '--axis=client_learning_rate=0.01,0.1',
  '--axis=fedadam:server_learning_rate=0.1,1',
  '--axis=fedavg:client_learning_rate=1',
]
_SHARED = ['--total_rounds=4', '--rounds_per_eval=2', '--clients_per_round=2']


def parse(root, *arguments):
  return flags.parse(_told(root, arguments))


def names(sweep):
  return [point.name for point in sweep.points]


@pytest.fixture(name='ran')
def ran_fixture(monkeypatch):
  """No training: rows are made up. Holds the names of what was run."""
  ran = []

  def run(settings, hooks=(), **_):
    ran.append(settings.experiment_name)
    stop = 2 if run.stops_at == len(ran) else None
    made_up.write(settings, hooks, stop_at=stop)

  run.stops_at = None
  made_up.replace_training(monkeypatch, run)
  return ran, run


def test_a_method_has_axes_of_its_own(tmp_path):
  expected = [
    'algorithm=fedavg,client_learning_rate=1',
    *(
      f'algorithm=fedadam,client_learning_rate={c},server_learning_rate={s}'
      for c in ('0.01', '0.1')
      for s in ('0.1', '1')
    ),
  ]
  assert names(parse(tmp_path, *_OWN)) == expected
  file = tmp_path / 'grid.json'
  grid = {
    '*': {'client_learning_rate': ['0.01', 0.1]},
    'fedavg': {'client_learning_rate': 1},
    'fedadam': {'server_learning_rate': [0.1, 1]},
  }
  file.write_text(json.dumps(grid))
  assert names(parse(tmp_path, f'--grid={file}')) == expected
  # A method without axes of its own is there with those of all, or none.
  grid['fedavg'] = {}
  file.write_text(json.dumps(grid))
  assert names(parse(tmp_path, f'--grid={file}')) == [
    *(f'algorithm=fedavg,client_learning_rate={c}' for c in ('0.01', '0.1')),
    *expected[1:],
  ]
  file.write_text('{"fedavg": {}, "fedadam": {}}')
  assert names(parse(tmp_path, f'--grid={file}')) == [
    'algorithm=fedavg',
    'algorithm=fedadam',
  ]
  # Beside a paper's grid, for one of its methods.
  paper = parse(
    tmp_path,
    '--grid=mukherjee2023/mnist_lenet',
    '--axis=fedavg:client_learning_rate=0.5',
  )
  rates = {
    p.flags['client_learning_rate']
    for p in paper.points
    if p.identity['algorithm'] == 'fedavg'
  }
  assert rates == {'0.5'}


@pytest.mark.parametrize(
  'arguments, said',
  [
    ([_METHODS, '--axis=fedyogi:seed=1'], 'fedyogi has axes of its own'),
    # An axis for all may be left out; one for a method may not.
    (
      [_METHODS, '--axis=fedavg:server_adaptivity=0.1,1'],
      '--server_adaptivity=0.1 would be ignored',
    ),
    (['--axis=a:b:c=1'], 'METHOD:FLAG=VALUE'),
    (['--axis=fedavg:seed=1', '--axis=fedavg:seed=2'], 'fedavg:seed is given'),
    ([_METHODS, '--axis=seed=1', '--tune'], '--tune cannot be combined'),
    ([_METHODS, '--repeat_best=1-5'], '--seed must be a whole number'),
    ([_METHODS, '--repeat_best=0,1'], 'the same experiment'),
    (['--grid=none.json'], 'cannot be read as JSON'),
  ],
)
def test_what_is_wrong_is_said(tmp_path, arguments, said):
  with pytest.raises(errors.SettingsError) as e:
    parse(tmp_path, *arguments)
  assert said in str(e.value)


@pytest.mark.parametrize(
  'text', ['[]', '{"fedavg": 3}', '{"fedavg": {"seed": [null]}}', '{']
)
def test_files_of_another_form_are_refused(tmp_path, text):
  file = tmp_path / 'grid.json'
  file.write_text(text)
  with pytest.raises(errors.SettingsError, match='grid'):
    parse(tmp_path, f'--grid={file}')


def test_tunes_on_one_seed_and_repeats_the_best(tmp_path, ran, capsys):
  done, run = ran
  told = [*_OWN, '--repeat_best=1,2,3']
  assert main.main(['sweep', '--dry_run', *_told(tmp_path, told)]) == 0
  shown = capsys.readouterr().out
  assert '5 runs' in shown and 'again on seeds 1, 2, 3' in shown
  # Killed while it repeats, and gone on with: nothing is run twice.
  run.stops_at = 7
  with pytest.raises(stopping.Stopped):
    launch.run(parse(tmp_path, *told), stream=io.StringIO())
  run.stops_at = None
  assert main.main(['sweep', *_told(tmp_path, told)]) == 0
  shown = capsys.readouterr().out
  assert done[6] == done[7] and len(set(done)) == len(done) - 1 == 11
  with open(tmp_path / 's' / 'results.csv', encoding='utf-8') as file:
    table = list(csv.DictReader(file))
  assert len(table) == 11
  assert {row['status'] for row in table} == {'finished'}
  repeated = {r['name'] for r in table if r['seed'] != '0'}
  rates = 'client_learning_rate'
  assert repeated == {
    name
    for seed in (1, 2, 3)
    for name in (
      f'algorithm=fedadam,{rates}=0.1,seed={seed},server_learning_rate=1',
      f'algorithm=fedavg,{rates}=1,seed={seed}',
    )
  }
  # The closing table: settings tried, runs of the other seeds, validation.
  lines = [re.split(r'  +', line) for line in shown.splitlines()]
  rows = {heading: cells for heading, *cells in lines}
  place = rows['Method'].index('FedAdam')
  assert rows['Settings tried'][place] == '4'
  assert rows['Seeds'][place] == '3'
  mine = [
    float(r['validation/metric'])
    for r in table
    if r['name'] in repeated and r['algorithm'] == 'fedadam'
  ]
  told = rows['Validation accuracy (%)'][place].split()[0].rstrip('*')
  assert float(told) == pytest.approx(100 * sum(mine) / 3, rel=1e-3)
  assert 'FedAdam  client learning rate 0.1, server learning rate 1' in shown
  # The report chooses the same by the same seed, wherever it looks from.
  found, _ = runs.find(tmp_path)
  (section,) = sections.sections(found)
  criterion = sections.Criterion(
    sections.scores.RULES['validation_metric'], section.metric
  )
  chosen = criterion.best(section.by_method['fedadam'])
  assert chosen.seeds == '3'
  assert sorted(run.settings['seed'] for run in chosen.runs) == [1, 2, 3]
  assert len(section.by_method['fedadam']) == 4


def _section(folder):
  found, complaints = runs.find(folder)
  assert not complaints
  (section,) = sections.sections(found)
  return section, section.criterion(runs.rule_of(found))


def test_of_equal_ones_results_are_those_of_the_repeated(tmp_path, ran):
  rates = '--axis=client_learning_rate=1,0.01'  # As far from 0.1.
  rows = launch.run(
    parse(tmp_path, '--algorithm=fedavg', rates, '--repeat_best=1,2'),
    stream=io.StringIO(),
  )
  scored = {r.name: r.outcome.measures['validation/metric'] for r in rows}
  first, second = (
    scored[f'client_learning_rate={rate},seed=0'] for rate in ('1', '0.01')
  )
  assert first == second and len(ran[0]) == 4
  section, criterion = _section(tmp_path / 's')
  best = criterion.best_of(section.by_method)['fedavg']
  assert best.settings['client_learning_rate'] == 1.0 and best.seeds == '2'


def test_what_diverges_in_its_last_round_has_no_result(
  tmp_path, ran, monkeypatch, capsys
):
  done, _ = ran
  rows_of = made_up.rows_of

  def wild(settings, **more):
    for row in rows_of(settings, **more):
      last = row['round'] == settings.total_rounds
      if last and settings.seed in (1, 2):
        row = {'round': row['round'], 'train/loss': float('nan')}
      yield row

  monkeypatch.setattr(made_up, 'rows_of', wild)
  told = ['--algorithm=fedavg', '--axis=client_learning_rate=0.1,1']
  arguments = _told(tmp_path, [*told, '--repeat_best=1,2'])
  assert main.main(['sweep', *arguments]) == 0
  assert len(done) == 4
  # All repeats of the best have diverged; that which chose it is no result.
  section, criterion = _section(tmp_path / 's')
  assert criterion.best_of(section.by_method) == {}
  assert [c.seeds for c in section.by_method['fedavg']] == ['0 of 2', '1']
  # Until all are over, there is nothing better to show.
  found = [
    dataclasses.replace(run, lost=False, rows=run.rows[:-1])
    if run.settings['seed'] == 2
    else run
    for run in runs.find(tmp_path / 's')[0]
  ]
  best = criterion.best_of(sections.sections(found)[0].by_method)['fedavg']
  assert best.only_chosen
  capsys.readouterr()
  assert main.main(['report', str(tmp_path / 's')]) == 0
  # Beside one that has not.
  arguments = _told(tmp_path, [*told, '--repeat_best=1,2,3'])
  assert main.main(['sweep', *arguments]) == 0
  section, criterion = _section(tmp_path / 's')
  assert criterion.best_of(section.by_method)['fedavg'].seeds == '1 of 3'


def test_repeats_are_added_when_a_process_ends(tmp_path, ran):
  sweep = parse(
    tmp_path,
    '--algorithm=fedavg',
    '--axis=client_learning_rate=0.1,1',
    '--repeat_best=1,2',
  )
  sweep.folder.mkdir(parents=True)
  found = study.Study(sweep)
  found.start()
  # A process ends after so many runs, here after the last first one.
  worker.work(sweep, found, signals=stopping.Signals(), most_runs=2)
  assert len(ran[0]) == 2 and found.left() == 0
  ended = mock.Mock(exitcode=0), mock.Mock(recv=mock.Mock(side_effect=EOFError))
  launch._Workers(sweep, found)._handle_exit(*ended)
  assert found.left() == 2


@pytest.mark.exhaustive
def test_the_best_is_repeated_if_the_last_worker_has_ended(tmp_path):
  told = ['--task=quadratic', '--algorithm=fedavg', '--repeat_best=1,2']
  told += ['--axis=client_learning_rate=0.1,0.01', '--workers=1']
  # That a process ends after, here with the last of the first runs.
  told += ['--runs_per_process=2']
  assert main.main(['sweep', *_told(tmp_path, told)]) == 0
  section, criterion = _section(tmp_path / 's')
  (best,) = criterion.best_of(section.by_method).values()
  assert best.seeds == '2'


def _told(root, told):
  words = [*_SHARED, '--experiment_name=s', '--workers=0']
  return [*words, f'--root_output_dir={root}', *told]


def test_seeds_after_the_first_are_repeated_unless_told(tmp_path):
  told = ['--algorithm=fedavg', '--tune', '--seed=3']
  sweep = parse(tmp_path, *told, '--axis=client_learning_rate=0.1,1')
  assert sweep.tuned_on == 3
  assert [p.identity['seed'] for p in sweep.points][:6] == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
  'search',
  [
    ['--search=random', '--trials=3'],
    pytest.param(['--search=tpe', '--trials=3'], marks=pytest.mark.exhaustive),
    ['--pruner=halving', '--total_rounds=9'],
  ],
)
def test_the_best_of_a_search_is_repeated(tmp_path, ran, search):
  done, _ = ran
  told = ['--algorithm=fedavg', '--repeat_best=1,2', *search]
  told += ['--axis=client_learning_rate=0.001,0.01,0.1,1']
  # The last of flags that are given twice counts.
  rows = launch.run(parse(tmp_path, *told), stream=io.StringIO())
  firsts = [row for row in rows if row.settings['seed'] == 0]
  finished = [row for row in firsts if row.status == 'finished']
  best = max(finished, key=lambda r: r.outcome.measures['validation/metric'])
  rate = best.flags['client_learning_rate']
  repeats = [row.name for row in rows if row.settings['seed'] != 0]
  assert repeats == [f'client_learning_rate={rate},seed={s}' for s in (1, 2)]
  assert done[-2:] == repeats and len(set(done)) == len(done)
  assert len(firsts) == (3 if '--trials=3' in search else 4)


def test_test_data_choose_nothing_unless_asked(tmp_path):
  rate = '--axis=server_learning_rate=0.1,1'
  assert parse(tmp_path, rate).select == 'validation_metric'
  split = '--validation_split=test'
  assert parse(tmp_path, rate, split).select == 'train_loss'
  asked = parse(tmp_path, rate, split, '--select=validation_metric')
  assert asked.select == 'validation_metric'
  # Papers' grids tune on data set apart; presets repeat what papers did.
  cell = 'reddi2021/emnist_character/fedavg'
  grid = parse(tmp_path, f'--grid={cell}', '--data=synthetic')
  assert grid.select == 'validation_metric'
  preset = parse(
    tmp_path, f'--preset={cell}', '--data=synthetic', '--axis=seed=0,1'
  )
  assert preset.select == 'train_loss'
