"""Sweeps: the table, going on after a stop, folders that are not theirs."""

import contextlib
import csv
import dataclasses
import io
import re
import threading

import psutil
import pytest

import main
from tests import made_up
from tests import recorded
from tests import sweeps
from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import launch
from tff_adaptive.lab.sweep import study as study_lib
from tff_adaptive.lab.training import experiment as train
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import machine

pytestmark = pytest.mark.usefixtures('undrawn')


def go(root, *arguments):
  """Runs a sweep in this process and returns its rows and what it said."""
  said = io.StringIO()
  rows = launch.run(
    flags.parse(sweeps.arguments_of(root, *arguments)), stream=said
  )
  return rows, said.getvalue()


def open_study(root, *arguments):
  """The study of a sweep that `go` ran with these arguments."""
  return study_lib.Study(flags.parse(sweeps.arguments_of(root, *arguments)))


def statuses(rows):
  return {row.name: row.status for row in rows}


@pytest.fixture(name='made_up_runs')
def made_up_runs_fixture(monkeypatch):
  """No training: rows are made up. Holds the names of what was run."""
  ran = []

  def run(settings, hooks=(), **_):
    ran.append(settings.experiment_name)
    made_up.write(settings, hooks)

  made_up.replace_training(monkeypatch, run)
  return ran


def test_results_selection_and_table(tmp_path, made_up_runs, capsys):
  told = [
    '--axis=client_learning_rate=0.01,0.1,1e4',
    '--axis=seed=0,1',
    '--total_rounds=10',
  ]
  told = [
    a for a in sweeps.arguments_of(tmp_path, *told) if a != sweeps.SHORT[1]
  ]
  assert main.main(['sweep', *told]) == 0
  shown = capsys.readouterr().out
  # The table of the report, with the settings of each best configuration.
  for row in ('Method +FedAvg', 'Settings tried +3', 'Seeds +2'):
    assert re.search(f'^{row}$', shown, re.MULTILINE), row
  assert 'FedAvg  client learning rate 0.1' in shown
  assert '(6/6)' in shown and shown.count('diverged ') == 2
  with open(tmp_path / 's' / 'results.csv', encoding='utf-8') as file:
    table = list(csv.DictReader(file))
  assert [r['status'] for r in table] == ['finished'] * 4 + ['diverged'] * 2
  assert '10 times' in table[4]['reason'] and table[4]['rounds'] == '3'
  assert table[2]['client_learning_rate'] == '0.1'
  assert not any('virtual' in column for column in table[0])
  assert float(table[2]['train/loss']) < float(table[0]['train/loss'])
  # 10 rounds of 2 clients, 1500 bytes each.
  assert float(table[0]['megabytes']) == pytest.approx(10 * 2 * 1500 / 1e6)
  # Again: nothing is left to do, the same table and summary.
  del made_up_runs[:]
  assert main.main(['sweep', *told]) == 0
  assert not made_up_runs
  assert shown.splitlines()[-5:] == capsys.readouterr().out.splitlines()[-5:]


def test_virtual_time_in_table_and_summary(tmp_path, made_up_runs, capsys):
  del made_up_runs
  told = sweeps.arguments_of(
    tmp_path,
    '--axis=client_seconds_per_example=2,30',
    '--target_metric=accuracy:0.3',
  )
  assert main.main(['sweep', *told]) == 0
  assert 'Virtual seconds' in capsys.readouterr().out
  with open(tmp_path / 's' / 'results.csv', encoding='utf-8') as file:
    table = list(csv.DictReader(file))
  assert [float(r['virtual_seconds']) for r in table] == [8, 120]
  to_target = [float(r['virtual_seconds_to_target']) for r in table]
  reached = [
    int(row['round'])
    for row in recorded.rows(tmp_path / 's' / 'runs' / table[0]['name'])
    if float(row[f'validation/{made_up.METRIC}'] or 0) >= 0.3
  ]
  assert 0 < reached[0] < 4
  assert to_target == [2 * reached[0], 30 * reached[0]]


def test_a_metric_of_unknown_direction_ends_a_sweep_at_once(
  tmp_path, made_up_runs, monkeypatch, capsys
):
  monkeypatch.setattr(made_up, 'METRIC', 'kappa')
  told = sweeps.arguments_of(
    tmp_path,
    '--axis=client_learning_rate=0.1,0.2',
    '--client_seconds_per_example=2',
    '--target_metric=kappa:0.3',
  )
  assert main.main(['sweep', *told]) == 2
  assert '--metric_direction=kappa:max' in capsys.readouterr().err
  assert len(made_up_runs) == 1
  rows = recorded.rows(tmp_path / 's' / 'runs' / made_up_runs[0])
  assert [row['round'] for row in rows] == ['0']
  assert main.main(['sweep', *told, '--metric_direction=kappa:max']) == 0
  assert len(made_up_runs) == 3
  with open(tmp_path / 's' / 'results.csv', encoding='utf-8') as file:
    for row in csv.DictReader(file):
      assert float(row['virtual_seconds_to_target']) > 0


