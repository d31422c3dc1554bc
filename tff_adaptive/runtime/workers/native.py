"""Execution contexts on TFF's C++ worker.

Compilation and executors are TFF's; this module manages the worker's life
cycle. It starts under a supervisor (`process.py`), is pinged during calls
(`stub.py`) and is restarted between invocations if its memory exceeds a limit.
An invocation that lost its worker is retried a bounded number of times.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Mapping
from typing import TypeAlias

import tensorflow_federated as tff
from absl import logging

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import resources
from tff_adaptive.runtime.engine import values
from tff_adaptive.runtime.workers import process as process_lib
from tff_adaptive.runtime.workers import stub as stub_lib

_START_ATTEMPTS = 3  # Another process may take a free port first.
_Cardinalities: TypeAlias = Mapping[tff.framework.PlacementLiteral, int]


def _explain(process: process_lib.WorkerProcess) -> str:
  """Describes how a worker ended whose connection broke."""
  # A connection often breaks before the exit code is available.
  process_lib.wait_until(lambda: process.exit_code() is not None, 1.0)
  return f"TFF's worker (process {process.pid}) {process.describe_exit()}."


class WorkerExecutors(tff.framework.ExecutorFactory):
  """Creates executors in a worker process, which is replaced after it ended.

  Attributes:
    starts: Number of workers started so far.
  """

  def __init__(
    self,
    *,
    default_num_clients: int,
    max_concurrent_clients: int | None,
    worker_timeout: float,
    binary: str,
  ):
    self._default_num_clients = default_num_clients
    self._max_concurrent = max_concurrent_clients or -1
    self._timeout = worker_timeout
    self._binary = binary
    self._lock = threading.RLock()
    self._process: process_lib.WorkerProcess | None = None
    self._stub: stub_lib.GuardedStub | None = None
    self._executors: tff.framework.ExecutorFactory | None = None
    self._closed = False
    self.starts = 0

  @property
  def process(self) -> process_lib.WorkerProcess | None:
    """The current worker, if any."""
    return self._process

  def create_executor(
    self, cardinalities: _Cardinalities
  ) -> tff.framework.RemoteExecutor:
    with self._lock:
      self._ensure_worker()
      assert self._executors is not None
      return self._executors.create_executor(dict(cardinalities))

  def clean_up_executor(self, cardinalities: _Cardinalities) -> None:
    with self._lock:
      if self._executors is not None:
        self._executors.clean_up_executor(dict(cardinalities))

  def stop(self, *, final: bool = False) -> None:
    """Ends the worker. Unless `final`, the next use starts another."""
    # Without the lock, whose holder may be waiting for the worker.
    self._closed = self._closed or final
    process, stub = self._process, self._stub
    if stub is not None:
      stub.close()
    if process is not None:
      process.stop()
    with self._lock:
      if self._process is process:
        self._process = self._stub = self._executors = None

  def _ensure_worker(self) -> None:
    """Starts a worker unless one is running."""
    if self._closed:
      raise failures.RuntimeFailure(
        'This native context is closed; call set_native_context again.'
      )
    if self._process is not None:
      if self._process.exit_code() is None:
        return
      self.stop()
    for _ in range(_START_ATTEMPTS):
      process = process_lib.WorkerProcess(
        self._binary,
        max_concurrent_calls=self._max_concurrent,
        threads_per_operation=resources.threads_per_operation(),
      )
      self.starts += 1
      stub = stub_lib.GuardedStub(
        stub_lib.open_channel(f'127.0.0.1:{process.port}'),
        process.address,
        silence_timeout=self._timeout,
        explain=functools.partial(_explain, process),
      )
      self._process, self._stub = process, stub
      ready = self._wait_for_answer(process, stub)
      if ready and process.exit_code() is None:
        self._executors = tff.framework.ResourceManagingExecutorFactory(
          self._stack
        )
        return
      how = process.describe_exit()
      self.stop()
      if not ready:
        raise failures.WorkerFailure(
          f"TFF's worker at {process.address} did not answer within "
          f'{self._timeout:g} s; raise worker_timeout, check what blocks local '
          'connections, or use the in-process runtime, which needs no worker.',
          process.address,
        )
    raise failures.WorkerFailure(
      f"TFF's worker did not start ({_START_ATTEMPTS} attempts): it {how}.",
      process.address,
    )

  def _wait_for_answer(
    self, process: process_lib.WorkerProcess, stub: stub_lib.GuardedStub
  ) -> bool:
    """Waits until the worker answers or has ended; `False` on timeout."""
    end = time.monotonic() + self._timeout
    # A channel opened too early waits seconds before it reconnects, so gRPC is
    # used only once the port accepts connections.
    return process.wait_until_it_listens(self._timeout) and (
      process.exit_code() is not None
      or stub.is_alive(max(0.1, end - time.monotonic()))
    )

  def _stack(
    self, cardinalities: dict[tff.framework.PlacementLiteral, int]
  ) -> tff.framework.RemoteExecutor:
    """Builds the worker's remote executor."""
    cardinalities.setdefault(tff.CLIENTS, self._default_num_clients)
    executor = tff.framework.RemoteExecutor(self._stub)
    executor.set_cardinalities(cardinalities)
    return executor


