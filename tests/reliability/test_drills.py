"""What befalls a run between two starts, and what it starts in."""

import os
import pathlib
import shutil
import signal
import time

import pandas as pd
import psutil
import pytest

from tests import recorded
from tests import waiting
from tests.reliability import drills
from tff_adaptive import errors
from tff_adaptive.lab.commands import command_line
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.training.loop import stopping

_QUADRATIC = (
  *('--task=quadratic', '--clients_per_round=2', '--total_rounds=12'),
  '--rounds_per_checkpoint=4',
)


class _Drill:
  """A run that was stopped half way, and one that was not."""

  def __init__(self, root, capsys, monkeypatch):
    self.root = root
    self._capsys = capsys
    self._monkeypatch = monkeypatch
    self.whole = root / 'whole'
    assert self.start('whole')[0] == 0
    self.stop('parts')

  def start(self, name, *more):
    words = [f'--root_output_dir={self.root}', f'--experiment_name={name}']
    code = command_line.main([*_QUADRATIC, *words, *more])
    said = ' '.join(self._capsys.readouterr())
    assert 'Traceback' not in said
    return code, said

  def stop(self, name):
    """Starts a run that a signal stops when it has seven rounds."""
    check = stopping.Signals.check
    calls = 0

    def stop_later(signals):
      nonlocal calls
      calls += 1
      if calls == 7:
        os.kill(os.getpid(), signal.SIGTERM)
      check(signals)

    with self._monkeypatch.context() as patch:
      patch.setattr(stopping.Signals, 'check', stop_later)
      code, _ = self.start(name)
    assert code == 128 + signal.SIGTERM
    assert 1 < len(recorded.rows(self.root / name)) < 12

  def goes_on(self, name, *more):
    code, said = self.start(name, *more)
    assert code == 0 and 'Resuming after round' in said, said
    drills.assert_same_run(self.whole, self.root / name)


@pytest.fixture(name='drill')
def _drill(tmp_path, capsys, monkeypatch):
  return _Drill(tmp_path, capsys, monkeypatch)


@pytest.mark.exhaustive
def test_copied_moved_and_touched_folders_go_on(drill):
  """A copy is the same run; what time it is means nothing."""
  parts = drill.root / 'parts'
  shutil.copytree(parts, drill.root / 'copy')
  drill.goes_on('copy')
  (drill.root / 'elsewhere').mkdir()
  parts.rename(drill.root / 'moved')
  day = 24 * 3600
  for number, path in enumerate(sorted((drill.root / 'moved').rglob('*'))):
    at = time.time() + (-1) ** number * 3650 * day
    os.utime(path, (at, at))
  drill.goes_on('moved')


@pytest.mark.exhaustive
def test_clock_that_was_set_back(drill, monkeypatch):
  now = time.time
  monkeypatch.setattr(time, 'time', lambda: now() - 20 * 365 * 24 * 3600)
  drill.goes_on('parts')


@pytest.mark.exhaustive
def test_flags_that_were_changed_in_between(drill):
  parts = drill.root / 'parts'
  before = {p: p.read_bytes() for p in parts.rglob('*') if p.is_file()}
  for flag in ('--total_rounds=11', '--seed=7', '--algorithm=fedyogi'):
    code, said = drill.start('parts', flag)
    assert code == 2 and 'holds a run with other settings' in said
  assert before == {p: p.read_bytes() for p in parts.rglob('*') if p.is_file()}
  # These change no result.
  drill.goes_on('parts', '--cache_mib=1', '--max_concurrent_clients=1')


def test_flag_file_that_includes_itself(tmp_path, capsys):
  path = tmp_path / 'a.flags'
  path.write_text(f'--task=quadratic\n--flagfile={path}\n')
  try:
    parsed = flags.Flags().parse([f'--flagfile={path}'])
  except errors.SettingsError as e:
    assert '\n' not in str(e)
  else:
    assert parsed.settings.task == 'quadratic'
  other = tmp_path / 'b.flags'
  path.write_text(f'--flagfile={other}\n')
  other.write_text(f'--flagfile={path}\n--task=quadratic\n')
  assert flags.Flags().parse([f'--flagfile={path}']).settings.task
  assert 'Traceback' not in ' '.join(capsys.readouterr())


_FORMULAS = ("=cmd|' /C calc'!A0", '@SUM(1)', '+1+1', '-1+1', "'=1", '\t=1')


def test_exported_tables_hold_no_formulas(tmp_path):
  rows = [[text, 'failed', text] for text in _FORMULAS]
  numbers = [['a', 'finished', -1.5], ['b', 'finished', '-1e-05']]
  columns = ['name', 'status', 'reason']
  sweeps.write_table(tmp_path, pd.DataFrame(rows + numbers, columns=columns))
  text = sweeps.table_path(tmp_path).read_text(encoding='utf-8')
  for line in text.splitlines()[1:]:
    assert line.lstrip('"')[0] not in '=+-@\t', line
  assert ',-1.5\n' in text and ',-1e-05\n' in text
  found = [
    (name, reason) for name, _, reason in sweeps.read_unfinished(tmp_path)
  ]
  assert found == [(text, text) for text in _FORMULAS]


# What follows starts the program as often as it kills it.


def _start(launcher, name, *more):
  words = [*drills.SMALL, '--total_rounds=40', '--rounds_per_checkpoint=2']
  return launcher.start([*words, f'--experiment_name={name}', *more])


def _finish(launcher, tmp_path, code=0):
  assert launcher.wait() == code, (tmp_path / 'output.log').read_text()


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_signals_in_training_lose_nothing(launcher, tmp_path, number):
  runs = tmp_path / 'runs'
  _start(launcher, 'whole')
  _finish(launcher, tmp_path)
  for count in (1, 9, 18, 30):
    pid = _start(launcher, 'parts')
    drills.wait_for_rows(runs / 'parts', count)
    os.kill(pid, number)
    _finish(launcher, tmp_path, 128 + number)
  _start(launcher, 'parts')
  _finish(launcher, tmp_path)
  drills.assert_same_run(runs / 'whole', runs / 'parts')


@pytest.mark.slow
@pytest.mark.parametrize(
  'ending', [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]
)
@pytest.mark.parametrize('runtime', ['in_process', 'native'])
def test_no_ending_leaves_anything_in_the_temporary_folder(
  tmp_path, monkeypatch, ending, runtime
):
  folder = tmp_path / 'temporary'
  folder.mkdir()
  monkeypatch.setenv('TMPDIR', str(folder))
  launcher = drills.Launcher(tmp_path)
  try:
    rounds = '3' if ending is None else '100000'
    pid = _start(
      launcher, 'a', f'--runtime={runtime}', f'--total_rounds={rounds}'
    )
    started = []
    if ending is not None:
      drills.wait_for_rows(tmp_path / 'runs' / 'a', 2)
      started = psutil.Process(pid).children(recursive=True)
      os.kill(pid, ending)
    launcher.wait()
    assert waiting.wait_until(
      lambda: all(drills.gone(p.pid) for p in started), 10
    )
  finally:
    launcher.close()
  left = [p.name for p in pathlib.Path(folder).rglob('*')]
  if ending == signal.SIGKILL:
    # TensorFlow's own, which it removes when it may; nothing of this program's.
    left = [name for name in left if not name.startswith('__autograph_')]
  assert left == []
