"""Connections to this machine as a worker, each with a process of its own.

A trainer's connection is passed on, byte by byte, to a process that speaks
TFF's protocol and computes (`server.py`). The connection's end, for whatever
reason, is the end of the process, and of all that it held and computed. This
process has no TensorFlow in it, so nothing that a trainer sends keeps it from
ending others. It also is where TLS ends: who has no certificate gets no
process.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from collections.abc import Callable
from collections.abc import Coroutine
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
from typing import Any
from typing import TypeAlias

import grpc
from absl import logging

from tff_adaptive.runtime import failures
from tff_adaptive.runtime.workers import spawner

_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# What every connection of gRPC's begins with: HTTP/2's preface.
_PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
_SECONDS_TO_BEGIN = 20.0
_SECONDS_TO_START = 120.0
_POLL_SECONDS = 0.5
_CHUNK = 1 << 20
# A machine that fell off the network is noticed after a minute.
_KEEPALIVE = (
  (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
  (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
  (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
  (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
  (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)


def tls(
  certificate: str, private_key: str, trainer_certificate: str | None
) -> ssl.SSLContext:
  """Reads TLS credentials from files.

  Raises:
    OSError: If certificate and key do not fit.
  """
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  context.set_alpn_protocols(['h2'])
  try:
    context.load_cert_chain(certificate, private_key)
    if trainer_certificate is not None:
      context.load_verify_locations(trainer_certificate)
      context.verify_mode = ssl.CERT_REQUIRED
      # One that is trusted itself needs nobody who signed it.
      context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
  except ssl.SSLError as e:
    raise OSError(
      f'{certificate}, {private_key} and what else TLS needs do not fit each'
      f' other: {e.reason or e}.'
    ) from e
  return context


class Spawner:
  """The process that forks one for each connection; see `spawner.py`."""

  def __init__(self, settings: Mapping[str, Any]):
    """Starts it.

    Args:
      settings: What `spawner.main` takes.
    """
    self._control, theirs = socket.socketpair(
      socket.AF_UNIX, socket.SOCK_SEQPACKET
    )
    with theirs:
      self._process = subprocess.Popen(
        [sys.executable, '-m', spawner.__name__, json.dumps(settings)],
        stdin=theirs.fileno(),
        # Ctrl-C in a terminal is for the worker, which ends this one.
        start_new_session=True,
      )
    self._control.setblocking(False)

  async def wait_until_ready(self) -> None:
    """Waits until TensorFlow is imported and the settings were tried.

    Raises:
      ValueError: If the engine does not take the settings.
      WorkerFailure: If the process ended.
    """
    said = await _receive(self._control)
    if said != spawner.READY:
      raise failures.WorkerFailure(
        'The process that computes did not start; what it printed says why.'
      )
    with self._fork(spawner.TRY) as lifeline:
      said = await _receive(lifeline)
    if said != spawner.READY:
      raise ValueError(said.decode() or 'The engine did not start.')

  @contextlib.contextmanager
  def _fork(self, message: bytes) -> Iterator[socket.socket]:
    """Has a process forked, which lives no longer than the block."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
      ours.setblocking(False)
      with theirs:
        socket.send_fds(self._control, [message], [theirs.fileno()])
      yield ours

  @contextlib.asynccontextmanager
  async def connection(self) -> AsyncIterator[_Streams]:
    """Connects to a new process, which ends with the block.

    Raises:
      OSError: If it did not start.
    """
    with self._fork(spawner.SERVE) as lifeline:
      async with asyncio.timeout(_SECONDS_TO_START):
        said = await _receive(lifeline)
      if not said.startswith(spawner.SERVING):
        raise OSError(said.decode() or 'the process that computes has ended')
      folder = os.fsdecode(said.removeprefix(spawner.SERVING))
      place = os.open(folder, os.O_DIRECTORY)
      try:
        reader, writer = await asyncio.open_unix_connection(
          f'/proc/self/fd/{place}/{spawner.SOCKET_NAME}', limit=_CHUNK
        )
      finally:
        os.close(place)
        shutil.rmtree(folder)
      try:
        yield reader, writer
      finally:
        writer.close()

  async def wait(self) -> None:
    """Waits until the process ends, which it only does when something broke."""
    await _receive(self._control)

  def close(self) -> None:
    """Ends it and all that it forked."""
    self._control.close()
    try:
      self._process.wait(timeout=2.0)
    except subprocess.TimeoutExpired:
      self._process.kill()  # The kernel then kills what it forked.
      self._process.wait()


async def _receive(connected: socket.socket) -> bytes:
  """Waits for a message; empty if the other side has ended."""
  loop = asyncio.get_running_loop()
  try:
    return await loop.sock_recv(connected, spawner.MAX_MESSAGE)
  except ConnectionError:
    return b''


