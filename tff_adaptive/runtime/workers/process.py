"""TFF's C++ worker as a child process that never outlives its parent."""

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable

import psutil

from tff_adaptive.runtime import failures

_SUPERVISOR = os.path.join(os.path.dirname(__file__), 'supervisor.py')
_LOG_TAIL_BYTES = 2000
_live: 'weakref.WeakSet[WorkerProcess]' = weakref.WeakSet()


def free_port() -> int:
  """Returns a currently unused TCP port."""
  with socket.socket(
    socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
  ) as probe:
    probe.bind(('', 0))
    return probe.getsockname()[1]


def accepts_connections(host: str, port: int, timeout: float = 1.0) -> bool:
  """Returns whether `host:port` accepts connections."""
  try:
    socket.create_connection((host, port), timeout).close()
    return True
  except OSError:
    return False


def resident_bytes(pid: int) -> int:
  """Returns the resident memory of a process in bytes; 0 if it has ended."""
  try:
    return psutil.Process(pid).memory_info().rss
  except psutil.NoSuchProcess:
    return 0


class WorkerProcess:
  """A running `worker_binary`.

  The worker runs under a small supervisor process, which ends it when this
  process ends in any way, including SIGKILL. Its output goes to an unnamed
  temporary file, never to pipes inherited from this process; the last lines are
  added to error messages.

  Attributes:
    pid: Process id of the worker itself.
    port: TCP port that it listens on.
  """

  def __init__(
    self,
    binary: str,
    *,
    max_concurrent_calls: int = -1,
    threads_per_operation: int = 0,
  ):
    """Starts the worker without waiting for it to answer.

    Args:
      binary: Path of TFF's `worker_binary`.
      max_concurrent_calls: Number of clients at once; unbounded if not
        positive.
      threads_per_operation: TensorFlow's threads per operation; 0: all cores.
    """
    self.port = free_port()
    self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as self)
    self._lock = threading.Lock()
    command = [
      binary,
      f'--port={self.port}',
      f'--max_concurrent_computation_calls={max_concurrent_calls}',
      # The maximum size of a gRPC message, 2 GiB, in MiB.
      '--grpc_max_message_length_megabytes=2047',
    ]
    environment = dict(os.environ)
    environment.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
    if threads_per_operation:
      environment['TF_NUM_INTRAOP_THREADS'] = str(threads_per_operation)
    self._owner = os.getpid()
    self._supervisor = subprocess.Popen(
      # Isolated and without site: starts in ~20 ms, unaffected by sitecustomize
      # or PYTHONPATH.
      [sys.executable, '-I', '-S', _SUPERVISOR, str(self._owner), *command],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._log,
      start_new_session=True,
      env=environment,
    )
    stdin, stdout = self._supervisor.stdin, self._supervisor.stdout
    assert stdin is not None and stdout is not None  # Both are pipes.
    self._lifeline = stdin
    line = stdout.readline()
    stdout.close()
    if not line:
      self._supervisor.wait()
      raise failures.WorkerFailure(
        f'Could not start {command[0]}: {self.log_tail() or "no output"}.'
      )
    self.pid = int(line)
    _live.add(self)

  @property
  def address(self) -> str:
    return f'localhost:{self.port}'

  def exit_code(self) -> int | None:
    """Returns the exit code: `None` while running, 128 + N after signal N."""
    return self._supervisor.poll()

  def resident_bytes(self) -> int:
    """Returns the worker's resident memory in bytes."""
    return resident_bytes(self.pid)

  def log_tail(self) -> str:
    """Returns the last lines that the worker printed."""
    size = os.fstat(self._log.fileno()).st_size
    start = max(0, size - _LOG_TAIL_BYTES)
    tail = os.pread(self._log.fileno(), _LOG_TAIL_BYTES, start)
    return tail.decode('utf-8', 'replace').strip()

  def describe_exit(self) -> str:
    """Describes, for an error message, how the worker ended."""
    code = self.exit_code()
    if code is None:
      how = 'is still running'
    elif code > 128:
      number = code - 128
      try:
        name = signal.Signals(number).name
      except ValueError:
        name = f'signal {number}'
      how = f'was ended by {name}'
      if number == signal.SIGKILL:
        how += (
          ', as the kernel does when memory runs out (lower the number of '
          'concurrent clients)'
        )
    else:
      how = f'ended with exit code {code}'
    tail = self.log_tail()
    return how + (f'; it last printed:\n{tail}' if tail else '')

  def wait_until_it_listens(self, timeout: float) -> bool:
    """Waits until the worker listens or has ended; `False` on timeout."""
    return wait_until(
      lambda: (
        self.exit_code() is not None
        or accepts_connections('127.0.0.1', self.port)
      ),
      timeout,
    )

  def stop(self) -> None:
    """Ends the worker and waits for its end; does nothing if it has ended."""
    if os.getpid() != self._owner:
      return  # A forked child must not end its parent's worker.
    with self._lock:
      if self._supervisor.poll() is None:
        self._lifeline.close()  # The supervisor sees end-of-file.
        try:
          self._supervisor.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
          self._supervisor.kill()  # PDEATHSIG then kills the worker.
          self._supervisor.wait()
      elif not self._lifeline.closed:
        self._lifeline.close()
    _live.discard(self)

  def wait(self) -> int:
    """Waits until the worker ends and returns its `exit_code`."""
    return self._supervisor.wait()

  def __del__(self) -> None:
    if (
      getattr(self, '_supervisor', None) is not None and not sys.is_finalizing()
    ):
      self.stop()


def wait_until(
  condition: Callable[[], bool], timeout: float, interval: float = 0.05
) -> bool:
  """Polls `condition` for up to `timeout` seconds; returns whether it held."""
  end = time.monotonic() + timeout
  while not condition():
    if time.monotonic() >= end:
      return False
    time.sleep(interval)
  return True


@atexit.register
def _stop_all() -> None:
  for process in list(_live):
    process.stop()
