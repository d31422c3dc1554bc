"""A sweep's study: who may take a run, and storages that are away."""

import io
import multiprocessing
import os
import sqlite3
import time

import pytest

import main
from tests import made_up
from tests import sweeps
from tff_adaptive import errors
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import launch
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import storage as storage_lib
from tff_adaptive.lab.sweep import study as study_lib
from tff_adaptive.lab.training import experiment as train

_STORAGES = ['sqlite:///{}/shared.sqlite', 'journal:{}/shared.log', None]


def parse(root, *arguments, storage=None):
  told = sweeps.arguments_of(root, *arguments)
  if storage is not None:
    told.append('--storage=' + storage.format(root))
  return flags.parse(told)


def open_study(parsed):
  """The sweep's study with its points."""
  parsed.folder.mkdir(exist_ok=True)
  study = study_lib.Study(parsed)
  study.start()
  return study


def statuses(study):
  return [row.status for row in study.rows()]


def _take_all(parsed, connection):
  """Takes all runs that it can get; tells their names."""
  names = []

  def run(point, trial):
    del trial
    names.append(point.name)
    return outcomes.Outcome(outcomes.FINISHED)

  study = study_lib.Study(parsed)
  connection.send('ready')
  connection.recv()
  while study.run_next(run) is not None:
    pass
  connection.send(names)


@pytest.mark.exhaustive
@pytest.mark.parametrize('storage', _STORAGES)
def test_a_run_is_taken_once(tmp_path, storage):
  axis = '--axis=seed=' + ','.join(map(str, range(30)))
  parsed = parse(tmp_path, axis, storage=storage)
  open_study(parsed)
  context = multiprocessing.get_context('spawn')
  pairs = [context.Pipe() for _ in range(3)]
  processes = [
    context.Process(target=_take_all, args=(parsed, theirs))
    for _, theirs in pairs
  ]
  for process in processes:
    process.start()
  for ours, _ in pairs:
    assert ours.recv() == 'ready'
  for ours, _ in pairs:
    ours.send('go')
  shares = [ours.recv() for ours, _ in pairs]
  for process in processes:
    process.join()
  names = [name for share in shares for name in share]
  assert sorted(names) == sorted(p.name for p in parsed.points)


def _open(parsed, barrier, results):
  barrier.wait()
  try:
    study_lib.Study(parsed)
    results.put(None)
  except errors.RunError as e:
    results.put(str(e))


@pytest.mark.exhaustive
@pytest.mark.parametrize('storage', _STORAGES[:2])
def test_processes_make_a_study_at_once(tmp_path, storage):
  """As programs on several machines do that are started together."""
  context = multiprocessing.get_context('spawn')
  barrier, results = context.Barrier(4), context.Queue()
  storage = storage.format(tmp_path)
  parsed = [
    parse(tmp_path / f'{n}', '--axis=seed=0', storage=storage) for n in range(4)
  ]
  processes = [
    context.Process(target=_open, args=(sweep, barrier, results))
    for sweep in parsed
  ]
  for process in processes:
    process.start()
  assert [results.get(timeout=120) for _ in processes] == [None] * 4
  for process in processes:
    process.join()


@pytest.mark.parametrize('mode', ['EXCLUSIVE', 'IMMEDIATE'])
def test_a_locked_study_is_said_to_be_locked(tmp_path, monkeypatch, mode):
  parsed = parse(tmp_path, '--axis=seed=0', storage=_STORAGES[0])
  open_study(parsed)
  monkeypatch.setattr(storage_lib, '_SECONDS_FOR_A_LOCK', 0.01)
  other = sqlite3.connect(tmp_path / 'shared.sqlite', isolation_level=None)
  try:
    other.execute(f'BEGIN {mode}')
    with pytest.raises(errors.RunError, match='database is locked') as error:
      open_study(parsed)
  finally:
    other.close()
  assert 'move it away' not in str(error.value)
  # That is exit code 1: no flag is wrong.
  assert not isinstance(error.value, errors.SettingsError)
  open_study(parsed)


def test_an_unreadable_study_is_not_called_unusable(tmp_path):
  parsed = parse(tmp_path, '--axis=seed=0')
  (parsed.folder / 'study.journal').mkdir(parents=True)
  with pytest.raises(errors.RunError, match='cannot be read') as error:
    open_study(parsed)
  assert 'move it away' not in str(error.value)
  assert not isinstance(error.value, errors.SettingsError)


@pytest.mark.parametrize('storage', _STORAGES[1:])
def test_a_journal_with_half_a_line(tmp_path, storage):
  """As a full disk leaves it."""
  parsed = parse(tmp_path, '--axis=seed=0', storage=storage)
  open_study(parsed)
  file = parsed.folder / 'study.journal'
  file = file if storage is None else tmp_path / 'shared.log'
  whole = file.read_bytes()
  file.write_bytes(whole + whole.splitlines()[-1][:-9])
  assert statuses(open_study(parsed)) == ['waiting']
  assert file.read_bytes().startswith(whole)
  assert len(open_study(parsed).rows()) == 1