class Relay:
  """A server that passes each connection on to a process of its own."""

  def __init__(self, processes: Spawner, max_connections: int):
    """Passes on nothing yet.

    Args:
      processes: Where the processes come from.
      max_connections: How many there may be at once.
    """
    self._processes = processes
    self._max_connections = max_connections
    self._open = 0
    self._refusals: tuple[grpc.Server, int] | None = None

  async def start(
    self, host: str, port: int, tls_context: ssl.SSLContext | None
  ) -> asyncio.Server:
    """Starts to accept connections.

    Raises:
      OSError: If the address cannot be listened on.
    """
    try:
      return await asyncio.start_server(
        self._serve, host.strip('[]'), port, ssl=tls_context, limit=_CHUNK
      )
    except OSError as e:
      raise OSError(
        f'Cannot listen on {host}:{port}: the port is taken, or this machine'
        f' does not have the address ({e.strerror or e}).'
      ) from e

  async def _serve(
    self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
  ) -> None:
    """Serves one connection to its end."""
    peer = writer.get_extra_info('peername')
    with contextlib.suppress(
      ConnectionError, TimeoutError, asyncio.IncompleteReadError
    ):
      try:
        for option in _KEEPALIVE:
          writer.get_extra_info('socket').setsockopt(*option)
        async with asyncio.timeout(_SECONDS_TO_BEGIN):
          begin = await reader.readexactly(len(_PREFACE))
        if begin != _PREFACE:
          return
        if self._open >= self._max_connections:
          await self._refuse(reader, writer, begin)
          return
        self._open += 1
        try:
          async with self._processes.connection() as process:
            await _pass_on((reader, writer), process, begin)
        except OSError as e:
          logging.error('The connection from %s was not served: %s.', peer, e)
        finally:
          self._open -= 1
      finally:
        writer.close()

  async def _refuse(
    self,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    begin: bytes,
  ) -> None:
    """Connects to a server that answers each call with the reason."""
    if self._refusals is None:
      self._refusals = _start_refusals(
        f'this worker has {self._max_connections} connections, its limit'
        ' (--max_connections)'
      )
    _, port = self._refusals
    refusals = await asyncio.open_connection('127.0.0.1', port)
    try:
      await _pass_on((reader, writer), refusals, begin)
    finally:
      refusals[1].close()


def _start_refusals(reason: str) -> tuple[grpc.Server, int]:
  """Starts a server that refuses every call, and says why."""

  def refuse(request: bytes, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)

  class Handler(grpc.GenericRpcHandler):
    def service(
      self, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler:
      return grpc.unary_unary_rpc_method_handler(refuse)

  server = grpc.server(futures.ThreadPoolExecutor(1))
  server.add_generic_rpc_handlers((Handler(),))
  port = server.add_insecure_port('127.0.0.1:0')
  server.start()
  return server, port


async def _pass_on(trainer: _Streams, other: _Streams, begin: bytes) -> None:
  """Passes bytes both ways until either side ends.

  Args:
    trainer: A connection.
    other: Who answers it.
    begin: What was read of it already.
  """
  other[1].write(begin)
  ways = [
    asyncio.create_task(_copy(trainer[0], other[1])),
    asyncio.create_task(_copy(other[0], trainer[1])),
  ]
  try:
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
  finally:
    for way in ways:
      way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)


async def _copy(
  reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
  """Passes bytes on until there are no more."""
  while data := await reader.read(_CHUNK):
    writer.write(data)
    await writer.drain()


def serve(
  settings: Mapping[str, Any],
  *,
  host: str,
  port: int,
  credentials: ssl.SSLContext | None,
  max_connections: int,
  goes_on: Callable[[float], bool],
  announce: Callable[[int], None],
) -> None:
  """Serves connections as long as the service goes on.

  Args:
    settings: What `spawner.main` takes.
    host: Network interface to listen on.
    port: Port to listen on; 0 picks a free one.
    credentials: As `tls` reads them; `None` means no TLS.
    max_connections: How many there may be at once.
    goes_on: Waits some seconds and says whether the service goes on.
    announce: Called with the port once it can be reached.

  Raises:
    ValueError: If the engine does not take the settings.
    OSError: If the address cannot be listened on.
    WorkerFailure: If the process that forks the others ends.
  """
  asyncio.run(
    _serve(
      settings, host, port, credentials, max_connections, goes_on, announce
    )
  )


async def _serve(
  settings: Mapping[str, Any],
  host: str,
  port: int,
  credentials: ssl.SSLContext | None,
  max_connections: int,
  goes_on: Callable[[float], bool],
  announce: Callable[[int], None],
) -> None:
  """Does what `serve` says."""
  processes = Spawner(settings)
  try:
    if not await _done(processes.wait_until_ready(), goes_on):
      return
    relay = Relay(processes, max_connections)
    server = await relay.start(host, port, credentials)
    announce(server.sockets[0].getsockname()[1])
    if await _done(processes.wait(), goes_on):
      raise failures.WorkerFailure(
        'The process that starts those of connections has ended; what it'
        ' printed says why.'
      )
    server.close()
  finally:
    # What is being computed ends, too: no trainer waits for this worker.
    processes.close()


async def _done(
  work: Coroutine[Any, Any, None], goes_on: Callable[[float], bool]
) -> bool:
  """Waits for something while the service goes on; whether it has happened."""
  task = asyncio.create_task(work)
  while not task.done() and goes_on(0):
    await asyncio.wait([task], timeout=_POLL_SECONDS)
  if not task.done():
    task.cancel()
    return False
  task.result()
  return True
