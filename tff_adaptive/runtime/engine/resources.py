"""What clients run on: the threads, devices and memory of this process."""

import concurrent.futures
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tensorflow as tf

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names


class Resources:
  """Threads, devices and memory, and how long aggregation took on them.

  Attributes:
    max_concurrent_clients: Clients that run at once.
    devices: Names of the devices that clients are spread over.
    server_device: The name of the server's; empty for TensorFlow's own choice,
      the first GPU for what has a kernel there.
    aggregation_seconds: Spent until now on adding up what clients sent and on
      what the server computes.
  """

  def __init__(
    self,
    max_concurrent_clients: Optional[int] = None,
    devices: Optional[Sequence[str]] = None,
  ):
    """See `tff_adaptive.runtime.create_in_process_context`."""
    if max_concurrent_clients is not None and max_concurrent_clients < 1:
      raise ValueError(
        '`max_concurrent_clients` must be at least 1 or None (chosen from'
        f' cores and devices), got {max_concurrent_clients!r}.'
      )
    tff_names.spare_datasets_the_optimizer()
    self.devices = _check_devices(devices)
    self.server_device = ''
    self._automatic = max_concurrent_clients is None
    if max_concurrent_clients is None:
      max_concurrent_clients = _default_concurrency(self.devices)
    self.max_concurrent_clients = max_concurrent_clients
    self._pool = concurrent.futures.ThreadPoolExecutor(
      max_concurrent_clients, thread_name_prefix='tff_client'
    )
    self.aggregation_seconds = 0.0
    self._lock = threading.Lock()

  def submit(self, function: Any, *arguments: Any) -> concurrent.futures.Future:
    """Has a client's thread call a function.

    Raises:
      RuntimeFailure: If the threads were ended.
    """
    try:
      return self._pool.submit(function, *arguments)
    except RuntimeError as e:
      raise failures.RuntimeFailure(
        'This in-process context was closed; call set_in_process_context again.'
      ) from e

  @contextlib.contextmanager
  def aggregating(self) -> Iterator[Any]:
    """What happens inside counts as aggregation."""
    start = time.perf_counter()
    yield
    with self._lock:
      self.aggregation_seconds += time.perf_counter() - start

  def threads_for(self, shared_bytes: int) -> int:
    """Clients that may run at once, given what each copies at least.

    Args:
      shared_bytes: Size of what the server sends to each client.
    """
    if not self._automatic or not shared_bytes:
      return self.max_concurrent_clients
    # Weights, gradient, update, optimizer state and temporaries.
    room = _available_memory() // (2 * 6 * shared_bytes)
    return max(1, min(self.max_concurrent_clients, room))

  def close(self) -> None:
    """Ends the threads."""
    self._pool.shutdown(wait=False, cancel_futures=True)


def _check_devices(names: Optional[Sequence[str]]) -> list[str]:
  """Full names of the devices asked for; by default all GPUs, else the CPU."""
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
  cores = len(os.sched_getaffinity(0))
  gpus = sum('GPU' in device for device in devices)
  if not gpus:
    return max(1, cores)
  # A second client per GPU hides the gaps between a client's kernels.
  return max(1, min(2 * gpus, cores))


def _available_memory() -> int:
  with open('/proc/meminfo', encoding='ascii') as file:
    for line in file:
      if line.startswith('MemAvailable:'):
        return int(line.split()[1]) * 1024
  return 1 << 62
