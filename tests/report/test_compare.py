"""Runs side by side."""

import csv
import io
import json
import re
import shutil

import pandas as pd
import pytest

import main
from tests import made_up
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import compare
from tff_adaptive.lab.report import page
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import sweeps


def cells_of(lines):
  """The cells of a table that has a column per method, by heading."""
  split = [re.split('  +', line) for line in lines if '  ' in line]
  return {heading: cells for heading, *cells in split}


def test_table_marks_the_best_and_tells_what_differs(tmp_path, capsys):
  good = made_up.run(
    tmp_path, 'good', '--algorithm=fedavg', '--client_learning_rate=0.1'
  )
  bad = made_up.run(
    tmp_path, 'bad', '--algorithm=fedadam', '--client_learning_rate=0.001'
  )
  assert main.main(['compare', str(good), str(bad)]) == 0
  lines = capsys.readouterr().out.splitlines()
  # Wider as rows than as columns.
  assert lines[0].split() == ['A', 'B']
  cells = cells_of(lines)
  assert cells['Method'] == ['fedavg', 'fedadam']
  assert cells['Rounds'] == ['200', '200']
  loss = results.load(good).measures()['train/loss']
  assert f'{loss:.3f}*' in cells['Training loss'][0]
  accuracy = results.load(good).measures()['validation/metric']
  assert f'{100 * accuracy:.2f}*' in cells['Validation accuracy (%)'][0]
  text = '\n'.join(lines)
  assert 'last 20 rounds' in text
  assert '--client_learning_rate 0.1 0.001' in ' '.join(text.split())
  assert '--task' not in text
  assert str(bad) in text


def test_rounds_are_whole_and_the_first_ones_seconds_apart(tmp_path):
  """The first round is traced: it neither counts in the others nor wins."""
  for name, first in (('a', 9.5), ('b', 3.5)):
    folder = made_up.run(
      tmp_path, name, f'--algorithm=fed{"avg" if name == "a" else "adam"}'
    )
    lines = (folder / 'metrics.csv').read_text().splitlines()
    place = lines[0].split(',').index('seconds')
    for i, line in enumerate(lines[1:]):
      cells = line.split(',')
      if cells[0] == '1':
        cells[place] = f'{first}'
        lines[i + 1] = ','.join(cells)
    (folder / 'metrics.csv').write_text('\n'.join(lines) + '\n')
  runs, _ = compare.find([tmp_path])
  cells = cells_of(compare.tables(runs).splitlines())
  assert cells['Seconds of round 1'] == ['9.50', '3.50']
  assert cells['Seconds after round 1'] == ['49.75', '49.75']
  (rounds,) = (row for h, row in cells.items() if h.startswith('Rounds to'))
  assert all(re.fullmatch(r'\d+\*?', cell) for cell in rounds)


def test_a_run_that_ended_early_is_finished(tmp_path):
  folder = made_up.run(tmp_path, 'early', '--total_rounds=4')
  hparams = json.loads((folder / 'hparams.json').read_text())
  hparams['settings']['total_rounds'] = 400
  (folder / 'hparams.json').write_text(json.dumps(hparams))
  assert results.load(folder).finished
  lines = (folder / 'metrics.csv').read_text().splitlines()
  (folder / 'metrics.csv').write_text('\n'.join(lines[:-1]) + '\n')
  assert not results.load(folder).finished


def test_the_metric_is_that_of_the_evaluations(tmp_path):
  """One that does not add up over batches has no column of training."""
  folder = made_up.run(tmp_path, 'run', '--total_rounds=4')
  metrics = folder / 'metrics.csv'
  text = metrics.read_text().replace('validation/sparse', 'validation/max')
  metrics.write_text(text)
  assert results.load(folder).metric == 'max_categorical_accuracy'


def test_all_runs_of_a_folder_and_one_that_is_not_finished(tmp_path):
  for seed in (0, 1):
    made_up.run(tmp_path, f'run{seed}', f'--seed={seed}', '--total_rounds=4')
  metrics = tmp_path / 'run1' / 'metrics.csv'
  metrics.write_text('\n'.join(metrics.read_text().splitlines()[:-1]) + '\n')
  runs, left_out = compare.find([tmp_path])
  text = compare.tables(runs)
  assert not left_out
  assert [r.finished for r in runs] == [True, False]
  assert '3 of 4' in text and '--seed' in text


def test_copies_of_a_seed_count_once(tmp_path):
  for seed in (0, 1, 2):
    made_up.run(tmp_path, f'run{seed}', f'--seed={seed}', '--total_rounds=4')
  runs, _ = compare.find([tmp_path])
  expected = compare.means(runs, 'csv')
  for name in ('a', 'z'):
    copy = shutil.copytree(tmp_path / 'run1', tmp_path / name)
  metrics = copy / 'metrics.csv'  # Of this one a part.
  metrics.write_text('\n'.join(metrics.read_text().splitlines()[:-1]) + '\n')
  runs, _ = compare.find([tmp_path])
  assert len(runs) == 5 and compare.means(runs, 'csv') == expected
  (section,) = sections.sections(runs)
  ((configuration,),) = section.by_method.values()
  assert configuration.complete and configuration.seeds == '3'
  assert sorted(run.settings['seed'] for run in configuration.runs) == [0, 1, 2]


