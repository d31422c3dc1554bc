"""Sweeps: the table, going on after a stop, folders that are none of theirs."""

import csv
import io
import sqlite3
import threading
import time

import psutil
import pytest

import main
from tests import made_up
from tests import recorded
from tests import sweeps
from tff_adaptive import errors
from tff_adaptive.recording import files
from tff_adaptive.sweep import store as sweep_store
from tff_adaptive.sweep import sweep
from tff_adaptive.training import experiment as train
from tff_adaptive.training import stopping


def go(root, *arguments):
  """Runs a sweep in this process and returns its rows and what it said."""
  said = io.StringIO()
  rows = sweep.run(
    sweep.parse(sweeps.arguments_of(root, *arguments)), stream=said
  )
  return rows, said.getvalue()


def statuses(rows):
  return {row['name']: row['status'] for row in rows}


@pytest.fixture(name='made_up_runs')
def made_up_runs_fixture(monkeypatch):
  """No training: rows are made up. Holds the names of what was run."""
  ran = []

  def run(settings, on_row=None, **_):
    ran.append(settings.experiment_name)
    made_up.write(settings, on_row)

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
  assert 'client_learning_rate=0.1' in shown.splitlines()[-3]
  assert 'sweep 6/6 runs  2 diverged' in shown
  with open(tmp_path / 's' / 'results.csv', encoding='utf-8') as file:
    table = list(csv.DictReader(file))
  assert [r['status'] for r in table] == ['finished'] * 4 + ['diverged'] * 2
  assert '10 times' in table[4]['reason'] and table[4]['rounds'] == '3'
  assert table[2]['client_learning_rate'] == '0.1'
  assert float(table[2]['train/loss']) < float(table[0]['train/loss'])
  # 10 rounds of 2 clients, 1500 bytes each.
  assert float(table[0]['megabytes']) == pytest.approx(10 * 2 * 1500 / 1e6)
  database = sqlite3.connect(tmp_path / 's' / 'sweep.sqlite')
  assert database.execute(
    "SELECT count(*) FROM runs WHERE status = 'finished'"
  ).fetchone() == (4,)
  database.close()
  # Again: nothing is left to do, the same table and summary.
  del made_up_runs[:]
  assert main.main(['sweep', *told]) == 0
  assert not made_up_runs
  assert shown.splitlines()[-5:] == capsys.readouterr().out.splitlines()[-5:]


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
  assert [r['status'] for r in rows] == [
    'finished',
    'failed',
    'failed',
    'finished',
  ]
  assert rows[1]['reason'].startswith('KeyError')
  assert 'what went wrong' in rows[1]['reason']
  assert rows[2]['reason'] == 'The disk is full.'
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
  assert {r['status'] for r in rows} == {'finished'}
  assert {r['reason'] for r in rows} == {None}


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

  def run(settings, on_row=None, **more):
    if settings.seed == 1:
      made_up.write(settings, on_row, stop_at=3)
    good(settings, on_row=on_row, **more)

  monkeypatch.setattr(train, 'run', run)
  with pytest.raises(stopping.Stopped):
    go(tmp_path, '--axis=seed=0,1,2')
  with sweep_store.Store(tmp_path / 's') as store:
    assert [r['status'] for r in store.rows()] == [
      'finished',
      'waiting',
      'waiting',
    ]
    assert [r['rounds'] for r in store.rows()] == [4, 2, 0]
    # As a process that was killed leaves it.
    store.set('seed=1', sweep_store.RUNNING)
  monkeypatch.setattr(train, 'run', good)
  del made_up_runs[:]
  rows, said = go(tmp_path, '--axis=seed=0,1,2')
  assert made_up_runs == ['seed=1', 'seed=2']
  assert '2 of them to do' in said
  assert {r['status'] for r in rows} == {'finished'}


