"""However the program ends, no process of its is left. Slow: minutes."""

import os
import signal
import time

import psutil
import pytest

from tests import waiting
from tests.reliability import drills

pytestmark = pytest.mark.native

_NATIVE = (*drills.SMALL, '--runtime=native', '--rounds_per_checkpoint=2')
_DIVERGING = (
  '--client_optimizer=sgd',
  '--client_learning_rate=1e38',
  '--max_rejected_clients=0',
)


@pytest.mark.slow
@pytest.mark.parametrize(
  'ending, rounds, flags, code',
  [
    (None, 3, (), 0),
    (None, 3, _DIVERGING, 1),
    (signal.SIGINT, 100_000, (), 128 + signal.SIGINT),
    (signal.SIGTERM, 100_000, (), 128 + signal.SIGTERM),
    (signal.SIGHUP, 100_000, (), 128 + signal.SIGHUP),
    (signal.SIGKILL, 100_000, (), -signal.SIGKILL),
  ],
)
def test_no_process_is_left(launcher, tmp_path, ending, rounds, flags, code):
  pid = launcher.start(
    [*_NATIVE, *flags, f'--total_rounds={rounds}', '--experiment_name=a']
  )
  drills.wait_for_rows(tmp_path / 'runs' / 'a', 1)
  started = [
    child.pid for child in psutil.Process(pid).children(recursive=True)
  ]
  if ending is not None:
    assert started
    os.kill(pid, ending)
  assert launcher.wait() == code, (tmp_path / 'output.log').read_text()
  assert waiting.wait_until(lambda: all(map(drills.gone, started)), 10)


@pytest.mark.slow
def test_rounds_whose_worker_is_killed_are_repeated(launcher, tmp_path):
  arguments = [*_NATIVE, '--total_rounds=40', '--experiment_name']
  launcher.start([*arguments, 'whole'])
  assert launcher.wait() == 0
  pid = launcher.start([*arguments, 'parts'])
  parts = tmp_path / 'runs' / 'parts'
  killed = 0
  for count in range(3, 30, 5):
    drills.wait_for_rows(parts, count)
    time.sleep(0.05)  # Somewhere in the next round.
    for child in psutil.Process(pid).children(recursive=True):
      child.kill()
      killed += 1
  assert launcher.wait() == 0, (tmp_path / 'output.log').read_text()
  assert killed > 3
  drills.assert_same_run(tmp_path / 'runs' / 'whole', parts)
