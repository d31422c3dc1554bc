"""Execution contexts on TFF's C++ worker, a separate process.

Compilation, executors and retries are TFF's. This module starts the worker,
which the kernel ends with this process.
"""

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import MutableMapping

import grpc
import portpicker
import tensorflow_federated as tff

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime import waiting
from tff_adaptive.runtime.engine import resources
from tff_adaptive.runtime.engine import values

# Executes a command that is killed with the thread that started it, however
# that ends (`prctl(PR_SET_PDEATHSIG, SIGKILL)`).
_LAUNCH = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
  os.execv(sys.argv[2], sys.argv[2:])
"""
_CHANNEL_OPTIONS = [
  ('grpc.max_receive_message_length', -1),  # Unlimited.
  ('grpc.max_send_message_length', -1),
  # The worker may not listen yet when the channel first tries.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.max_reconnect_backoff_ms', 1000),
  # A configured web proxy would otherwise receive calls to this machine too.
  ('grpc.enable_http_proxy', 0),
]
_SECONDS_TO_START = 20.0
# Executors lost in a row, after which TFF's retries end.
_MAX_FAILURES = 4
_LOG_TAIL_BYTES = 2000


class Worker:
  """TFF's worker process, started when it is first needed.

  Attributes:
    process: The running worker; `None` before it is needed and after `stop`.
  """

  def __init__(self, default_num_clients: int, max_concurrent_clients: int):
    self._default_num_clients = default_num_clients
    self._max_concurrent_clients = max_concurrent_clients
    self._binary = tff_names.worker_binary_path()
    self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as self)
    self.process: subprocess.Popen[bytes] | None = None
    self.is_closed = False
    self.failures = 0

  def executor(
    self, cardinalities: MutableMapping[tff.framework.PlacementLiteral, int]
  ) -> tff.framework.RemoteExecutor:
    """Builds an executor in the worker, which is started if none is running.

    Called on the thread of the context's event loop, which lives as long as
    the worker may.

    Raises:
      RuntimeFailure: If the context was closed.
      WorkerFailure: If the worker cannot be started, or was lost repeatedly.
    """
    if self.is_closed:
      raise failures.RuntimeFailure(
        'This native context is closed; call set_native_context again.'
      )
    if self.failures == _MAX_FAILURES:
      raise failures.WorkerFailure(
        f"TFF's worker {self._binary} did not start, or was lost, "
        f'{self.failures} times in one computation. If the machine runs out of '
        f'memory, lower the number of concurrent clients.{self._log_tail()}'
      )
    self.failures += 1
    if self.process is None or self.process.poll() is not None:
      self._start()
    executor = tff.framework.RemoteExecutor(self._stub)
    executor.set_cardinalities(
      {tff.CLIENTS: self._default_num_clients, **cardinalities}
    )
    return executor

  def _start(self) -> None:
    """Starts a worker and waits until it answers."""
    port = portpicker.pick_unused_port()
    environment = {'TF_CPP_MIN_LOG_LEVEL': '1', **os.environ}
    if threads := resources.threads_per_operation():
      environment['TF_NUM_INTRAOP_THREADS'] = str(threads)
    command = [
      self._binary,
      f'--port={port}',
      f'--max_concurrent_computation_calls={self._max_concurrent_clients}',
      # The maximum size of a gRPC message, 2 GiB, in MiB.
      '--grpc_max_message_length_megabytes=2047',
    ]
    self.process = process = subprocess.Popen(
      # Isolated and without site: starts in ~20 ms.
      [sys.executable, '-I', '-S', '-c', _LAUNCH, f'{os.getpid()}', *command],
      stdin=subprocess.DEVNULL,
      # Not this process's own output, which it would hold open.
      stdout=self._log,
      stderr=self._log,
      # Ctrl-C is for this process, which ends the worker.
      start_new_session=True,
      env=environment,
    )
    self._stub = tff.framework.RemoteExecutorGrpcStub(
      grpc.insecure_channel(f'127.0.0.1:{port}', _CHANNEL_OPTIONS)
    )
    end = time.monotonic() + _SECONDS_TO_START
    while not self._stub.is_ready:
      if process.poll() is not None or time.monotonic() > end:
        # Another process may have taken the port.
        self.stop()
        raise tff.framework.RetryableError("TFF's worker did not start.")
      time.sleep(0.05)

  def _log_tail(self) -> str:
    """Returns what workers printed last, for an error message."""
    size = os.fstat(self._log.fileno()).st_size
    start = max(0, size - _LOG_TAIL_BYTES)
    tail = os.pread(self._log.fileno(), _LOG_TAIL_BYTES, start)
    text = tail.decode('utf-8', 'replace').strip()
    return f' It last printed:\n{text}' if text else ''

  def stop(self) -> None:
    """Ends the worker; the next use starts another."""
    process, self.process = self.process, None
    if process is not None:
      process.kill()
      process.wait()


class NativeAsyncContext(tff.framework.AsyncContext):
  """Asynchronous execution context on TFF's C++ worker.

  Blocking calls run in a thread of their own, so an event loop that awaits
  `invoke` is not blocked.

  Attributes:
    worker: The worker process.
  """

  def __init__(self, worker: Worker):
    resources.check_process()
    self.worker = worker
    self._inner = tff.framework.AsyncExecutionContext(
      executor_fn=tff.framework.ResourceManagingExecutorFactory(
        worker.executor
      ),
      compiler_fn=tff_names.compile_to_native,
      transform_args=tff_names.transform_args,
      transform_result=tff_names.transform_result,
    )
    self._loop = asyncio.new_event_loop()
    threading.Thread(target=self._loop.run_forever, daemon=True).start()

  async def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    if asyncio.iscoroutine(arg):
      arg = await arg
    return await asyncio.wrap_future(self.submit(comp, arg))

  def submit(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> concurrent.futures.Future[values.PythonValue]:
    """Starts a computation.

    Raises:
      RuntimeFailure: If the process was forked from the context's.
    """
    resources.check_process()
    return asyncio.run_coroutine_threadsafe(self._run(comp, arg), self._loop)

  async def _run(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    try:
      return await self._inner.invoke(comp, arg)
    except grpc.RpcError as e:
      raise failures.RuntimeFailure(
        f"TFF's worker reported {e.code().name}: {e.details()}"
      ) from e
    finally:
      self.worker.failures = 0

  def close(self) -> None:
    """Ends the worker; the context cannot be used afterwards."""
    self.worker.is_closed = True
    self.worker.stop()


class NativeContext(tff.framework.SyncContext):
  """Synchronous execution context on TFF's C++ worker."""

  def __init__(self, asynchronous: NativeAsyncContext):
    self._async = asynchronous
    self.worker = asynchronous.worker

  @property
  def is_closed(self) -> bool:
    """Whether the context was closed."""
    return self.worker.is_closed

  def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    running = self._async.submit(comp, arg)
    try:
      return waiting.result_of(running)
    finally:
      if running.cancel():
        # A signal's handler raised an exception, and nobody needs the answer.
        self.worker.stop()

  def close(self) -> None:
    """Ends the worker; the context cannot be used afterwards."""
    self._async.close()
