"""A worker process must not outlive its parent, however the parent ends."""

import os
import pathlib
import signal
import stat
import subprocess
import sys
import textwrap
import time

import pytest

from tff_adaptive.runtime import failures
from tff_adaptive.runtime.workers import process as process_lib

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _gone(pid: int) -> bool:
  """Whether a process has ended, seen to by its parent or not."""
  return process_lib.resident_bytes(pid) == 0


@pytest.fixture(name='binary')
def _binary(tmp_path):
  """An executable that stays until it is ended, and prints a line."""
  path = tmp_path / 'worker'
  path.write_text('#!/bin/sh\necho "listening $1"\nexec sleep 600\n')
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return str(path)


_PROGRAM = """
import os, signal, sys, threading, time
from tff_adaptive.runtime.workers import process as process_lib
# A shell that runs the tests in the background lets them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
found = []
# Started from a thread that ends at once, as an event loop's may.
thread = threading.Thread(
    target=lambda: found.append(process_lib.WorkerProcess({binary!r})))
thread.start()
thread.join()
time.sleep(0.2)
assert found[0].exit_code() is None, found[0].describe_exit()
print(found[0].pid, flush=True)
{ending}
"""


@pytest.mark.parametrize(
  'ending',
  [
    'pass',
    'raise ValueError("on purpose")',
    'os.kill(os.getpid(), signal.SIGINT); time.sleep(60)',
    'os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)',
    'os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)',
    'os._exit(3)',
  ],
  ids=['end', 'exception', 'ctrl-c', 'sigterm', 'sigkill', 'os-exit'],
)
def test_no_worker_survives_its_parent(binary, ending):
  program = textwrap.dedent(_PROGRAM).format(binary=binary, ending=ending)
  # Reading the pipe to its end also shows that the worker does not keep the
  # inherited output open: this call would then wait for 600 seconds.
  done = subprocess.run(
    [sys.executable, '-c', program],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=30,
    check=False,
  )
  assert done.stdout.strip().isdigit(), done.stderr
  pid = int(done.stdout)
  assert process_lib.wait_until(lambda: _gone(pid), 5.0)


def test_stop_ends_the_worker(binary):
  process = process_lib.WorkerProcess(binary)
  assert not _gone(process.pid)
  assert process.resident_bytes() > 0
  process.stop()
  process.stop()
  assert _gone(process.pid)
  assert process.resident_bytes() == 0


def test_killed_supervisor_takes_the_worker_along(binary):
  process = process_lib.WorkerProcess(binary)
  os.kill(process._supervisor.pid, signal.SIGKILL)
  assert process_lib.wait_until(lambda: _gone(process.pid), 5.0)
  process.stop()


def test_end_of_the_worker_is_seen_and_described(binary):
  process = process_lib.WorkerProcess(binary)
  assert process_lib.wait_until(lambda: 'listening' in process.log_tail(), 5.0)
  start = time.monotonic()
  os.kill(process.pid, signal.SIGKILL)
  assert process_lib.wait_until(lambda: process.exit_code() is not None, 5.0)
  assert time.monotonic() - start < 2.0
  assert 'SIGKILL' in process.describe_exit()
  assert f'listening --port={process.port}' in process.describe_exit()
  process.stop()


def test_missing_binary_is_an_error_that_names_it(tmp_path):
  with pytest.raises(failures.WorkerFailure, match='no_such_worker'):
    process_lib.WorkerProcess(str(tmp_path / 'no_such_worker'))
