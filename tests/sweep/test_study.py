"""A sweep's study: who may take a run, and runs whose process is gone."""

import multiprocessing
import os
import sqlite3

import optuna
import pytest

from tests import sweeps
from tff_adaptive import errors
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import launch
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import search
from tff_adaptive.lab.sweep import storage as storage_lib
from tff_adaptive.lab.sweep import study
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training.loop import stopping

_STORAGES = ['sqlite:///{}/shared.sqlite', 'journal:{}/shared.log', None]


def parse(root, *arguments, storage=None):
  told = sweeps.arguments_of(root, *arguments)
  if storage is not None:
    told.append('--storage=' + storage.format(root))
  return flags.parse(told)


def open_study(parsed):
  """The sweep's study with its points."""
  parsed.folder.mkdir(exist_ok=True)
  trials = search.open_study(parsed, search.scheduler_of(parsed))
  trials.add(parsed.points)
  return trials


def _take_all(parsed, connection):
  """Takes all runs that it can get; tells their names."""
  scheduler = search.scheduler_of(parsed)
  names = []
  with search.open_study(parsed, scheduler) as trials:
    connection.send('ready')
    connection.recv()
    while waiting := scheduler.next(trials.trials()):
      found = trials.trials()
      taken = filter(None, (trials.take(found[name]) for name in waiting))
      if (mine := next(taken, None)) is not None:
        names.append(mine.name)
        trials.finish(mine, outcomes.Outcome(outcomes.FINISHED))
  connection.send(names)


@pytest.mark.exhaustive
@pytest.mark.parametrize('storage', _STORAGES)
def test_a_run_is_taken_once(tmp_path, storage):
  axis = '--axis=seed=' + ','.join(map(str, range(30)))
  parsed = parse(tmp_path, axis, storage=storage)
  open_study(parsed).close()
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
    search.open_study(parsed, search.scheduler_of(parsed)).close()
    results.put(None)
  except errors.RunError as e:
    results.put(str(e))