def test_a_journal_that_is_a_pipe(tmp_path):
  os.mkfifo(tmp_path / 'shared.log')
  parsed = parse(tmp_path, '--axis=seed=0', storage=_STORAGES[1])
  with pytest.raises(errors.RunError, match='it is a FIFO, not a regular'):
    open_study(parsed)


@pytest.mark.parametrize('storage', _STORAGES)
def test_runs_whose_process_is_gone_are_taken_up(
  tmp_path, monkeypatch, storage
):
  made_up.replace_training(
    monkeypatch, lambda settings, hooks, **_: made_up.write(settings, hooks)
  )
  monkeypatch.setattr(storage_lib, '_SECONDS_OF_SILENCE', 1)
  parsed = parse(tmp_path, '--axis=seed=0,1,2', storage=storage)
  study = open_study(parsed)
  dead = study._study.ask()
  study._storage.record_heartbeat(dead._trial_id)
  assert statuses(study) == ['running', 'waiting', 'waiting']
  rows = launch.run(parsed, stream=io.StringIO())
  assert [row.status for row in rows] == ['finished'] * 3


@pytest.mark.parametrize('storage', _STORAGES)
def test_a_run_that_waited_is_not_dead_when_it_begins_again(
  tmp_path, monkeypatch, storage
):
  monkeypatch.setattr(storage_lib, '_SECONDS_OF_SILENCE', 1)
  study = open_study(parse(tmp_path, '--axis=seed=0', storage=storage))
  first = study._study.ask()
  study._storage.record_heartbeat(first._trial_id)
  study._release(first)
  time.sleep(1.5)
  assert study._study.ask().number == first.number
  silent = study._storage._get_stale_trial_ids(study._study._study_id)
  assert not silent


@pytest.mark.parametrize(
  'storage', ['postgresql://me:secret@nowhere.invalid/db', 'journal:/no/where']
)
def test_storage_that_is_away_is_told_without_its_password(tmp_path, storage):
  with pytest.raises(errors.RunError, match='--storage') as caught:
    open_study(parse(tmp_path, '--axis=seed=0', storage=storage))
  assert 'secret' not in str(caught.value)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('name', ['a b', 'a?b=c', 'a%20b', 'a#b', 'ä'])
def test_folders_with_any_name(tmp_path, name):
  (tmp_path / name).mkdir()
  study = open_study(parse(tmp_path / name, '--axis=seed=0'))
  assert statuses(study) == ['waiting']


def _full_disk(settings, hooks=(), **_):
  if settings.seed == 1:
    try:
      raise OSError(28, 'No space left on device')
    except OSError as e:
      raise errors.RunError('metrics.csv cannot be written.') from e
  made_up.write(settings, hooks)


def _locked(settings, hooks=(), **_):
  if settings.seed == 1:
    raise OSError(30, 'Read-only file system')
  made_up.write(settings, hooks)


@pytest.mark.parametrize('broken', [_full_disk, _locked])
def test_errors_of_the_machine_stop_the_sweep(
  tmp_path, monkeypatch, capsys, broken
):
  """The runs wait, and the same command resumes them."""
  made_up.replace_training(monkeypatch, broken)
  told = sweeps.arguments_of(tmp_path, '--axis=seed=0,1,2')
  assert main.main(['sweep', *told]) == 1
  assert capsys.readouterr().err.count('\n') == 1
  study = study_lib.Study(flags.parse(told))
  assert statuses(study) == ['finished', 'waiting', 'waiting']
  monkeypatch.setattr(
    train, 'run', lambda settings, hooks, **_: made_up.write(settings, hooks)
  )
  assert main.main(['sweep', *told]) == 0


def test_a_study_that_goes_away_stops_the_sweep(tmp_path, monkeypatch, capsys):
  def run(settings, hooks=(), **_):
    made_up.write(settings, hooks)
    if settings.seed == 1:
      (tmp_path / 's' / 'study.journal').unlink()
      (tmp_path / 's' / 'study.journal').mkdir()

  made_up.replace_training(monkeypatch, run)
  told = sweeps.arguments_of(tmp_path, '--axis=seed=0,1,2')
  assert main.main(['sweep', *told]) == 1
  assert 'study.journal cannot be read or written' in capsys.readouterr().err


@pytest.mark.parametrize('again', [False, True])
def test_a_folder_that_is_replaced_stops_the_sweep(
  tmp_path, monkeypatch, capsys, again
):
  def run(settings, hooks=(), **_):
    made_up.write(settings, hooks)
    if settings.seed == 1:
      (tmp_path / 's').rename(tmp_path / 'aside')
      if again:
        made_up.write(settings, hooks)

  made_up.replace_training(monkeypatch, run)
  told = sweeps.arguments_of(tmp_path, '--axis=seed=0,1,2')
  assert main.main(['sweep', *told]) == 1
  said = capsys.readouterr().err
  assert said.count('\n') == 1 and str(tmp_path / 's') in said
  assert not (tmp_path / 's' / 'results.csv').exists()
  names = [p.name for p in (tmp_path / 'aside' / 'runs').iterdir()]
  assert sorted(names) == ['seed=0', 'seed=1']