class NativeAsyncContext(tff.framework.AsyncContext):
  """Asynchronous execution context on TFF's C++ worker.

  Blocking calls run in a thread of their own, so an event loop that awaits
  `invoke` is not blocked.
  """

  def __init__(
    self,
    worker: WorkerExecutors,
    *,
    retries: int,
    memory_limit: int | None,
  ):
    self._worker = worker
    self._retries = retries
    self._memory_limit = memory_limit
    self._inner = tff.framework.AsyncExecutionContext(
      executor_fn=worker,
      compiler_fn=tff_names.compile_to_native,
      transform_args=tff_names.transform_args,
      transform_result=tff_names.transform_result,
    )
    self._runner = tff_names.AsyncThreadRunner()
    self._in_flight = 0
    self._owner = failures.Owner()

  @property
  def executor_factory(self) -> WorkerExecutors:
    """The worker's executors; the name is that of TFF's own contexts."""
    return self._worker

  async def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    self._owner.check()
    if asyncio.iscoroutine(arg):
      arg = await arg
    return await self._runner.await_coro_and_return_result(
      self._invoke(comp, arg)
    )

  def invoke_blocking(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    """Invokes a computation for a caller without an event loop."""
    self._owner.check()
    try:
      return self._runner.run_coro_and_return_result(self._invoke(comp, arg))
    except (KeyboardInterrupt, SystemExit):
      # The answer is not needed, and the thread that waits for it would keep
      # the interpreter from exiting.
      self._worker.stop()
      raise

  async def _invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    self._restart_if_large()
    self._in_flight += 1  # Used on the runner's thread only.
    try:
      for attempt in range(self._retries + 1):
        try:
          return await self._inner.invoke(comp, arg)
        except failures.WorkerFailure as e:
          if self._in_flight == 1:
            self._worker.stop()
          if attempt == self._retries:
            raise
          logging.warning('%s Retrying with a new worker.', e)
    finally:
      self._in_flight -= 1

  def _restart_if_large(self) -> None:
    """Ends the worker if it exceeds the memory limit and is idle."""
    process = self._worker.process
    if not self._memory_limit or process is None or self._in_flight:
      return
    resident = process.resident_bytes()
    if resident > self._memory_limit:
      logging.warning(
        "TFF's worker uses %d MiB, above the limit of %d MiB; restarting it.",
        resident >> 20,
        self._memory_limit >> 20,
      )
      self._worker.stop()

  def close(self) -> None:
    """Ends the worker; the context cannot be used afterwards."""
    self._worker.stop(final=True)


class NativeContext(tff.framework.SyncContext):
  """Synchronous execution context on TFF's C++ worker."""

  def __init__(self, asynchronous: NativeAsyncContext):
    self._async = asynchronous

  @property
  def executor_factory(self) -> WorkerExecutors:
    """The worker's executors; the name is that of TFF's own contexts."""
    return self._async.executor_factory

  def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    return self._async.invoke_blocking(comp, arg)

  def close(self) -> None:
    """Ends the worker; the context cannot be used afterwards."""
    self._async.close()


def _installed_worker() -> str:
  """Returns the path of TFF's worker; raises `RuntimeFailure` without one."""
  try:
    return tff_names.worker_binary_path()
  except FileNotFoundError as e:
    raise failures.RuntimeFailure(str(e)) from e


def create_async(
  *,
  default_num_clients: int,
  max_concurrent_clients: int | None,
  worker_timeout: float,
  retries: int,
  memory_limit: int | None,
  binary: str | None = None,
) -> NativeAsyncContext:
  """Creates the context of `tff_adaptive.runtime.create_native_context`."""
  if worker_timeout <= 0:
    raise ValueError(
      f'`worker_timeout` must be positive seconds, got {worker_timeout!r}.'
    )
  if max_concurrent_clients is not None and max_concurrent_clients < 1:
    raise ValueError(
      '`max_concurrent_clients` must be at least 1 or None (no bound), got'
      f' {max_concurrent_clients!r}.'
    )
  if retries < 0:
    raise ValueError(f'`retries` must be at least 0, got {retries!r}.')
  if memory_limit is not None and memory_limit <= 0:
    raise ValueError(
      '`memory_limit` must be a positive number of bytes or None, got'
      f' {memory_limit!r}.'
    )
  return NativeAsyncContext(
    WorkerExecutors(
      default_num_clients=default_num_clients,
      max_concurrent_clients=max_concurrent_clients,
      worker_timeout=worker_timeout,
      binary=binary or _installed_worker(),
    ),
    retries=retries,
    memory_limit=memory_limit,
  )