@pytest.mark.exhaustive
def test_processes_make_a_study_at_once(tmp_path):
  """As programs on several machines do that are started together."""
  context = multiprocessing.get_context('spawn')
  barrier, results = context.Barrier(4), context.Queue()
  parsed = [
    parse(
      tmp_path / str(n),
      '--axis=seed=0',
      storage=_STORAGES[0].replace('{}', str(tmp_path)),
    )
    for n in range(4)
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
  parsed = parse(tmp_path, '--axis=seed=0')
  open_study(parsed).close()
  monkeypatch.setattr(storage_lib, '_SECONDS_FOR_A_LOCK', 0.01)
  file = parsed.folder / 'study.sqlite'
  other = sqlite3.connect(file, isolation_level=None)
  try:
    other.execute(f'BEGIN {mode}')
    with pytest.raises(errors.RunError, match='is locked by another') as error:
      open_study(parsed)
  finally:
    other.close()
  assert 'move it away' not in str(error.value)
  # That is exit code 1: no flag is wrong.
  assert not isinstance(error.value, errors.SettingsError)
  open_study(parsed).close()


def test_an_unreadable_study_is_not_called_unusable(tmp_path):
  parsed = parse(tmp_path, '--axis=seed=0')
  parsed.folder.mkdir()
  # As of a file without permission, which root has all the same.
  (parsed.folder / 'study.sqlite').mkdir()
  with pytest.raises(errors.RunError, match='cannot be read') as error:
    open_study(parsed)
  assert 'move it away' not in str(error.value)
  assert not isinstance(error.value, errors.SettingsError)


def test_a_journal_with_half_a_line(tmp_path):
  parsed = parse(tmp_path, '--axis=seed=0', storage=_STORAGES[1])
  open_study(parsed).close()
  file = tmp_path / 'shared.log'
  whole = file.read_bytes()
  file.write_bytes(whole + whole.splitlines()[-1][:-9])
  with open_study(parsed) as trials:
    assert len(trials.trials()) == 1
  assert file.read_bytes().startswith(whole)
  assert len(open_study(parsed).trials()) == 1


def test_a_journal_that_is_a_pipe(tmp_path):
  os.mkfifo(tmp_path / 'shared.log')
  parsed = parse(tmp_path, '--axis=seed=0', storage=_STORAGES[1])
  with pytest.raises(errors.RunError, match='it is a FIFO, not a regular'):
    open_study(parsed)


def _owned_by(taken, **changes):
  taken.trial.set_user_attr('owner', taken.trial.user_attrs['owner'] | changes)


def statuses(trials):
  return [outcomes.status_of(t) for t in trials.trials().values()]


@pytest.mark.parametrize('storage', _STORAGES)
def test_runs_whose_process_is_gone_are_taken_up(
  tmp_path, monkeypatch, storage
):
  parsed = parse(tmp_path, '--axis=seed=0,1,2', storage=storage)
  trials = open_study(parsed)
  taken = [trials.take(t) for t in trials.trials().values()]
  # One is ours, one of a process with our number that is gone, one elsewhere.
  _owned_by(taken[1], started=1)
  _owned_by(taken[2], machine='another')
  trials.take_up_dead()
  assert statuses(trials) == ['running', 'waiting', 'running']
  # Whoever was taken for dead has no say any more.
  trials.finish(taken[1], outcomes.Outcome(outcomes.FINISHED))
  assert statuses(trials) == ['running', 'waiting', 'running']
  again = trials.take(trials.trials()['seed=1'])
  assert again is not None and outcomes.was_begun(trials.trials()['seed=1'])
  now = [study.time.monotonic()]
  monkeypatch.setattr(study.time, 'monotonic', lambda: now[0])
  trials.take_up_dead()
  now[0] += 80
  taken[2].trial.set_user_attr('alive', 1)
  trials.take_up_dead()
  now[0] += 80
  trials.take_up_dead()
  assert statuses(trials) == ['running'] * 3
  now[0] += 80
  trials.take_up_dead()
  assert statuses(trials) == ['running', 'running', 'waiting']
  trials.close()


def test_a_grid_is_read_once_for_all_its_runs(tmp_path, monkeypatch):
  axis = '--axis=seed=' + ','.join(map(str, range(12)))
  parsed = parse(tmp_path, axis)
  trials, elsewhere = open_study(parsed), open_study(parsed)
  ended, reads, read = [], [], trials.trials

  def run_taken(job, study_, taken, report):
    del job, report
    if len(ended) == 1:  # Meanwhile another process takes three runs.
      for name in ('seed=2', 'seed=3', 'seed=5'):
        other = elsewhere.take(elsewhere.trials()[name])
        elsewhere.finish(other, outcomes.Outcome(outcomes.FINISHED))
    ended.append(taken.name)
    study_.finish(taken, outcomes.Outcome(outcomes.FINISHED))

  monkeypatch.setattr(worker, '_run_taken', run_taken)
  monkeypatch.setattr(trials, 'trials', lambda: reads.append(1) or read())
  assert not worker.work(
    parsed,
    search.scheduler_of(parsed),
    trials,
    signals=stopping.Signals(),
    report=lambda *_: None,
  )
  assert ended == [f'seed={i}' for i in (0, 1, 4, *range(6, 12))]
  # At the beginning, and when nothing seemed to be left.
  assert len(reads) == 2
  for one in (trials, elsewhere):
    one.close()


def test_a_table_is_written_for_a_twentieth_of_the_time(monkeypatch):
  now, written = [0.0], []
  monkeypatch.setattr(launch.time, 'monotonic', lambda: now[0])

  def write():
    written.append(now[0])
    now[0] += 1.0

  table = launch._Table(write)
  table.update()
  assert not written
  for _ in range(60):
    table.changed = True
    table.update()
    now[0] += 1.0
  assert written == [0.0, 21.0, 42.0]


def test_runs_of_a_process_that_ended_fail(tmp_path):
  trials = open_study(parse(tmp_path, '--axis=seed=0,1'))
  taken = [trials.take(t) for t in trials.trials().values()]
  _owned_by(taken[1], process=1)
  assert trials.fail_runs_of(os.getpid(), 'It ended.') == ['seed=0']
  assert statuses(trials) == ['failed', 'running']
  row = outcomes.row_of(trials.trials()['seed=0'])
  assert row.outcome.reason == 'It ended.'
  trials.close()


def test_killed_between_failing_a_run_and_adding_it_again(tmp_path):
  trials = open_study(parse(tmp_path, '--axis=seed=0'))
  taken = trials.take(trials.trials()['seed=0'])
  trials._tell(taken.trial.number, state=optuna.trial.TrialState.FAIL)
  trials.take_up_dead()
  assert trials.take(trials.trials()['seed=0']) is not None
  trials.close()


def test_of_two_that_add_the_same_the_first_counts(tmp_path):
  parsed = parse(tmp_path, '--axis=seed=0,1')
  trials = open_study(parsed)
  taken = trials.take(trials.trials()['seed=0'])
  for trial in trials.trials().values():
    trials._study.add_trial(
      optuna.create_trial(
        state=optuna.trial.TrialState.WAITING,
        user_attrs={'name': trial.user_attrs['name']},
      )
    )
  assert statuses(trials) == ['running', 'waiting']
  trials.finish(taken, outcomes.Outcome(outcomes.FINISHED))
  assert statuses(trials) == ['finished', 'waiting']
  trials.close()


def test_numbers_are_parameters_of_the_trials(tmp_path):
  axes = ('--axis=client_learning_rate=0.1,1', '--axis=algorithm=fedavg')
  told = [a for a in sweeps.arguments_of(tmp_path, *axes) if 'm=f' not in a]
  parsed = flags.parse([*told, axes[1]])
  with open_study(parsed) as trials:
    found = [t.params for t in trials.trials().values()]
  assert found == [{'client_learning_rate': 0.1}, {'client_learning_rate': 1.0}]


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
  folder = tmp_path / name
  folder.mkdir()
  rule = search.scores.RULES['train_loss']
  study.Study(folder, rule=rule).close()
  assert [p.name for p in folder.iterdir()] == ['study.sqlite']
