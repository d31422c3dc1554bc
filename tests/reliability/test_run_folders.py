"""A run's folder with damage in it, and disks that take no more."""

import collections
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import numpy as np
import pytest

from tests import recorded
from tests import waiting
from tests.reliability import drills
from tests.reliability import mutations
from tests.training import test_loop
from tff_adaptive import errors
from tff_adaptive.lab.commands import command_line
from tff_adaptive.lab.recording import files

train = test_loop.train_fixture


def _states(run):
  return sorted((run / 'checkpoints').glob('round_*.safetensors'))


def _damage(rng, path):
  """Cuts a file, flips bits in it, or takes a piece out."""
  content = path.read_bytes()
  at = rng.randrange(len(content))
  kind = rng.choice(['cut', 'flip', 'piece', 'gone'])
  if kind == 'gone':
    path.unlink()
  elif kind == 'cut':
    path.write_bytes(content[:at])
  elif kind == 'piece':
    path.write_bytes(content[:at] + content[at + rng.randrange(1, 99) :])
  else:
    edit = ('flip', at | rng.randrange(8) << 20, b' ')
    path.write_bytes(mutations.apply(content, [edit]))


@pytest.mark.parametrize(
  'count',
  [
    pytest.param(3, marks=pytest.mark.exhaustive),
    pytest.param(200, marks=pytest.mark.slow),
  ],
)
def test_newest_checkpoint_damaged_at_random(train, tmp_path, count):
  train(tmp_path)
  whole = recorded.rows(tmp_path)
  newest = _states(tmp_path)[-1]
  content, state = newest.read_bytes(), drills.last_state(tmp_path)
  metrics = (tmp_path / 'metrics.csv').read_bytes()
  for seed in range(count):
    newest.write_bytes(content)
    (tmp_path / 'metrics.csv').write_bytes(metrics)
    _damage(random.Random(seed), newest)
    damaged = newest.exists() and newest.read_bytes() != content
    stream = test_loop.Sayings()
    result, _ = train(tmp_path, stream=stream)
    assert ('round 7 cannot be used' in stream.text) == damaged
    assert result.resumed_from == 6 or (newest.exists() and not damaged)
    assert recorded.rows(tmp_path) == whole
    np.testing.assert_equal(drills.last_state(tmp_path), state)


@pytest.mark.parametrize(
  'count',
  [
    pytest.param(3, marks=pytest.mark.exhaustive),
    pytest.param(200, marks=pytest.mark.slow),
  ],
)
def test_rows_damaged_at_random(train, tmp_path, count):
  """Named, mended, or in a row that is written anew: never carried on."""
  train(tmp_path / 'whole')
  whole = recorded.rows(tmp_path / 'whole')
  run = tmp_path / 'run'
  with pytest.raises(RuntimeError):
    train(run, fail_in_round=6, error=RuntimeError('worker died'))
  content = {p: p.read_bytes() for p in run.rglob('*') if p.is_file()}
  named = 0
  for seed in range(count):
    shutil.rmtree(run)
    for path, data in content.items():
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(data)
    _damage(random.Random(seed), run / 'metrics.csv')
    try:
      train(run)
    except errors.RunError as e:
      named += 1
      assert str(run / 'metrics.csv') in str(e) and 'restore it' in str(e)
    else:
      assert recorded.rows(run) == whole
  assert named


def test_all_else_that_is_damaged_is_named(train, tmp_path):
  train(tmp_path)
  text = (tmp_path / 'metrics.csv').read_text()
  (tmp_path / 'metrics.csv').write_text(text.replace('\n3,', '\n3x,'))
  with pytest.raises(errors.RunError, match=r'invalid literal for int.*3x'):
    train(tmp_path)
  # A number that could be one, in the last cell of round 3.
  lines = text.splitlines(keepends=True)
  lines[4] = lines[4].rstrip() + '0\n'
  (tmp_path / 'metrics.csv').write_text(''.join(lines))
  with pytest.raises(
    errors.RunError, match=r'metrics.csv is damaged: its 8 rows'
  ):
    train(tmp_path)
  (tmp_path / 'metrics.csv').write_text(''.join(text.splitlines(True)[:-1]))
  with pytest.raises(errors.RunError, match='its 7 rows up to round 7 are not'):
    train(tmp_path)
  (tmp_path / 'metrics.csv').unlink()
  with pytest.raises(errors.RunError, match='its 0 rows up to round 7 are not'):
    train(tmp_path)
  (tmp_path / 'metrics.csv').write_text(text)
  train(tmp_path)


