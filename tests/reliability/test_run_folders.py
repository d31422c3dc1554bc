"""A run's folder with damage in it, and disks that take no more."""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import threading

import pytest

from tests import recorded
from tests import waiting
from tests.reliability import drills
from tests.training import test_loop
from tff_adaptive import errors
from tff_adaptive.lab.commands import command_line
from tff_adaptive.lab.recording import files

train = test_loop.train_fixture


def _states(run):
  return sorted((run / 'checkpoints').glob('round_*.safetensors'))


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
  waiting.wait_until((run / 'metrics.csv').exists, 120)
  shutil.rmtree(run)
  assert launcher.wait() == 1
  said = (tmp_path / 'output.log').read_text()
  assert 'was deleted or replaced' in said and 'Traceback' not in said
  assert not run.exists()


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
    words = ['--task=quadratic', '--clients_per_round=2', '--total_rounds=60']
    words += ['--rounds_per_checkpoint=2', f'--root_output_dir={tmp_path}']
    code = command_line.main([*words, '--experiment_name=a'])
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