def test_what_has_no_results_is_left_out_of_a_folder(tmp_path, capsys):
  good = made_up.run(tmp_path, 'good', '--total_rounds=2')
  begun = made_up.run(tmp_path, 'begun', '--total_rounds=2')
  (begun / 'metrics.csv').unlink()
  foreign = made_up.run(tmp_path, 'foreign', '--total_rounds=2')
  settings = {'task': 'digits', 'algorithm': 'fedavg', 'total_rounds': 2}
  (foreign / 'hparams.json').write_text(json.dumps({'settings': settings}))
  assert main.main(['compare', str(tmp_path)]) == 0
  captured = capsys.readouterr()
  assert str(good) in captured.out and str(foreign) not in captured.out
  complaints = captured.err.splitlines()
  assert len(complaints) == 2
  assert '--clients_per_round is missing' in complaints[0]
  assert 'no results yet' in complaints[1]


def test_tasks_are_not_mixed(tmp_path, capsys):
  made_up.run(tmp_path, 'a', '--algorithm=fedavg', '--total_rounds=2')
  for name, rate in (('b', 0.01), ('c', 0.1)):
    made_up.run(
      tmp_path,
      name,
      '--task=quadratic',
      '--algorithm=fedavg',
      f'--client_learning_rate={rate}',
      '--total_rounds=2',
    )
  assert main.main(['compare', str(tmp_path)]) == 0
  shown = capsys.readouterr().out
  digits, quadratic = shown.split('task quadratic')
  table = digits.partition('training and validation')[0]
  assert table.startswith('task digits\n') and '*' not in table
  assert digits.splitlines()[2].split() == ['A']
  assert quadratic.splitlines()[2].split() == ['B', 'C']
  one, other = cells_of(quadratic.splitlines())['Training loss']
  assert '*' not in one and '*' in other
  assert '--client_learning_rate' in quadratic and '--task' not in shown


def test_other_data_of_a_task_have_a_table_of_their_own(tmp_path, capsys):
  for alpha in (0.1, 1.0):
    for rate in (0.01, 0.1):
      made_up.run(
        tmp_path,
        f'alpha{alpha}rate{rate}',
        f'--digits_alpha={alpha}',
        '--algorithm=fedavg',
        f'--client_learning_rate={rate}',
        '--total_rounds=2',
      )
  assert main.main(['compare', str(tmp_path)]) == 0
  shown = capsys.readouterr().out
  first, second = shown.split('task digits, alpha 1\n')
  assert first.startswith('task digits, alpha 0.1\n')
  for part, labels in ((first, 'AB'), (second, 'CD')):
    cells = cells_of(part.splitlines())
    assert cells[''][:2] == list(labels)
    assert cells['Method'] == ['fedavg', 'fedavg']
    one, other = cells['Training loss']
    assert '*' not in one and '*' in other
  assert '--digits_alpha' not in shown


def test_ties_are_not_starred(tmp_path, capsys):
  for name in ('a', 'b'):
    made_up.run(tmp_path, name, '--total_rounds=2')
  assert main.main(['compare', str(tmp_path)]) == 0
  table = capsys.readouterr().out.partition('metric:')[0]
  assert '*' not in table


@pytest.mark.exhaustive
def test_means_are_those_of_the_report(tmp_path, capsys):
  for method, rates in (('fedavg', (0.1,)), ('fedadam', (0.1, 1.0))):
    for rate in rates:
      for seed in range(3):
        made_up.run(
          tmp_path,
          f'{method}{rate}{seed}',
          f'--algorithm={method}',
          f'--client_learning_rate={rate}',
          f'--seed={seed}',
          '--total_rounds=4',
        )
  assert main.main(['compare', str(tmp_path), '--target=0.1']) == 0
  shown = capsys.readouterr().out
  runs_table, _, means = shown.partition('means over seeds')
  assert '*' not in runs_table and '*' in means
  cells = cells_of(means.splitlines())
  assert cells['Method'] == ['FedAvg', 'FedAdam']
  assert cells['Settings tried'] == ['1', '2']
  assert cells['Seeds'] == ['3', '3']
  assert 'Rounds to 10 % validation accuracy' in cells
  path, _ = page.write(tmp_path, target=0.1)
  assert 'Behind the best' in path.read_text(encoding='utf-8')
  for form, ending in (('csv', 'csv'), ('markdown', 'md'), ('latex', 'tex')):
    told = ['compare', str(tmp_path), '--target=0.1', f'--format={form}']
    assert main.main(told) == 0
    written = (tmp_path / 'tables' / f'results.{ending}').read_text('utf-8')
    assert capsys.readouterr().out == written


