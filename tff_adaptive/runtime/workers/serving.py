"""This machine as a worker for contexts on other machines.

TFF's own worker program listens on every network interface and has no TLS
(its flags are the port, the size of messages and a bound on concurrent calls).
So the default worker is ours: it speaks the same gRPC protocol, runs
computations on the in-process engine, hence on this machine's GPUs too, listens
where it is told, and takes TLS credentials. Each connection has a process of
its own, which is ended with it (`relay.py`). TFF's program can still be served,
on all interfaces only.
"""

import os
import signal
import threading
import typing
from collections.abc import Callable
from collections.abc import Sequence
from typing import Literal
from typing import TypeAlias

from tff_adaptive.runtime import failures
from tff_adaptive.runtime.workers import arguments

Engine: TypeAlias = Literal['in_process', 'native']
ENGINES: tuple[str, ...] = typing.get_args(Engine)
_POLL_SECONDS = 0.5
_START_SECONDS = 30.0
_MAX_CONNECTIONS = 64


# The flags of the `worker` command are these arguments, with these texts.
def serve_worker(
  port: int,
  *,
  bind_address: str = '127.0.0.1',
  certificate: str | None = None,
  private_key: str | None = None,
  trainer_certificate: str | None = None,
  insecure: bool = False,
  engine: Engine = 'in_process',
  max_concurrent_clients: int | None = None,
  devices: Sequence[str] | None = None,
  max_connections: int | None = None,
  connection_mib: int | None = None,
  end_with_parent: bool = False,
) -> int:
  """Serves this machine to remote contexts until SIGINT or SIGTERM.

  Prints one line, with the address, once it can be reached. Must be called in
  the main thread. Whoever can reach the port can run TensorFlow graphs here,
  which may read and write files: without `trainer_certificate` that is everyone
  in the network.

  Args:
    port: Port to listen on; 0 picks a free one, which is printed.
    bind_address: Network interface to listen on; 0.0.0.0 is every one.
    certificate: File with this worker's certificate chain (PEM); turns TLS on.
    private_key: File with its key (PEM).
    trainer_certificate: File with the certificates of those who may use this
      worker, or of who signed these; nobody else is served.
    insecure: Listen to other machines without TLS, in a network all of whose
      users may run code here.
    engine: What runs the clients: TensorFlow as installed here, on GPUs if
      there are any, or TFF's own worker, which is CPU-only, has no TLS, knows
      no limits of connections, and listens on every interface.
    max_concurrent_clients: Clients that are trained at once; the engine decides
      unless given. It changes no result.
    devices: Devices that the in-process engine spreads clients over, such as
      GPU:0 and GPU:1; all GPUs unless given, or else the CPU.
    max_connections: Connections at once, of which a trainer has one and each
      has a process of its own; 64 unless given. Further ones are refused.
    connection_mib: MiB that one connection may take, for the values that it
      holds and for its computations; half of the machine's memory unless given.
    end_with_parent: End when the process that started this one has ended.

  Returns:
    0, the exit code of the `worker` command.

  Raises:
    ValueError: If an argument is outside its range.
    OSError: If the address cannot be listened on.
    WorkerFailure: If TFF's own worker, or the process that starts those of
      connections, ends.
  """
  if engine not in ENGINES:
    raise ValueError(
      f"`engine` must be 'in_process' or 'native', got {engine!r}."
    )
  if not 0 <= port <= 65535:
    raise ValueError(f'`port` must be between 0 and 65535, got {port!r}.')
  arguments.check_worker_credentials(
    certificate, private_key, trainer_certificate
  )
  only_ours = (certificate, devices, max_connections, connection_mib)
  if engine == 'native' and any(value is not None for value in only_ours):
    raise ValueError(
      "TFF's own worker knows neither TLS nor devices nor limits of"
      " connections; use `engine`='in_process'."
    )
  for name, value in (
    ('max_connections', max_connections),
    ('connection_mib', connection_mib),
  ):
    if value is not None and value < 1:
      raise ValueError(f'`{name}` must be at least 1, got {value!r}.')
  arguments.check_interface(
    bind_address,
    engine=engine,
    encrypted=certificate is not None,
    insecure=insecure,
  )
  # Before the imports, which take seconds: it may have ended then.
  parent = os.getppid() if end_with_parent else None
  if engine == 'native':
    return _serve_native(port, max_concurrent_clients, parent)
  settings = {
    'engine': {
      'max_concurrent_clients': max_concurrent_clients,
      'devices': None if devices is None else list(devices),
    },
    'service': {
      'max_bytes': None if connection_mib is None else connection_mib << 20
    },
  }
  from tff_adaptive.runtime.workers import relay  # pylint: disable=g-import-not-at-top

  credentials = None
  if certificate is not None and private_key is not None:
    credentials = relay.tls(certificate, private_key, trainer_certificate)
  security = 'TLS' if credentials else 'no TLS'
  relay.serve(
    settings,
    host=bind_address,
    port=port,
    credentials=credentials,
    max_connections=max_connections or _MAX_CONNECTIONS,
    goes_on=_handle_signals(parent),
    announce=lambda bound: _announce(bind_address, bound, security),
  )
  return 0


def _serve_native(
  port: int, max_concurrent_clients: int | None, parent: int | None
) -> int:
  """Serves TFF's own worker."""
  # pylint: disable=g-import-not-at-top
  from tff_adaptive.runtime import tff_names
  from tff_adaptive.runtime.workers import process as process_lib

  goes_on = _handle_signals(parent)
  process = process_lib.WorkerProcess(
    tff_names.worker_binary_path(),
    port=port or None,
    max_concurrent_calls=max_concurrent_clients or -1,
  )
  try:
    process.wait_until_it_listens(_START_SECONDS)
    if process.exit_code() is not None:
      raise OSError(f"TFF's worker {process.describe_exit()}.")
    _announce('0.0.0.0', process.port, 'no TLS')
    while goes_on(_POLL_SECONDS):
      if process.exit_code() is not None:
        raise failures.WorkerFailure(
          f"TFF's worker {process.describe_exit()}.", process.address
        )
  finally:
    process.stop()
  return 0


def _handle_signals(parent: int | None) -> Callable[[float], bool]:
  """Makes SIGINT and SIGTERM end the service.

  Args:
    parent: The process whose end ends the service, too.

  Returns:
    A function that waits some seconds and says whether the service goes on.
  """
  stop = threading.Event()
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stop.set())

  def goes_on(seconds: float) -> bool:
    return not stop.wait(seconds) and parent in (None, os.getppid())

  return goes_on


def _announce(host: str, port: int, security: str) -> None:
  """Prints the address; tests and scripts read this line."""
  print(f'Worker listening on {host}:{port} ({security}).', flush=True)