def test_failure_is_recorded_and_the_others_go_on(
  tmp_path, made_up_runs, monkeypatch
):
  good = train.run

  def run(settings, **more):
    if settings.seed == 1:
      raise KeyError('in user code:\n\n    line one\n    what went wrong')
    if settings.seed == 2:
      raise errors.RunError('The disk is full.')
    good(settings, **more)

  monkeypatch.setattr(train, 'run', run)
  rows, said = go(tmp_path, '--axis=seed=0,1,2,3')
  assert [r.status for r in rows] == [
    'finished',
    'failed',
    'failed',
    'finished',
  ]
  assert rows[1].outcome.reason.startswith('KeyError')
  assert 'what went wrong' in rows[1].outcome.reason
  assert rows[2].outcome.reason == 'The disk is full.'
  assert 'The disk is full.' in said
  log = (tmp_path / 's' / 'logs' / 'seed=1.log').read_text()
  assert 'Traceback' in log
  # What failed stays so, unless asked.
  monkeypatch.setattr(train, 'run', good)
  del made_up_runs[:]
  go(tmp_path, '--axis=seed=0,1,2,3')
  assert made_up_runs == []
  rows, _ = go(tmp_path, '--axis=seed=0,1,2,3', '--retry_failed')
  assert made_up_runs == ['seed=1', 'seed=2']
  assert {r.status for r in rows} == {'finished'}
  assert {r.outcome.reason for r in rows} == {None}


def test_all_failed_is_exit_code_1(tmp_path, made_up_runs, monkeypatch):
  del made_up_runs

  def run(settings, **_):
    raise errors.RunError('No.')

  monkeypatch.setattr(train, 'run', run)
  assert (
    main.main(['sweep', *sweeps.arguments_of(tmp_path, '--axis=seed=0,1')]) == 1
  )


def test_stopped_and_taken_up_again(tmp_path, made_up_runs, monkeypatch):
  good = train.run

  def run(settings, hooks=(), **more):
    if settings.seed == 1:
      made_up.write(settings, hooks, stop_at=3)
    good(settings, hooks=hooks, **more)

  monkeypatch.setattr(train, 'run', run)
  with pytest.raises(stopping.Stopped):
    go(tmp_path, '--axis=seed=0,1,2')
  with open(tmp_path / 's' / 'results.csv', encoding='utf-8') as file:
    table = list(csv.DictReader(file))
  assert [r['status'] for r in table] == ['finished', 'waiting', 'waiting']
  # As a process that was killed leaves it.
  trials = open_study(tmp_path, '--axis=seed=0,1,2')
  trials._study.ask()
  assert 'running' in [row.status for row in trials.rows()]
  monkeypatch.setattr(train, 'run', good)
  del made_up_runs[:]
  rows, said = go(tmp_path, '--axis=seed=0,1,2')
  assert made_up_runs == ['seed=1', 'seed=2']
  assert '2 of 3 runs left.' in said
  assert {r.status for r in rows} == {'finished'}