def test_a_run_that_its_sweep_lost_is_not_finished_alone_either(tmp_path):
  runs = tmp_path / 'runs'
  folders = [made_up.run(runs, name, '--total_rounds=2') for name in 'ab']
  sweeps.write(tmp_path, sweeps.SweepRecord('train_loss', shared=False))
  table = pd.DataFrame(
    dict(name=['a', 'b'], status=['diverged', 'finished'], reason=['', ''])
  )
  sweeps.write_table(tmp_path, table)
  for given in ([tmp_path], folders):
    found, _ = compare.find(given)
    assert [run.finished for run in found] == [False, True]


def test_an_axis_of_one_value_is_told(tmp_path):
  settings = ['--algorithm=fedprox', '--proximal_strength=0.3']
  made_up.run(tmp_path / 'runs', 'a', *settings, '--total_rounds=2')
  axes = ('algorithm', 'proximal_strength')
  sweeps.write(
    tmp_path, sweeps.SweepRecord('train_loss', shared=False, axes=axes)
  )
  (section,) = sections.sections(compare.find([tmp_path])[0])
  ((configuration,),) = section.by_method.values()
  assert section.words_of(configuration).endswith('proximal strength 0.3')


@pytest.mark.parametrize('knowing', ['a', 'b'])
def test_a_run_that_knows_a_metrics_direction_tells_the_others(
  tmp_path, knowing
):
  for name in 'ab':
    told = {'my_error': False} if name == knowing else {}
    folder = made_up.run(tmp_path, name, '--total_rounds=2')
    table = folder / 'metrics.csv'
    table.write_text(table.read_text().replace(made_up.METRIC, 'my_error'))
    hparams = json.loads((folder / 'hparams.json').read_text())
    hparams['metric_directions'] = metric_names.as_words(told)
    (folder / 'hparams.json').write_text(json.dumps(hparams))
  found, _ = compare.find([tmp_path])
  (section,) = sections.sections(found)
  assert section.rises is False
  assert compare.tables(found, target=1.0)  # Neither ends in an error.
  page.write(tmp_path)


@pytest.mark.parametrize('names', ['ab', 'ba'])
def test_a_flag_that_one_run_has_at_its_default_is_told(tmp_path, names):
  for name, aggregator in zip(names, ('mean', 'median'), strict=True):
    made_up.run(
      tmp_path,
      name,
      '--algorithm=fedavg',
      '--total_rounds=2',
      f'--aggregator={aggregator}',
    )
  (section,) = sections.sections(compare.find([tmp_path])[0])
  told = {section.words_of(c) for c in section.by_method['fedavg']}
  assert any('aggregator median' in words for words in told)


def test_runs_of_a_sweep(tmp_path, monkeypatch, capsys):
  runs = [made_up.run(tmp_path, f'seed={s}', '--total_rounds=2') for s in '01']
  assert main.main(['compare', *map(str, runs)]) == 0
  monkeypatch.chdir(tmp_path)
  assert main.main(['compare', 'seed=0', 'seed=1']) == 0
  assert capsys.readouterr().err == ''


def test_several_experiments_are_one_csv(tmp_path, capsys):
  for task in ('digits', 'quadratic'):
    made_up.run(tmp_path, task, f'--task={task}', '--total_rounds=4')
  assert main.main(['compare', str(tmp_path), '--format=csv']) == 0
  rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
  assert [row['Experiment'].split()[0] for row in rows] == [
    'digits',
    'quadratic',
  ]
  assert all(row['Method'] and float(row['Test loss']) for row in rows)
  assert main.main(['compare', str(tmp_path), '--format=latex']) == 0
  assert capsys.readouterr().out.count('\\toprule') == 2


@pytest.mark.parametrize(
  'words, part',
  [
    ([], 'none was given'),
    (['nowhere'], 'nowhere is no folder'),
    (['empty'], 'no run in'),
    (['empty', '--what=1'], 'no flag --what'),
    (['empty', 'format=csv'], 'no flag --format'),
    (['torn'], 'hparams.json'),
    (['strange'], 'could not convert string to float'),
    (['begun'], 'no results yet'),
  ],
)
def test_complaints(tmp_path, monkeypatch, capsys, words, part):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'empty').mkdir()
  torn = made_up.run(tmp_path, 'torn', '--total_rounds=2')
  (torn / 'hparams.json').write_text('[')
  strange = made_up.run(tmp_path, 'strange', '--total_rounds=2')
  with open(strange / 'metrics.csv', 'a', encoding='utf-8') as file:
    file.write('3,x\n')
  begun = made_up.run(tmp_path, 'begun', '--total_rounds=2')
  (begun / 'metrics.csv').unlink()
  assert main.main(['compare', *words]) == 2
  captured = capsys.readouterr()
  assert part in captured.err and len(captured.err.splitlines()) == 1