def test_an_axis_may_grow(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0,2')
  del made_up_runs[:]
  rows, _ = go(tmp_path, '--axis=seed=0,1,2')
  assert made_up_runs == ['seed=1']
  assert [r['name'] for r in rows] == ['seed=0', 'seed=1', 'seed=2']


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
  assert {r['status'] for r in rows} == {'finished'}


def test_damaged_run_is_one_failure_and_not_touched(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0,1')
  hparams = tmp_path / 's' / 'runs' / 'seed=0' / 'hparams.json'
  hparams.write_text('{"settings":')
  rows, _ = go(tmp_path, '--axis=seed=0,1')
  assert statuses(rows) == {'seed=0': 'failed', 'seed=1': 'finished'}
  assert 'hparams.json' in rows[0]['reason']
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
  assert not (tmp_path / 's' / 'sweep.sqlite').exists() and not made_up_runs


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


def test_table_that_is_no_table(tmp_path, made_up_runs):
  rows, _ = go(tmp_path, '--axis=seed=0,1')
  table = tmp_path / 's' / 'sweep.sqlite'
  table.write_bytes(b'this is no table, however long it may be' * 100)
  with pytest.raises(errors.SettingsError, match='move it away'):
    go(tmp_path, '--axis=seed=0,1')
  assert table.read_bytes().startswith(b'this is no table')
  # As told: the table is made anew from what the runs left.
  table.rename(tmp_path / 'aside')
  del made_up_runs[:]
  again, _ = go(tmp_path, '--axis=seed=0,1')
  assert again == rows and not made_up_runs


def test_damage_in_a_table_is_told_in_one_line(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0')
  table = tmp_path / 's' / 'sweep.sqlite'
  whole = table.read_bytes()
  # SQLite repeats what it cannot read up to its end, line breaks included.
  assert whole.count(b' REAL\n)') == 1
  table.write_bytes(whole.replace(b' REAL\n)', b'"REAL\n)'))
  with pytest.raises(errors.SettingsError, match='malformed') as caught:
    go(tmp_path, '--axis=seed=0')
  assert '\n' not in str(caught.value)


def test_table_without_a_column(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0')
  table = tmp_path / 's' / 'sweep.sqlite'
  whole = table.read_bytes()
  table.write_bytes(whole.replace(b'settings ', b'sittings '))
  with pytest.raises(errors.SettingsError, match='move it away'):
    go(tmp_path, '--axis=seed=0')


def test_table_of_another_version(tmp_path, made_up_runs):
  go(tmp_path, '--axis=seed=0')
  with sweep_store.Store(tmp_path / 's') as store:
    store.put('format', '99')
  with pytest.raises(errors.SettingsError, match='another version'):
    go(tmp_path, '--axis=seed=0')
  assert made_up_runs == ['seed=0']


# With training.

_TINY = [
  '--task=quadratic',
  '--algorithm=fedavg',
  '--total_rounds=3',
  '--rounds_per_eval=3',
  '--clients_per_round=2',
]


def test_runs_in_one_process_equal_runs_alone(tmp_path):
  told = [
    *_TINY,
    '--axis=client_learning_rate=0.1,0.2',
    '--experiment_name=s',
    f'--root_output_dir={tmp_path}',
    '--workers=0',
  ]
  parsed = sweep.parse(told)
  rows = sweep.run(parsed, stream=io.StringIO())
  assert {r['status'] for r in rows} == {'finished'}
  alone = parsed.points[1].settings
  alone = type(alone)(
    **{**alone.__dict__, 'root_output_dir': str(tmp_path / 'alone')}
  )
  train.run(alone, say=lambda _: None)

  together = parsed.points[1].settings.folder
  assert recorded.rows(alone.folder) == recorded.rows(together)

  # TensorBoard's HParams view: the axes, and every run's values and results.
  from tensorboard.backend.event_processing import event_accumulator
  from tensorboard.plugins.hparams import plugin_data_pb2

  def hparams_of(folder, tag):
    events = event_accumulator.EventAccumulator(str(folder)).Reload()
    content = events.SummaryMetadata(tag).plugin_data.content
    return events, plugin_data_pb2.HParamsPluginData.FromString(content)

  _, data = hparams_of(tmp_path / 's' / 'tensorboard', '_hparams_/experiment')
  assert [i.name for i in data.experiment.hparam_infos] == [
    'client_learning_rate'
  ]
  for row, point in zip(rows, parsed.points, strict=True):
    events, data = hparams_of(
      point.settings.folder / 'tensorboard', '_hparams_/session_start_info'
    )
    value = data.session_start_info.hparams['client_learning_rate'].number_value
    assert value == float(point.flags['client_learning_rate'])
    assert 'result/train/loss' in events.Tags()['tensors']
    assert row['train/loss'] > 0


def test_worker_process_that_is_killed_and_one_that_goes_on(tmp_path):
  told = [
    *_TINY,
    '--axis=seed=0,1',
    '--experiment_name=s',
    f'--root_output_dir={tmp_path}',
    '--workers=1',
  ]
  parsed = sweep.parse(told)
  killed = []

  def kill_first_worker():
    here = psutil.Process()
    log = tmp_path / 's' / 'logs' / 'seed=0.log'
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not killed:
      for child in here.children() if log.exists() else ():
        if 'spawn_main' in ' '.join(child.cmdline()):
          child.kill()
          killed.append(child)
      time.sleep(0.02)

  thread = threading.Thread(target=kill_first_worker)
  thread.start()
  rows = sweep.run(parsed, stream=io.StringIO())
  thread.join()
  assert killed
  assert [r['status'] for r in rows] == ['failed', 'finished']
  assert 'SIGKILL' in rows[0]['reason']
