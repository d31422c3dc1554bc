"""What the drills share: a program that is started, watched and killed."""

import contextlib
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import psutil

from tests import recorded
from tests import waiting
from tff_adaptive.lab.recording import checkpoints

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Small rounds, on data that are made up.
SMALL = (
  *('--task=mnist_logistic', '--data=synthetic', '--clients_per_round=3'),
  *('--rounds_per_eval=4', '--num_validation_examples=20'),
  '--root_output_dir=runs',
)
_PATIENCE = 600


class Launcher:
  """A process that starts the program again and again; see `launcher`."""

  def __init__(self, folder: pathlib.Path):
    self._log = (folder / 'launcher.log').open('w')
    self._process = subprocess.Popen(
      [sys.executable, '-m', 'tests.reliability.launcher'],
      cwd=folder,
      env={**os.environ, 'PYTHONPATH': str(ROOT)},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._log,
      text=True,
    )
    assert self._answer() == 'ready'

  @property
  def pid(self) -> int:
    """The process whose limits those of the program are."""
    return self._process.pid

  def _answer(self) -> str:
    return self._process.stdout.readline().strip()

  def start(self, arguments) -> int:
    """Starts the program; returns its process id."""
    self._process.stdin.write(json.dumps(list(arguments)) + '\n')
    self._process.stdin.flush()
    return int(self._answer())

  def wait(self) -> int:
    """The exit code of what was started last; negative for a signal."""
    return int(self._answer())

  def close(self) -> None:
    self._process.stdin.close()
    self._process.wait(30)
    self._process.stdout.close()
    self._log.close()


def last_state(run: pathlib.Path) -> tuple[str, dict[str, np.ndarray]]:
  """The name of the last checkpoint, and the state in it by path."""
  found = (run / 'checkpoints').glob('round_*.safetensors')
  path = max(found, key=lambda p: int(p.stem.partition('_')[2]))
  # The checksums of rows are also of their seconds, which no two runs share.
  return path.name, {
    name: array
    for name, array in checkpoints.read(path).items()
    if name.startswith('state/')
  }


def client_states(run: pathlib.Path) -> dict[str, bytes]:
  """The latest state of every client that has one, as it is stored."""
  path = run / 'client_states.sqlite'
  if not path.exists():
    return {}
  with contextlib.closing(sqlite3.connect(path)) as file:
    return dict(
      file.execute('SELECT client, leaves FROM states ORDER BY version')
    )


def assert_same_run(one: pathlib.Path, other: pathlib.Path) -> None:
  """Every number of the tables, and every bit of the states."""
  assert recorded.rows(one) == recorded.rows(other)
  name, state = last_state(one)
  other_name, other_state = last_state(other)
  assert name == other_name and state.keys() == other_state.keys()
  for path, array in state.items():
    assert array.dtype == other_state[path].dtype
    assert array.shape == other_state[path].shape
    assert array.tobytes() == other_state[path].tobytes()
  clients = client_states(one)
  assert len(clients) == state.get('state/clients/clients', 0)
  assert clients == client_states(other)


def wait_for_rows(run: pathlib.Path, count: int) -> None:
  """Until the table of a run has more lines than this."""
  rows = run / 'metrics.csv'
  assert waiting.wait_until(
    lambda: rows.exists() and rows.read_text().count('\n') > count, 600, 0.01
  )


def gone(pid: int) -> bool:
  """Whether a process has ended."""
  # A zombie until the launcher has waited for it.
  try:
    return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return True


def is_writing(run: pathlib.Path) -> bool:
  """Whether a checkpoint is being written right now."""
  with contextlib.suppress(FileNotFoundError):
    return any(
      entry.name.startswith('.round_')
      for entry in os.scandir(run / 'checkpoints')
    )
  return False


def kill_once(
  pid: int, run: pathlib.Path, rng: random.Random, moment: str
) -> str:
  """Kills the program at a random moment.

  Args:
    pid: The program.
    run: Its folder.
    rng: Decides the moment.
    moment: 'start', before it trains; 'round', after some rows were written;
      'checkpoint', while a checkpoint is.

  Returns:
    Where it was hit: 'checkpoint' if a half written one was left, 'end' if it
    had ended by itself, else `moment`.
  """
  deadline = time.monotonic() + _PATIENCE

  def wait(condition) -> None:
    while not condition() and not gone(pid):
      assert time.monotonic() < deadline
      time.sleep(0.0002)

  if moment == 'start':
    time.sleep(rng.uniform(0, 10))
  for _ in range(rng.randrange(1, 4) if moment != 'start' else 0):
    if moment == 'checkpoint':
      wait(lambda: not is_writing(run))
      wait(lambda: is_writing(run))
    else:
      before = _changed(run)
      wait(lambda: _changed(run) != before)
  time.sleep(rng.uniform(0, 0.003 if moment == 'checkpoint' else 0.1))
  ended = gone(pid)
  with contextlib.suppress(ProcessLookupError):
    os.kill(pid, signal.SIGKILL)
  if ended:
    return 'end'
  while not gone(pid):
    time.sleep(0.001)
  return 'checkpoint' if is_writing(run) else moment


def _changed(run: pathlib.Path) -> int:
  with contextlib.suppress(FileNotFoundError):
    return (run / 'metrics.csv').stat().st_mtime_ns
  return 0