def _delete(run):
  shutil.rmtree(run)


def _move(run):
  run.rename(run.with_name('elsewhere'))


def _empty(run):
  for path in run.iterdir():
    if path.name != '.lock':
      shutil.rmtree(path) if path.is_dir() else path.unlink()


def _replace(run):
  shutil.rmtree(run)
  with files.RunFolder(run) as folder:
    folder.write_hparams({'settings': {'by': 'another run'}})
    folder.metrics.write_text('round,train/loss\n0,\n')


def _swap_settings(run):
  settings = {'id': 'of another run', 'settings': {}}
  (run / 'hparams.json').write_text(json.dumps(settings))


def _swap_folder(run):
  _move(run)
  shutil.copytree(run.with_name('elsewhere'), run)


def _content(folder):
  return {p: p.read_bytes() for p in folder.rglob('*') if p.is_file()}


@pytest.mark.parametrize('number', [1, 6])
@pytest.mark.parametrize(
  'lose', [_delete, _move, _empty, _replace, _swap_settings, _swap_folder]
)
def test_a_folder_lost_while_its_run_writes_gets_nothing_more(
  train, tmp_path, lose, number
):
  run = tmp_path / 'run'
  left = {}

  def before_round(reached):
    if reached == number:
      lose(run)
      left.update(_content(tmp_path))

  with files.RunFolder(run) as folder:
    folder.write_hparams({'settings': {}})
  with pytest.raises(errors.RunError, match='run was deleted or replaced'):
    train(run, before_round=before_round)
  found = _content(tmp_path)
  for path in left.keys() | found.keys():
    if 'tensorboard' not in path.parts:  # The open file moves along.
      assert found.get(path) == left.get(path), path


def test_a_run_whose_folder_is_deleted_exits_with_code_1(launcher, tmp_path):
  run = tmp_path / 'runs' / 'run'
  flags = ['--experiment_name=run', '--algorithm=fedavg']
  flags += ['--client_optimizer=sgd', '--client_learning_rate=0.1']
  launcher.start([*drills.SMALL, *flags, '--total_rounds=20000'])
  deadline = time.monotonic() + 120
  while not (run / 'metrics.csv').exists() and time.monotonic() < deadline:
    time.sleep(0.05)
  shutil.rmtree(run)
  assert launcher.wait() == 1
  said = (tmp_path / 'output.log').read_text()
  assert 'was deleted or replaced' in said and 'Traceback' not in said
  assert not run.exists()


_ON_DISK = (
  *drills.SMALL,
  '--algorithm=scaffold',
  '--client_learning_rate=0.1',
  '--client_state_mib=0',
  '--total_rounds=24',
  '--rounds_per_checkpoint=2',
)


def _damage_version(path, back):
  """Overwrites what clients wrote in the last version but `back`."""
  with contextlib.closing(sqlite3.connect(path)) as file, file:
    file.execute(
      'UPDATE states SET leaves = zeroblob(length(leaves)) WHERE version = ('
      'SELECT DISTINCT version FROM states ORDER BY version DESC'
      ' LIMIT 1 OFFSET ?)',
      (back,),
    )


@pytest.mark.slow
def test_client_states_damaged_at_random(tmp_path, launcher):
  """An earlier checkpoint takes over, or a sentence says that none can."""
  runs = tmp_path / 'runs'

  def start(name):
    return launcher.start([*_ON_DISK, f'--experiment_name={name}'])

  start('whole')
  assert launcher.wait() == 0
  pid = start('stopped')
  assert waiting.wait_until(
    lambda: (
      runs / 'stopped' / 'checkpoints' / 'round_20.safetensors'
    ).exists(),
    600,
  )
  os.kill(pid, signal.SIGKILL)
  assert launcher.wait() == -signal.SIGKILL
  outcomes = collections.Counter()
  for seed in range(24):
    run = runs / f'damaged_{seed}'
    shutil.copytree(runs / 'stopped', run)
    # What the kill left half written goes, whatever else happens.
    before = {p.name for p in (run / 'checkpoints').glob('[!.]*')}
    if seed < 20:
      _damage(random.Random(seed), run / 'client_states.sqlite')
    else:
      _damage_version(run / 'client_states.sqlite', seed - 20)
    (tmp_path / 'output.log').unlink()
    start(run.name)
    code = launcher.wait()
    said = (tmp_path / 'output.log').read_text()
    assert 'Traceback' not in said
    if code == 0:
      outcomes['fell back' if 'set aside' in said else 'not needed'] += 1
      drills.assert_same_run(runs / 'whole', run)
    else:
      outcomes['refused'] += 1
      assert code == 1 and 'client_states.sqlite' in said
      assert before == {p.name for p in (run / 'checkpoints').glob('[!.]*')}
  print(dict(outcomes))
  assert outcomes['fell back'] and outcomes['refused']


