"""A run's folder with damage in it, and disks that take no more."""

import contextlib
import os
import random
import resource
import subprocess

import pytest

from tests.experiment import recorded
from tests.experiment import test_loop
from tests.reliability import mutations
from tff_adaptive.experiment import errors

train = test_loop.train_fixture


def _states(run):
  return sorted((run / 'checkpoints').glob('round_*.state'))


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
  'count', [3, pytest.param(200, marks=pytest.mark.slow)]
)
def test_newest_checkpoint_damaged_at_random(train, tmp_path, count):
  train(tmp_path)
  whole = recorded.rows(tmp_path)
  newest = _states(tmp_path)[-1]
  content = newest.read_bytes()
  metrics = (tmp_path / 'metrics.csv').read_bytes()
  for seed in range(count):
    newest.write_bytes(content)
    (tmp_path / 'metrics.csv').write_bytes(metrics)
    _damage(random.Random(seed), newest)
    damaged = newest.exists() and newest.read_bytes() != content
    stream = test_loop.Sayings()
    result, _ = train(tmp_path, stream=stream)
    assert ('round 7 is damaged' in stream.text) == damaged
    assert result.resumed_from == 6 or (newest.exists() and not damaged)
    assert recorded.rows(tmp_path) == whole
    assert newest.read_bytes() == content


def test_all_else_that_is_damaged_is_named(train, tmp_path):
  train(tmp_path)
  text = (tmp_path / 'metrics.csv').read_text()
  (tmp_path / 'metrics.csv').write_text(text.replace('\n3,', '\n3x,'))
  with pytest.raises(errors.RunError, match='damaged in line 5'):
    train(tmp_path)
  (tmp_path / 'metrics.csv').unlink()
  with pytest.raises(errors.RunError, match='lacks rounds before'):
    train(tmp_path)


def _assert_goes_on(train, run, whole):
  """After whatever happened there, the run comes to the same end."""
  stream = test_loop.Sayings()
  train(run, stream=stream)
  assert recorded.rows(run) == recorded.rows(whole)
  assert not [p for p in run.rglob('.*') if p.name != '.lock']


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


@pytest.fixture(name='small_disk')
def small_disk_fixture(tmp_path):
  """A file system of one megabyte."""
  folder = tmp_path / 'disk'
  folder.mkdir()
  mount = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', str(folder)]
  if os.getuid() or subprocess.run(mount, check=False).returncode:
    pytest.skip('only root may mount a file system')
  yield folder
  subprocess.run(['umount', str(folder)], check=True)


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