def test_an_axis_may_grow(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0,2')
  del made_up_runs[:]
  rows, _ = go(tmp_path, '--axis=seed=0,1,2')
  assert made_up_runs == ['seed=1']
  assert [r.name for r in rows] == ['seed=0', 'seed=1', 'seed=2']


@pytest.mark.parametrize('storage', [None, 'journal:{}/shared.log'])
def test_more_rounds_extend_what_is_finished(tmp_path, made_up_runs, storage):
  told = ['--axis=seed=0,1']
  if storage is not None:
    told.append('--storage=' + storage.format(tmp_path))
  go(tmp_path, *told)
  for expected in (['seed=0', 'seed=1'], []):
    del made_up_runs[:]
    rows, said = go(tmp_path, *told, '--total_rounds=6')
    assert made_up_runs == expected
    assert f'{len(expected)} of 2 runs left.' in said
  assert [row.outcome.rounds for row in rows] == [6, 6]
  assert [row.settings['total_rounds'] for row in rows] == [6, 6]


def test_runs_go_on_without_what_ended_them(tmp_path, monkeypatch):
  ran = []

  def run(settings, hooks=(), **_):
    ran.append(settings.experiment_name)
    if settings.target_metric is not None:
      settings = dataclasses.replace(settings, total_rounds=2)
    made_up.write(settings, hooks)

  made_up.replace_training(monkeypatch, run)
  told = ['--axis=client_learning_rate=0.1,1e4', '--total_rounds=6']
  target = '--target_metric=loss:1e6'
  rows, _ = go(tmp_path, *told, target)
  names = [row.name for row in rows]
  for more, expected, ended in (
    # The second one has two rounds beyond the limit, and then diverges.
    ([target], [], [('finished', 2), ('finished', 2)]),
    ([], names, [('finished', 6), ('diverged', 3)]),
    ([], [], [('finished', 6), ('diverged', 3)]),
    (['--divergence_factor=0'], names[1:], [('finished', 6)] * 2),
  ):
    del ran[:]
    rows, _ = go(tmp_path, *told, *more)
    assert ran == expected, more
    assert [(r.status, r.outcome.rounds) for r in rows] == ended


def test_missing_and_half_written_results_are_run_again(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0,1,2')
  runs = tmp_path / 's' / 'runs'
  for path in (runs / 'seed=0').iterdir():
    path.unlink()
  (runs / 'seed=0').rmdir()
  metrics = runs / 'seed=1' / 'metrics.csv'
  lines = metrics.read_text().splitlines()
  # A row and a half are lost.
  metrics.write_text('\n'.join(lines[:-1])[:-5])
  del made_up_runs[:]
  rows, _ = go(tmp_path, '--axis=seed=0,1,2')
  assert made_up_runs == ['seed=0', 'seed=1']
  assert {r.status for r in rows} == {'finished'}


def test_damaged_run_is_one_failure_and_not_touched(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0,1')
  hparams = tmp_path / 's' / 'runs' / 'seed=0' / 'hparams.json'
  hparams.write_text('{"settings":')
  rows, _ = go(tmp_path, '--axis=seed=0,1')
  assert statuses(rows) == {'seed=0': 'failed', 'seed=1': 'finished'}
  assert 'hparams.json' in rows[0].outcome.reason
  assert hparams.read_text() == '{"settings":'
  assert made_up_runs == ['seed=0', 'seed=1']


def test_folder_of_another_sweep(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0,1')
  table = (tmp_path / 's' / 'results.csv').read_bytes()
  for told, parts in (
    (['--axis=client_learning_rate=0.1'], ['another sweep', 'seed=0']),
    (['--axis=seed=0'], ['another sweep', 'seed=1']),
    (
      ['--axis=seed=0,1', '--client_learning_rate=0.5'],
      ['--client_learning_rate was 0.1, now 0.5'],
    ),
  ):
    with pytest.raises(errors.SettingsError) as raised:
      go(tmp_path, *told)
    for part in parts:
      assert part in str(raised.value)
  assert (tmp_path / 's' / 'results.csv').read_bytes() == table
  assert len(made_up_runs) == 2


def test_folder_of_a_single_run(tmp_path, made_up_runs):
  made_up.run(tmp_path, 's', '--total_rounds=2')
  with pytest.raises(errors.SettingsError, match='single run'):
    go(tmp_path, '--axis=seed=0,1')
  assert not (tmp_path / 's' / 'study.journal').exists() and not made_up_runs


def test_single_run_in_the_folder_of_a_sweep(tmp_path, made_up_runs, capsys):
  go(tmp_path, '--axis=seed=0')
  told = [*sweeps.SHORT, f'--root_output_dir={tmp_path}']
  assert main.main(told) == 2
  assert 'the folder of a sweep' in capsys.readouterr().err
  assert made_up_runs == ['seed=0']


def test_two_sweeps_in_one_folder_at_once(tmp_path, made_up_runs):
  (tmp_path / 's').mkdir()
  with (
    files.RunFolder(tmp_path / 's'),
    pytest.raises(errors.SettingsError, match='Another process'),
  ):
    go(tmp_path, '--axis=seed=0,1')
  assert not made_up_runs
  rows, _ = go(tmp_path, '--axis=seed=0,1')
  assert len(rows) == 2


def test_study_that_is_no_study(tmp_path, made_up_runs):
  rows, _ = go(tmp_path, '--axis=seed=0,1')
  table = tmp_path / 's' / 'study.journal'
  table.write_bytes(b'this is no study, however long it may be' * 100)
  with pytest.raises(errors.SettingsError, match='move it away'):
    go(tmp_path, '--axis=seed=0,1')
  assert table.read_bytes().startswith(b'this is no study')
  # As told: the study is made anew from what the runs left.
  table.rename(tmp_path / 'aside')
  del made_up_runs[:]
  again, _ = go(tmp_path, '--axis=seed=0,1')
  assert again == rows and not made_up_runs


@pytest.mark.parametrize(
  'old, new', [(b'"op_code":', b'"op_cude":'), (b'"flags":', b'"flogs":')]
)
def test_damage_in_a_study_is_told_in_one_line(
  tmp_path, made_up_runs, old, new
):
  go(tmp_path, '--axis=seed=0')
  path = tmp_path / 's' / 'study.journal'
  whole = path.read_bytes()
  path.write_bytes(whole.replace(old, new))
  with pytest.raises(errors.RunError, match='journal cannot be') as caught:
    go(tmp_path, '--axis=seed=0')
  assert '\n' not in str(caught.value)
  assert made_up_runs == ['seed=0']


def test_storage_elsewhere_is_given_again(tmp_path, made_up_runs):
  elsewhere = f'--storage=sqlite:///{tmp_path}/shared.sqlite'
  rows, _ = go(tmp_path, '--axis=seed=0,1', elsewhere)
  assert {r.status for r in rows} == {'finished'}
  assert not (tmp_path / 's' / 'study.journal').exists()
  with pytest.raises(errors.SettingsError, match='with --storage'):
    go(tmp_path, '--axis=seed=0,1')
  # Another machine with the same storage has nothing left to do.
  again, _ = go(tmp_path / 'other', '--axis=seed=0,1', elsewhere)
  assert again == rows and made_up_runs == ['seed=0', 'seed=1']
  table = (tmp_path / 's' / 'results.csv').read_bytes()
  assert (tmp_path / 'other' / 's' / 'results.csv').read_bytes() == table
  with pytest.raises(errors.SettingsError, match='another sweep'):
    go(tmp_path / 'third', '--axis=seed=0', elsewhere)


def test_runs_of_other_machines_are_counted(tmp_path, made_up_runs, capsys):
  elsewhere = f'--storage=sqlite:///{tmp_path}/shared.sqlite'
  for folder, axis, away in (
    ('one', '--axis=seed=0', 0),
    ('two', '--axis=seed=0,1', 1),
    ('three', '--axis=seed=0,1', 2),
  ):
    told = sweeps.arguments_of(tmp_path / folder, axis, elsewhere)
    assert main.main(['sweep', *told]) == 0
    shown = capsys.readouterr().out
    words = f'{away} of 2 finished runs of '
    assert (words in shown) == bool(away)
  assert 'No configuration finished on all its seeds.' in shown
  assert made_up_runs == ['seed=0', 'seed=1']


# With training.

_TINY = [
  *('--task=quadratic', '--algorithm=fedavg', '--total_rounds=3'),
  *('--rounds_per_eval=3', '--clients_per_round=2'),
]


@pytest.mark.parametrize(
  ('count', 'expected'),
  [
    (1, [[0, 2, 4]]),
    (2, [[0], [2, 4]]),
    (3, [[0], [2], [4]]),
    (5, [[0], [2], [4], [0], [2]]),
  ],
)
def test_shares_of_cores(count, expected):
  assert machine.shares([0, 2, 4], count) == expected


@pytest.mark.exhaustive
def test_worker_process_that_is_killed_and_those_that_go_on(tmp_path):
  """The one that takes its place computes on its cores."""
  told = [*_TINY, '--axis=seed=0,1,2,3', '--experiment_name=s']
  told += [f'--root_output_dir={tmp_path}', '--workers=2']
  parsed = flags.parse(told)
  killed = []
  cores = {}
  ended = threading.Event()
  logs = [tmp_path / 's' / 'logs' / f'seed={seed}.log' for seed in (0, 1)]

  def kill_one_of_two():
    while not ended.wait(0.02):
      for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
          if 'spawn_main' in ' '.join(child.cmdline()):
            cores[child.pid] = child.cpu_affinity()
      if not killed and all(log.exists() for log in logs):
        killed.append(min(cores))
        psutil.Process(killed[0]).kill()

  thread = threading.Thread(target=kill_one_of_two)
  thread.start()
  try:
    rows = launch.run(parsed, stream=io.StringIO())
  finally:
    ended.set()
    thread.join()
  assert sorted(r.status for r in rows) == ['failed', *['finished'] * 3]
  [failed] = [r for r in rows if r.status == 'failed']
  assert 'SIGKILL' in failed.outcome.reason
  first, second, third = (cores[pid] for pid in sorted(cores))
  divided = machine.shares(machine.cores(), 2)
  assert [first, second] == divided
  assert third == cores[killed[0]]