def _assert_goes_on(train, run, whole):
  """After whatever happened there, the run comes to the same end."""
  stream = test_loop.Sayings()
  train(run, stream=stream)
  assert recorded.rows(run) == recorded.rows(whole)
  assert not [p for p in run.rglob('.*') if p.name != '.lock']


@pytest.mark.exhaustive
def test_files_that_may_not_grow(train, tmp_path):
  train(tmp_path / 'whole')
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  limited = tmp_path / 'limited'

  class Filling(test_loop.Sayings):
    def write(self, text):
      super().write(text)
      if text.startswith('round 4/'):
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))

  try:
    with pytest.raises(errors.RunError, match=r'cannot be written.*too large'):
      train(limited, stream=Filling())
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert _states(limited)
  _assert_goes_on(train, limited, tmp_path / 'whole')


@contextlib.contextmanager
def _read_only(folder):
  """Nobody may write there, not even root."""
  if os.getuid():
    folder.chmod(0o500)
    yield
    folder.chmod(0o700)
    return
  mount = ['mount', '--bind', str(folder), str(folder)]
  if subprocess.run(mount, check=False).returncode:
    pytest.skip('this root may not mount a folder')
  try:
    _remount(folder, 'ro,bind')
    yield
  finally:
    subprocess.run(['umount', str(folder)], check=True)


@pytest.mark.exhaustive
def test_command_ends_with_a_code_and_goes_on(tmp_path, capsys):
  """A disk that takes no more in mid-run, then a folder that is read-only."""
  run = tmp_path / 'a'
  before = resource.getrlimit(resource.RLIMIT_FSIZE)

  def start():
    code = command_line.main(
      [
        '--task=quadratic',
        '--clients_per_round=2',
        '--total_rounds=60',
        '--rounds_per_checkpoint=2',
        f'--root_output_dir={tmp_path}',
        '--experiment_name=a',
      ]
    )
    return code, ' '.join(capsys.readouterr())

  def fill():
    kept = run / 'checkpoints' / 'round_2.safetensors'
    if waiting.wait_until(kept.exists, 300, interval=0.001):
      # Room for a checkpoint, but not for all rows.
      resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))

  filling = threading.Thread(target=fill)
  filling.start()
  try:
    code, said = start()
  finally:
    filling.join()
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert code == 1 and re.search('cannot be written.*File too large', said)
  assert _states(run)
  held = {p: p.read_bytes() for p in run.rglob('*') if p.is_file()}
  with _read_only(run):
    code, said = start()
  assert code == 2 and f'{run} cannot be written' in said
  assert held == {p: p.read_bytes() for p in run.rglob('*') if p.is_file()}
  code, said = start()
  assert code == 0 and 'Resuming after round' in said
  rounds = [row['round'] for row in recorded.rows(run)]
  assert rounds == [str(number) for number in range(61)]


@pytest.mark.slow
@pytest.mark.parametrize('full_after', [0, 2, 4, 6])
def test_full_disk(train, tmp_path, small_disk, full_after):
  train(tmp_path / 'whole')
  ballast = small_disk / 'ballast'

  class Filling(test_loop.Sayings):
    def write(self, text):
      super().write(text)
      if text.startswith(f'round {full_after}/'):
        with contextlib.suppress(OSError), ballast.open('wb') as file:
          while True:
            file.write(bytes(4096))

  with pytest.raises(errors.RunError, match='No space left'):
    train(small_disk / 'run', stream=Filling())
  ballast.unlink()
  _assert_goes_on(train, small_disk / 'run', tmp_path / 'whole')


@pytest.mark.slow
def test_disk_that_became_read_only(train, tmp_path, small_disk):
  train(tmp_path / 'whole')
  with pytest.raises(RuntimeError, match='worker died'):
    train(
      small_disk / 'run', fail_in_round=5, error=RuntimeError('worker died')
    )
  _remount(small_disk, 'ro')
  with pytest.raises(errors.SettingsError, match=r'Read-only.*choose another'):
    train(small_disk / 'run')
  _remount(small_disk, 'rw')
  _assert_goes_on(train, small_disk / 'run', tmp_path / 'whole')


def _remount(folder, mode):
  subprocess.run(['mount', '-o', f'remount,{mode}', str(folder)], check=True)
