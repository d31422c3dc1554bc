"""This process's connection to a Ray cluster."""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import ray

from tff_adaptive.runtime import failures
from tff_adaptive.runtime.cluster import requirements

_SECONDS_TO_ANSWER = 5.0


def connect(address: str) -> bool:
  """Connects to a Ray cluster unless this process is already connected.

  Args:
    address: `auto` for the cluster of RAY_ADDRESS, else the one on this
      machine, which is started if there is none; or `host:port` of the
      cluster's head.

  Returns:
    Whether this call made the connection.

  Raises:
    ValueError: If the address is malformed.
    WorkerFailure: If no cluster answers at the address.
  """
  named = address
  if address == 'auto':
    named = os.environ.get('RAY_ADDRESS') or address
  if not requirements.is_address(named):
    raise ValueError(
      "`address` must be 'auto' or host:port of a Ray cluster's head, such as"
      f' 10.0.0.2:6379, got {named!r}.'
    )
  if ray.is_initialized():
    there = ray.get_runtime_context().gcs_address
    if address not in ('auto', there):
      raise ValueError(
        f'This process is connected to the Ray cluster at {there}; call '
        f'`ray.shutdown()` before connecting to {address}.'
      )
    return False
  if named != 'auto':
    # Ray itself would retry for minutes.
    host, _, port = named.rpartition(':')
    try:
      socket.create_connection(
        (host.strip('[]'), int(port)), _SECONDS_TO_ANSWER
      ).close()
    except OSError as e:
      raise _unreachable(named, e.strerror or str(e)) from e
  quiet: Any = dict(log_to_driver=False, logging_level=logging.WARNING)
  try:
    with _own_handlers():
      try:
        ray.init(named, **quiet)
      except ConnectionError:
        if named != 'auto':
          raise
        print('Starting a Ray cluster on this machine ...', file=sys.stderr)
        ray.init('local', include_dashboard=False, **quiet)
  except (ConnectionError, RuntimeError, SystemExit) as e:
    raise _unreachable(named, str(e).strip().partition('\n')[0]) from e
  return True


def _unreachable(address: str, reason: str) -> failures.WorkerFailure:
  return failures.WorkerFailure(
    f'No Ray cluster answers at {address} ({reason.rstrip(".")}): start one '
    "with `ray start --head`, and check the address, the firewall, and Ray's "
    'token and TLS settings.'
  )


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
  """Keeps Ray from replacing the handler of SIGTERM, which saves the run."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  before = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before)
