"""Sweeps as people run them: `main.py sweep ...` in processes of their own."""

import csv
import signal
import time

import pytest

from tests import programs

_QUICK = [
  *('--task=quadratic', '--total_rounds=6', '--rounds_per_eval=2'),
  *('--rounds_per_checkpoint=2', '--clients_per_round=2'),
  *('--experiment_name=s', '--workers=0'),
]


def start(folder, *arguments):
  folder.mkdir(exist_ok=True)
  names = [argument.partition('=')[0] for argument in arguments]
  usual = [word for word in _QUICK if word.partition('=')[0] not in names]
  words = (programs.MAIN, 'sweep', *usual, *arguments)
  return programs.start(folder / 'log', *words)


def go(folder, *arguments, code=0):
  process = start(folder, *arguments)
  assert process.wait(600) == code, (folder / 'log').read_text()
  return table(folder)


def table(folder):
  """Returns the rows of results.csv by name, without what clocks measured."""
  path = folder / 'runs' / 's' / 'results.csv'
  with open(path, encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  for row in rows:
    del row['seconds'], row['first_seconds']
  assert len({row['name'] for row in rows}) == len(rows)
  return {row['name']: row for row in rows}


def statuses(rows):
  return sorted(row['status'] for row in rows.values())


_STUDY = [
  '--axis=algorithm=fedavg,fedadam',
  '--axis=client_learning_rate=0.01,0.03,0.1',
  '--axis=seed=0,1',
]


def rows_of(folder):
  return sum(
    path.read_text().count('\n')
    for path in folder.glob('runs/s/runs/*/metrics.csv')
  )


@pytest.mark.exhaustive
def test_two_methods_three_rates_two_seeds_killed_and_resumed(tmp_path):
  whole = go(tmp_path / 'whole', *_STUDY)
  assert statuses(whole) == ['finished'] * 12
  assert {row['rounds'] for row in whole.values()} == {'6'}
  parts = tmp_path / 'parts'
  for rows in (2, 20, 45):
    process = start(parts, *_STUDY)
    deadline = time.monotonic() + 300
    while process.poll() is None and rows_of(parts) < rows:
      assert time.monotonic() < deadline
      time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
  stopped = start(parts, *_STUDY)
  while stopped.poll() is None and rows_of(parts) < 60:
    time.sleep(0.01)
  stopped.terminate()
  assert stopped.wait(120) in (0, 128 + signal.SIGTERM)
  ended = {
    path: path.stat().st_mtime_ns
    for path in parts.glob('runs/s/runs/*/metrics.csv')
    if path.read_text().count('\n') == 8
  }
  assert go(parts, *_STUDY) == whole
  for path, written in ended.items():
    assert path.stat().st_mtime_ns == written


@pytest.mark.exhaustive
@pytest.mark.parametrize('kind', ['sqlite:///{}/study', 'journal:{}/study'])
def test_two_programs_share_one_storage(tmp_path, kind):
  """As on two machines: every run is in the folder of one of them."""
  axis = '--axis=seed=' + ','.join(map(str, range(8)))
  asked = ['--algorithm=fedavg', axis, f'--storage={kind.format(tmp_path)}']
  started = {n: start(tmp_path / n, *asked) for n in ('one', 'other')}
  for name, program in started.items():
    log = tmp_path / name / 'log'
    assert program.wait(300) == 0, log.read_text()
  homes = [
    {p.name for p in (tmp_path / name / 'runs' / 's' / 'runs').glob('*')}
    for name in started
  ]
  assert homes[0] and homes[1] and not homes[0] & homes[1]
  tables = [table(tmp_path / name) for name in started]
  assert tables[0] == tables[1] and statuses(tables[0]) == ['finished'] * 8
  assert homes[0] | homes[1] == {*tables[0]}


@pytest.mark.exhaustive
def test_errors_of_a_worker_outside_its_run_stop_the_sweep(tmp_path):
  logs = tmp_path / 'a' / 'runs' / 's' / 'logs'
  logs.parent.mkdir(parents=True)
  logs.write_text('')
  asked = ['--algorithm=fedavg', '--axis=seed=0,1', '--workers=1']
  assert statuses(go(tmp_path / 'a', *asked, code=1)) == ['waiting'] * 2
  assert 'logs cannot be written' in (tmp_path / 'a' / 'log').read_text()
  logs.unlink()
  assert statuses(go(tmp_path / 'a', *asked)) == ['finished'] * 2
