"""TFF's C++ runtime under control: liveness, restarts, retries, no orphans."""

import asyncio
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_adaptive import runtime
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.workers import native
from tff_adaptive.runtime.workers import process as process_lib

_ROOT = pathlib.Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.native


@tff.tensorflow.computation(np.int32)
def _square(x):
  return x * x


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _sum_of_squares(values):
  return tff.federated_sum(tff.federated_map(_square, values))


@pytest.fixture(name='context')
def _context():
  context = runtime.create_native_context(worker_timeout=20.0)
  yield context
  context.close()


def test_computes_and_recovers_from_a_killed_worker(context):
  with tff.framework.get_context_stack().install(context):
    assert _sum_of_squares([1, 2, 3]) == 14
    first = context.executor_factory.process.pid
    os.kill(first, signal.SIGKILL)
    assert _sum_of_squares([1, 2]) == 5
  assert context.executor_factory.process.pid != first


def test_large_worker_is_replaced_between_computations():
  context = runtime.create_native_context(memory_limit=1)
  try:
    with tff.framework.get_context_stack().install(context):
      assert _sum_of_squares([1]) == 1
      assert _sum_of_squares([2]) == 4
    assert context.executor_factory.starts == 2
  finally:
    context.close()


def test_stopped_worker_is_an_error_within_the_stated_time():
  context = native.NativeContext(
    native.create_async(
      default_num_clients=0,
      max_concurrent_clients=None,
      worker_timeout=1.0,
      retries=0,
      memory_limit=None,
    )
  )
  try:
    with tff.framework.get_context_stack().install(context):
      assert _sum_of_squares([1, 2]) == 5
      os.kill(context.executor_factory.process.pid, signal.SIGSTOP)
      start = time.monotonic()
      with pytest.raises(runtime.WorkerFailure, match='not answered for 1 s'):
        _sum_of_squares([1, 2])
      assert time.monotonic() - start < 10.0
  finally:
    context.close()


def test_worker_that_never_listens_is_an_error(tmp_path):
  path = tmp_path / 'worker'
  path.write_text('#!/bin/sh\nexec sleep 600\n')
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  context = native.NativeContext(
    native.create_async(
      default_num_clients=0,
      max_concurrent_clients=None,
      worker_timeout=0.5,
      retries=0,
      memory_limit=None,
      binary=str(path),
    )
  )
  with (
    tff.framework.get_context_stack().install(context),
    pytest.raises(runtime.WorkerFailure, match=r'within 0\.5 s'),
  ):
    _sum_of_squares([1])
  assert context.executor_factory.process is None


def test_failing_computation_is_reported_and_the_worker_stays(context):
  @tff.tensorflow.computation(np.int32)
  def divide(x):
    return 1 // x

  with tff.framework.get_context_stack().install(context):
    with pytest.raises(runtime.RuntimeFailure, match=r'(?i)division by zero'):
      divide(0)
    pid = context.executor_factory.process.pid
    assert divide(1) == 1
  assert context.executor_factory.process.pid == pid


def test_asynchronous_context_leaves_the_event_loop_free():
  context = runtime.create_native_context(asynchronous=True)
  try:
    platform = tff.program.NativeFederatedContext(context)

    async def program():
      result = _sum_of_squares([1, 2, 3])
      return await tff.program.materialize_value(result)

    with tff.framework.get_context_stack().install(platform):
      assert asyncio.run(program()) == 14
  finally:
    context.close()


def test_closed_context_says_so(context):
  context.close()
  with (
    tff.framework.get_context_stack().install(context),
    pytest.raises(runtime.RuntimeFailure, match='is closed'),
  ):
    _sum_of_squares([1])


@pytest.mark.parametrize(
  'arguments',
  [
    {'worker_timeout': 0.0},
    {'max_concurrent_clients': 0},
    {'retries': -1},
    {'memory_limit': 0},
  ],
)
def test_arguments_out_of_range_are_refused(arguments):
  with pytest.raises(ValueError, match=next(iter(arguments))):
    runtime.create_native_context(**arguments)


@pytest.mark.exhaustive
def test_killed_program_leaves_no_worker_and_no_open_pipe():
  program = """
import os, signal
import numpy as np
import tensorflow_federated as tff
from tff_adaptive import runtime
context = runtime.set_native_context()
@tff.tensorflow.computation(np.int32)
def add(x):
  return x + 1
assert add(1) == 2
print('worker', context.executor_factory.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
  done = subprocess.run(
    [sys.executable, '-c', program],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert 'worker' in done.stdout, done.stderr
  pid = int(done.stdout.split()[-1])
  assert process_lib.wait_until(
    lambda: process_lib.resident_bytes(pid) == 0, 5.0
  )


def test_tffs_own_remote_executors_work_as_the_guide_says():
  page = (_ROOT / 'docs' / 'runtimes.md').read_text(encoding='utf-8')
  section = page.partition("## TFF's own remote executors")[2]
  code = section.partition('```python\n')[2].partition('```')[0]
  # In place of another machine.
  worker = process_lib.WorkerProcess(tff_names.worker_binary_path())
  assert worker.wait_until_it_listens(30)
  before = tff.framework.get_context_stack().current
  try:
    exec(code.replace('9001', str(worker.port)), {})  # pylint: disable=exec-used
    assert _sum_of_squares([1, 2, 3]) == 14
  finally:
    tff.framework.set_default_context(before)
    worker.stop()
