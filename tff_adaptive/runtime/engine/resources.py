"""This process's threads, devices and memory for clients."""

import concurrent.futures
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import machine
from tff_adaptive.runtime import sharing
from tff_adaptive.runtime import tff_functions

_Result = TypeVar('_Result')
# See `_default_concurrency`.
_CLIENTS_A_GPU = 4
# Memory that is there; a look at how much is free takes as long as a client.
_SMALL_BYTES = 64 << 20
# The process whose TensorFlow or gRPC runs clients, set by the first context.
_owner: int | None = None


class Resources:
  """Threads, devices and memory for clients, with a clock of aggregation.

  Attributes:
    max_concurrent_clients: Number of clients that run at once.
    devices: Names of the clients' devices.
    aggregation_seconds: Seconds spent so far on accumulating clients' values
      and on the server's computations.
  """

  def __init__(
    self,
    max_concurrent_clients: int | None = None,
    devices: Sequence[str] | None = None,
    vectorize_clients: str = 'auto',
    jit_compile: str = 'auto',
    matmul_precision: str = 'float32',
  ):
    """Takes the arguments of `create_in_process_context`."""
    for name, choice in (
      ('vectorize_clients', vectorize_clients),
      ('jit_compile', jit_compile),
    ):
      if choice not in ('auto', 'true', 'false'):
        raise ValueError(
          f"`{name}` must be 'auto', 'true' or 'false', got {choice!r}."
        )
    if matmul_precision not in ('float32', 'tf32'):
      raise ValueError(
        "`matmul_precision` must be 'float32' or 'tf32', got "
        f'{matmul_precision!r}.'
      )
    self.vectorize_clients = vectorize_clients
    self._jit_compile = jit_compile
    if max_concurrent_clients is not None and max_concurrent_clients < 1:
      raise ValueError(
        '`max_concurrent_clients` must be at least 1 or None (chosen from'
        f' cores and devices), got {max_concurrent_clients!r}.'
      )
    check_process()
    tff_functions.disable_dataset_function_optimization()
    machine.keep_freed_memory()
    self.devices = _check_devices(devices)
    # Of all GPUs: server steps and evaluations are on one, too.
    tf.config.experimental.enable_tensor_float_32_execution(
      matmul_precision == 'tf32'
    )
    self._automatic = max_concurrent_clients is None
    # It is above 0 if given.
    self.max_concurrent_clients = (
      max_concurrent_clients or _default_concurrency(self.devices)
    )
    self._pool = concurrent.futures.ThreadPoolExecutor(
      self.max_concurrent_clients, thread_name_prefix='tff_client'
    )
    self._beside = concurrent.futures.ThreadPoolExecutor(
      thread_name_prefix='tff_server'
    )
    self.aggregation_seconds = 0.0
    self._lock = threading.Lock()

  def vectorizes(self, received_bytes: int | None, loops: bool) -> bool:
    """Returns whether clients train together; see `sharing.train_together`.

    Args:
      received_bytes: Size of what a client receives; `None` if unknown.
      loops: Whether a local step has a loop, as a recurrent model's has.
    """
    if self.vectorize_clients == 'auto' and (received_bytes is None or loops):
      return False
    return sharing.train_together(
      self.vectorize_clients, received_bytes or 0, self.on_gpu
    )

  @property
  def on_gpu(self) -> bool:
    """Whether clients run on a GPU."""
    return any('GPU' in device for device in self.devices)

  @property
  def jit_compile(self) -> bool:
    """Whether XLA compiles the steps of clients that train together."""
    # On a CPU compilation takes seconds, which few runs get back.
    return self._jit_compile == 'true' or (
      self._jit_compile == 'auto' and self.on_gpu
    )

  def submit(
    self,
    function: Callable[..., _Result],
    *arguments: Any,
    beside: bool = False,
  ) -> concurrent.futures.Future[_Result]:
    """Submits a function to the clients' threads, or to one `beside` them.

    Raises:
      RuntimeFailure: If the context was closed.
    """
    pool = self._beside if beside else self._pool
    try:
      return pool.submit(function, *arguments)
    except RuntimeError as e:
      raise failures.RuntimeFailure(
        'This in-process context is closed; call set_in_process_context again.'
      ) from e

  @contextlib.contextmanager
  def aggregating(self) -> Iterator[None]:
    """Counts the time spent in the context as aggregation."""
    start = time.perf_counter()
    yield
    with self._lock:
      self.aggregation_seconds += time.perf_counter() - start

  def threads_for(self, shared_bytes: int) -> int:
    """Returns the number of clients that may run at once within memory.

    Args:
      shared_bytes: Size of the server's tensors that each client receives, and
        of which it holds a few copies.
    """
    most = self.max_concurrent_clients
    # Weights, gradient, update, optimizer state and temporaries.
    each = 2 * 6 * shared_bytes
    if not self._automatic or most == 1 or most * each < _SMALL_BYTES:
      return most
    return max(1, min(most, machine.available_memory() // each))

  def close(self) -> None:
    """Ends the threads."""
    for pool in (self._pool, self._beside):
      pool.shutdown(wait=False, cancel_futures=True)


def check_process() -> None:
  """Raises `RuntimeFailure` in a fork of a process that had a context.

  A forked process lacks the threads that TensorFlow and gRPC started before the
  fork, and would wait for them for ever.
  """
  global _owner
  _owner = _owner or os.getpid()
  if os.getpid() != _owner:
    raise failures.RuntimeFailure(
      'This process was forked from one that had used TensorFlow, in which '
      'TensorFlow hangs: start a new process instead, as with '
      'multiprocessing\'s "spawn", and create a context there.'
    )


def _check_devices(names: Sequence[str] | None) -> list[str]:
  """Returns the full names of devices; by default all GPUs, or else the CPU."""
  known = [device.name for device in tf.config.list_logical_devices()]
  short = {name.rpartition('device:')[2]: name for name in known}
  if names is None:
    gpus = [name for name in short if name.startswith('GPU')]
    return [short[name] for name in gpus] or [short['CPU:0']]
  if isinstance(names, str) or not names:
    raise ValueError(
      f'`devices` must be a list of device names, got {names!r}; this'
      f' process has {", ".join(short)}.'
    )
  chosen = []
  for name in names:
    key = name.rpartition('device:')[2].lstrip('/').upper()
    if name not in known and key not in short:
      raise ValueError(
        f'There is no device {name!r}; this process has {", ".join(short)}.'
      )
    chosen.append(name if name in known else short[key])
  return chosen


def _default_concurrency(devices: Sequence[str]) -> int:
  """Returns the default number of clients at once: cores, or four per GPU.

  Launching a step's kernels takes longer than running them on a GPU: by
  results/gpu_readiness/costs.csv two to four clients keep a GPU busy, except
  with the largest models, which cost no more with several. Each client needs a
  core to launch from, so there are never more clients than cores.
  """
  cores = len(machine.cores())
  gpus = sum('GPU' in device for device in devices)
  if not gpus:
    return max(1, cores)
  return max(1, min(_CLIENTS_A_GPU * gpus, cores))


def threads_per_operation() -> int:
  """Returns the number of threads of an operation; 0 for one per core."""
  chosen = tf.config.threading.get_intra_op_parallelism_threads()
  return chosen or int(os.environ.get('TF_NUM_INTRAOP_THREADS', 0))
