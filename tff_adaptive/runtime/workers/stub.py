"""A gRPC stub of TFF's executor service that detects a silent peer.

TFF's own stub has no timeout: a stopped worker blocks the program for ever. A
timeout of calls would not do, because a round may take hours. So during a call
this stub pings the peer (by a method that no server implements, which any gRPC
server rejects at once) and fails if there is no answer for a given time.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import tensorflow_federated as tff

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.tff_names import executor_pb2

_PING = '/tff_adaptive.runtime.Liveness/Ping'
_UNREACHABLE = frozenset(
  {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    # The worker was restarted and does not know the executor.
    grpc.StatusCode.FAILED_PRECONDITION,
  }
)


def open_channel(address: str) -> grpc.Channel:
  """Opens a channel to `host:port` on this machine."""
  options = [
    ('grpc.max_receive_message_length', -1),  # Unlimited.
    ('grpc.max_send_message_length', -1),
    # A configured web proxy would otherwise receive calls to this machine too,
    # and the program would wait for an unreachable worker.
    ('grpc.enable_http_proxy', 0),
  ]
  return grpc.insecure_channel(address, options)


class GuardedStub(tff.framework.RemoteExecutorStub):
  """A `tff.framework.RemoteExecutorStub` whose calls end in finite time."""

  def __init__(
    self,
    channel: grpc.Channel,
    address: str,
    *,
    silence_timeout: float,
    explain: Callable[[], str],
  ):
    """Wraps `channel`.

    Args:
      channel: An open channel.
      address: The peer's address, for error messages.
      silence_timeout: Seconds without an answer to pings after which calls
        fail.
      explain: Called if the peer is unreachable; returns a sentence about its
        end for the error message.
    """
    self._channel = channel
    self._address = address
    self._silence_timeout = silence_timeout
    self._explain = explain
    self._stub = tff_names.ExecutorGroupStub(channel)
    self._ping = channel.unary_unary(
      _PING, request_serializer=bytes, response_deserializer=bytes
    )
    self._lock = threading.Lock()
    self._calls: set[grpc.Future] = set()
    self._closed = False

  def is_alive(self, timeout: float) -> bool:
    """Returns whether the peer answers within `timeout` seconds."""
    try:
      self._ping(b'', timeout=timeout)
    except grpc.RpcError as e:
      return e.code() == grpc.StatusCode.UNIMPLEMENTED
    return True

  def close(self) -> None:
    """Cancels pending calls and makes later calls fail."""
    with self._lock:
      self._closed = True
      calls = list(self._calls)
    for call in calls:
      call.cancel()
    self._channel.close()

  def _call(self, name: str, request: Any) -> Any:
    """Calls a method of the service by name."""
    with self._lock:
      if self._closed:
        raise failures.WorkerFailure(
          f'The connection to the worker at {self._address} was closed.',
          self._address,
        )
      call = getattr(self._stub, name).future(request)
      self._calls.add(call)
    try:
      return self._wait(call)
    except (grpc.RpcError, grpc.FutureCancelledError) as e:
      raise self._failure(e) from e
    finally:
      with self._lock:
        self._calls.discard(call)

  def _wait(self, call: grpc.Future) -> Any:
    """Waits for the result as long as the peer answers pings."""
    interval = min(5.0, self._silence_timeout / 4)
    last_sign = time.monotonic()
    while True:
      try:
        return call.result(timeout=interval)
      except grpc.FutureTimeoutError:
        pass  # Still running; ping the peer.
      if self.is_alive(interval):
        last_sign = time.monotonic()
      elif time.monotonic() - last_sign > self._silence_timeout:
        if call.done():
          return call.result()
        call.cancel()
        # Later calls fail at once instead of waiting as long again.
        with self._lock:
          self._closed = True
        raise failures.WorkerFailure(
          f'The worker at {self._address} has not answered for'
          f' {self._silence_timeout:g} s. {self._explain()}'.strip(),
          self._address,
        )

  def _failure(self, error: Exception) -> failures.RuntimeFailure:
    """Converts a gRPC error to one with an explanation."""
    if isinstance(error, grpc.FutureCancelledError):
      code, details = grpc.StatusCode.CANCELLED, 'the call was cancelled'
    else:
      # gRPC's errors are also calls, which their type does not declare.
      call: Any = error
      code, details = call.code(), call.details()
    if code in _UNREACHABLE:
      return failures.WorkerFailure(
        f'The worker at {self._address} failed during a computation'
        f' ({details}). {self._explain()}'.strip(),
        self._address,
      )
    return failures.RuntimeFailure(
      f'The worker at {self._address} reported {code.name}: {details}'
    )

  def get_executor(
    self, request: executor_pb2.GetExecutorRequest
  ) -> executor_pb2.GetExecutorResponse:
    return self._call('GetExecutor', request)

  def create_value(
    self, request: executor_pb2.CreateValueRequest
  ) -> executor_pb2.CreateValueResponse:
    return self._call('CreateValue', request)

  def create_struct(
    self, request: executor_pb2.CreateStructRequest
  ) -> executor_pb2.CreateStructResponse:
    return self._call('CreateStruct', request)

  def create_call(
    self, request: executor_pb2.CreateCallRequest
  ) -> executor_pb2.CreateCallResponse:
    return self._call('CreateCall', request)

  def create_selection(
    self, request: executor_pb2.CreateSelectionRequest
  ) -> executor_pb2.CreateSelectionResponse:
    return self._call('CreateSelection', request)

  def compute(
    self, request: executor_pb2.ComputeRequest
  ) -> executor_pb2.ComputeResponse:
    return self._call('Compute', request)

  def dispose(
    self, request: executor_pb2.DisposeRequest
  ) -> executor_pb2.DisposeResponse:
    # Called by finalizers. A worker that ended holds no values, and the next
    # call that needs it raises the error.
    try:
      return self._call('Dispose', request)
    except failures.WorkerFailure:
      return executor_pb2.DisposeResponse()

  def dispose_executor(
    self, request: executor_pb2.DisposeExecutorRequest
  ) -> executor_pb2.DisposeExecutorResponse:
    try:
      return self._call('DisposeExecutor', request)
    except failures.WorkerFailure:
      return executor_pb2.DisposeExecutorResponse()
