"""TFF's C++ runtime: retries, errors, and no worker outlives its program."""

import asyncio
import os
import pathlib
import signal
import subprocess
import threading

import numpy as np
import portpicker
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import programs
from tests import tiers
from tests import waiting
from tests.reliability import drills
from tff_adaptive import runtime
from tff_adaptive.runtime import tff_names

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SEQUENCE = tff.SequenceType(np.int32)

pytestmark = pytest.mark.native


@tff.tensorflow.computation(np.int32)
def _square(x):
  return x * x


@tff.tensorflow.computation(np.int32)
def _divide(x):
  return 1 // x


@tff.tensorflow.computation(_SEQUENCE)
def _sum(dataset):
  return dataset.reduce(np.int32(0), lambda total, x: (total + x) % 7)


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _sum_of_squares(values):
  return tff.federated_sum(tff.federated_map(_square, values))


@pytest.fixture(name='context')
def _context():
  context = runtime.create_native_context()
  with tff.framework.get_context_stack().install(context):
    yield context
  context.close()


def test_computes_and_recovers_from_a_killed_worker(context):
  assert _sum_of_squares([1, 2, 3]) == 14
  first = context.worker.process.pid
  os.kill(first, signal.SIGKILL)
  assert _sum_of_squares([1, 2]) == 5
  assert context.worker.process.pid != first


def test_failing_computation_is_reported_and_the_worker_stays(context):
  with pytest.raises(runtime.RuntimeFailure, match=r'(?i)division by zero'):
    _divide(0)
  pid = context.worker.process.pid
  assert _divide(1) == 1
  assert context.worker.process.pid == pid


def test_ctrl_c_leaves_an_endless_computation(context):
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  pressing = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
  try:
    with pytest.raises(KeyboardInterrupt):
      pressing.start()
      _sum(tf.data.Dataset.from_tensors(np.int32(1)).repeat())
  finally:
    pressing.join()
    signal.signal(signal.SIGINT, before)
  assert context.worker.process is None
  assert _sum_of_squares([3]) == 9


def test_worker_that_does_not_start_is_an_error(tmp_path, monkeypatch):
  path = tmp_path / 'worker'
  path.write_text('#!/bin/sh\necho "No memory left"\nexit 1\n')
  path.chmod(0o755)
  monkeypatch.setattr(tff_names, 'worker_binary_path', lambda: str(path))
  context = runtime.create_native_context()
  with (
    tff.framework.get_context_stack().install(context),
    pytest.raises(runtime.WorkerFailure, match=r'(?s)4 times.*No memory left'),
  ):
    _sum_of_squares([1])


def test_asynchronous_context_serves_programs():
  context = runtime.create_native_context(asynchronous=True)
  platform = tff.program.NativeFederatedContext(context)

  async def program():
    return await tff.program.materialize_value(_sum_of_squares([1, 2, 3]))

  with tff.framework.get_context_stack().install(platform):
    assert asyncio.run(program()) == 14
  context.close()


def test_closed_context_says_so(context):
  assert _sum_of_squares([1]) == 1
  context.close()
  with pytest.raises(runtime.RuntimeFailure, match='is closed'):
    _sum_of_squares([1])


def test_arguments_out_of_range_are_refused():
  with pytest.raises(ValueError, match='max_concurrent_clients'):
    runtime.create_native_context(max_concurrent_clients=0)


_PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import tensorflow_federated as tff
from tff_adaptive import runtime
# A shell that runs the tests in the background lets them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
context = runtime.set_native_context()
@tff.tensorflow.computation(np.int32)
def add(x):
  return x + 1
def use():
  with tff.framework.get_context_stack().install(context):
    assert add(1) == 2
# The worker is first needed by a thread that ends at once.
thread = threading.Thread(target=use)
thread.start()
thread.join()
time.sleep(0.2)
assert context.worker.process.poll() is None
print(context.worker.process.pid, flush=True)
{ending}
"""


@pytest.mark.parametrize(
  'ending',
  tiers.exhaustive_but(
    ['os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)'],
    [
      'pass',
      'raise ValueError("on purpose")',
      'os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)',
      'os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)',
      'os._exit(3)',
    ],
  ),
)
def test_no_worker_survives_its_program(ending):
  # Reading the pipe to its end also shows that the worker does not keep the
  # inherited output open.
  program = _PROGRAM.format(ending=ending)
  done = programs.run('-c', program, code=None, cwd=_ROOT, timeout=60)
  assert done.stdout.strip().isdigit(), done.stderr
  pid = int(done.stdout)
  assert waiting.wait_until(lambda: drills.gone(pid), 5.0)


def test_tffs_own_remote_executors_work_as_the_guide_says():
  page = (_ROOT / 'docs' / 'runtimes.md').read_text(encoding='utf-8')
  section = page.partition("## TFF's own remote executors")[2]
  code = section.partition('```python\n')[2].partition('```')[0]
  port = portpicker.pick_unused_port()
  # In place of another machine.
  with subprocess.Popen(
    [tff_names.worker_binary_path(), f'--port={port}'],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  ) as worker:
    before = tff.framework.get_context_stack().current
    try:
      exec(code.replace('9001', str(port)), {})  # pylint: disable=exec-used
      assert _sum_of_squares([1, 2, 3]) == 14
    finally:
      tff.framework.set_default_context(before)
      worker.kill()
