"""Killed at any moment, a sweep comes to the same table. Slow: minutes."""

import csv
import os
import random
import signal
import time

import psutil
import pytest

from tests import programs
from tests.reliability import drills

_KILLS = 5
_SWEEP = (
  *('sweep', '--task=quadratic', '--algorithm=scaffold', '--axis=seed=0,1'),
  *('--axis=client_learning_rate=0.1,1e9', '--total_rounds=600'),
  *('--rounds_per_checkpoint=20', '--root_output_dir=runs'),
)


def _start(folder, workers, name):
  words = [*_SWEEP, f'--workers={workers}', f'--experiment_name={name}']
  return programs.start(folder / f'{name}.log', programs.MAIN, *words)


def _wait_for_changes(process, runs, count):
  """Until tables of runs were seen to change so often."""
  sizes = None
  deadline = time.monotonic() + 600
  while process.poll() is None and count >= 0:
    assert time.monotonic() < deadline
    seen = [path.stat().st_size for path in runs.glob('*/metrics.csv')]
    count -= seen != sizes
    sizes = seen
    time.sleep(0.01)


def _table(sweep):
  with open(sweep / 'results.csv', encoding='utf-8') as file:
    return [
      {k: v for k, v in row.items() if k != 'seconds'}
      for row in csv.DictReader(file)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
  'workers, whom', [(0, 'sweep'), (2, 'sweep'), (2, 'workers too')]
)
def test_killed_at_five_random_moments(tmp_path, workers, whom):
  whole, parts = (tmp_path / 'runs' / name for name in ('whole', 'parts'))
  assert _start(tmp_path, workers, 'whole').wait() == 0
  rng = random.Random(f'{workers} {whom}')
  for number in range(_KILLS):
    process = _start(tmp_path, workers, 'parts')
    _wait_for_changes(process, parts / 'runs', rng.randrange(1, 50))
    assert process.poll() is None
    children = psutil.Process(process.pid).children()
    started = [process.pid, *(child.pid for child in children)]
    for pid in started if whom == 'workers too' else started[:1]:
      os.kill(pid, signal.SIGKILL)
    process.wait()
    # Now and then the next sweep meets workers that still save their runs.
    deadline = time.monotonic() + 120
    while number % 2 and not all(map(drills.gone, started)):
      assert time.monotonic() < deadline
      time.sleep(0.05)
  assert _start(tmp_path, workers, 'parts').wait() == 0
  assert _table(parts) == _table(whole)
  names = sorted(path.name for path in (whole / 'runs').iterdir())
  assert len(names) == 4
  for name in names:
    drills.assert_same_run(whole / 'runs' / name, parts / 'runs' / name)
