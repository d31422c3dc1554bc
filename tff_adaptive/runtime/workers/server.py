"""TFF's executor protocol, served on the in-process engine."""

import itertools
import os
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any
from typing import TypeVar

import grpc
import tensorflow_federated as tff
from absl import logging

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import engine as engine_lib
from tff_adaptive.runtime.tff_names import executor_pb2
from tff_adaptive.runtime.workers import limits
from tff_adaptive.runtime.workers import process as process_lib
from tff_adaptive.runtime.workers import stub as stub_lib

_Response = TypeVar('_Response')

MAX_CALLS = 32
_MAX_EXECUTORS = 1000
_MAX_CLIENTS = 1_000_000
_POLL_SECONDS = 0.5
_SECONDS_TO_ANSWER = 1.0


class _Executor:
  """The values of one executor, until they are disposed of.

  Attributes:
    num_clients: Size of the cohort of computations whose arguments do not show
      it.
    values: By the ids that clients of the protocol know them by.
  """

  def __init__(self, num_clients: int):
    self.num_clients = num_clients
    self.values: dict[str, limits.Held] = {}


class ExecutorService(tff_names.ExecutorGroupServicer):
  """TFF's executor protocol on the in-process engine.

  A call runs at once and to its end, so that a peer's load is bounded by its
  own calls. TensorFlow ends no op that does not end by itself: where nobody
  waits for a call any more, or it takes too much memory, the process has to
  end.
  """

  def __init__(
    self,
    engine: engine_lib.Engine,
    *,
    end_process: Callable[[], None],
    max_bytes: int | None = None,
  ):
    """Serves an engine.

    Args:
      engine: Runs the computations.
      end_process: Called when a computation has to be ended.
      max_bytes: What the values may take, and by how much this process may
        grow; half of the machine's memory unless given.
    """
    self._engine = engine
    self._end_process = end_process
    self._max_bytes = max_bytes or limits.half_of_memory()
    self._account = limits.Account(self._max_bytes)
    self._resident = process_lib.resident_bytes(os.getpid())
    self._lock = threading.Lock()
    self._ids = itertools.count()
    self._executors: dict[str, _Executor] = {}
    self._calls = futures.ThreadPoolExecutor(
      MAX_CALLS, thread_name_prefix='tff_call'
    )

  def GetExecutor(
    self,
    request: executor_pb2.GetExecutorRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.GetExecutorResponse:
    try:
      cardinalities = tff_names.deserialize_cardinalities(request.cardinalities)
    except (KeyError, ValueError) as e:
      context.abort(
        grpc.StatusCode.INVALID_ARGUMENT, f'There is no such placement: {e}.'
      )
    num_clients = cardinalities.get(tff.CLIENTS, 0)
    if not 0 <= num_clients <= _MAX_CLIENTS:
      context.abort(
        grpc.StatusCode.INVALID_ARGUMENT,
        f'A cohort has 0 to {_MAX_CLIENTS:,} clients, got {num_clients}.',
      )
    name = str(next(self._ids))
    with self._lock:
      full = len(self._executors) >= _MAX_EXECUTORS
      if not full:
        self._executors[name] = _Executor(num_clients)
    if full:
      context.abort(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f'One connection may have {_MAX_EXECUTORS:,} executors.',
      )
    return executor_pb2.GetExecutorResponse(
      executor=executor_pb2.ExecutorId(id=name)
    )

  def CreateValue(
    self,
    request: executor_pb2.CreateValueRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.CreateValueResponse:
    def create(executor: _Executor) -> limits.Held:
      value, type_spec = tff_names.deserialize_value(request.value)
      return limits.measure(value, type_spec, request.ByteSize())

    return self._create(
      request, context, create, executor_pb2.CreateValueResponse
    )

  def CreateStruct(
    self,
    request: executor_pb2.CreateStructRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.CreateStructResponse:
    def create(executor: _Executor) -> limits.Held:
      return limits.measure_struct(
        (element.name or None, executor.values[element.value_ref.id])
        for element in request.element
      )

    return self._create(
      request, context, create, executor_pb2.CreateStructResponse
    )

  def CreateSelection(
    self,
    request: executor_pb2.CreateSelectionRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.CreateSelectionResponse:
    def create(executor: _Executor) -> limits.Held:
      source = executor.values[request.source_ref.id]
      index = request.index
      if not (
        isinstance(source.type_spec, tff.StructType)
        and 0 <= index < len(source.type_spec)
      ):
        raise ValueError(f'{source.type_spec} has no element {index}.')
      return limits.measure(source.value[index], source.type_spec[index])

    return self._create(
      request, context, create, executor_pb2.CreateSelectionResponse
    )

  def CreateCall(
    self, request: executor_pb2.CreateCallRequest, context: grpc.ServicerContext
  ) -> executor_pb2.CreateCallResponse:
    def create(executor: _Executor) -> limits.Held:
      function = executor.values[request.function_ref.id]
      if not isinstance(function.type_spec, tff.FunctionType):
        raise ValueError(f'A {function.type_spec} cannot be called.')
      argument = None
      if request.HasField('argument_ref') and request.argument_ref.id:
        argument = executor.values[request.argument_ref.id].value
      result = self._engine.run(
        tff_names.computation_from_proto(function.value),
        argument,
        num_clients=executor.num_clients,
        compiled=True,
      )
      return limits.measure(result, function.type_spec.result)

    return self._create(
      request, context, create, executor_pb2.CreateCallResponse
    )

  def Compute(
    self, request: executor_pb2.ComputeRequest, context: grpc.ServicerContext
  ) -> executor_pb2.ComputeResponse:
    def compute(executor: _Executor) -> executor_pb2.ComputeResponse:
      held = executor.values[request.value_ref.id]
      proto, _ = tff.framework.serialize_value(held.value, held.type_spec)
      return executor_pb2.ComputeResponse(value=proto)

    return self._run(request, context, compute)

  def Dispose(
    self, request: executor_pb2.DisposeRequest, context: grpc.ServicerContext
  ) -> executor_pb2.DisposeResponse:
    def dispose(executor: _Executor) -> executor_pb2.DisposeResponse:
      for reference in request.value_ref:
        held = executor.values.pop(reference.id, None)
        if held is not None:
          self._account.remove(held)
      return executor_pb2.DisposeResponse()

    return self._run(request, context, dispose)

  def DisposeExecutor(
    self,
    request: executor_pb2.DisposeExecutorRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.DisposeExecutorResponse:
    with self._lock:
      executor = self._executors.pop(request.executor.id, None)
    while executor is not None and executor.values:
      self._account.remove(executor.values.popitem()[1])
    return executor_pb2.DisposeExecutorResponse()

  def _create(
    self,
    request: Any,
    context: grpc.ServicerContext,
    create: Callable[[_Executor], limits.Held],
    response: Callable[..., _Response],
  ) -> _Response:
    """Adds the value that `create` returns to the request's executor."""

    def work(executor: _Executor) -> _Response:
      created = create(executor)
      self._account.add(created)
      name = str(next(self._ids))
      executor.values[name] = created
      return response(value_ref=executor_pb2.ValueRef(id=name))

    return self._run(request, context, work)

  def _run(
    self,
    request: Any,
    context: grpc.ServicerContext,
    work: Callable[[_Executor], _Response],
  ) -> _Response:
    """Runs `work` on the request's executor; failures become gRPC statuses."""
    with self._lock:
      executor = self._executors.get(request.executor.id)
    if executor is None:
      context.abort(
        grpc.StatusCode.FAILED_PRECONDITION,
        f'There is no executor {request.executor.id!r}; the worker was'
        ' restarted.',
      )
    assert executor is not None  # abort() does not return.
    call = self._calls.submit(work, executor)
    try:
      self._wait(call, context)
      return call.result()
    except failures.UnsupportedComputationError as e:
      context.abort(grpc.StatusCode.UNIMPLEMENTED, str(e))
    except limits.LimitError as e:
      context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(e))
    except KeyError as e:
      context.abort(grpc.StatusCode.INVALID_ARGUMENT, f'There is no value {e}.')
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The boundary of the process: the caller must learn what happened here.
      logging.exception('A computation failed.')
      context.abort(grpc.StatusCode.INTERNAL, f'{type(e).__name__}: {e}')
    raise AssertionError('abort() returned')

  def _wait(
    self, call: futures.Future[Any], context: grpc.ServicerContext
  ) -> None:
    """Waits for a call's end, and ends the process if it must not go on.

    Raises:
      LimitError: If the process has grown too large; it ends once the caller
        was told.
    """
    while not futures.wait([call], timeout=_POLL_SECONDS).done:
      if not context.is_active():
        # The caller hung up, or the deadline that it set has passed.
        self._end_process()
        return
      grown = process_lib.resident_bytes(os.getpid()) - self._resident
      if grown > self._max_bytes:
        threading.Timer(_SECONDS_TO_ANSWER, self._end_process).start()
        raise limits.LimitError(
          'What one connection does on this worker may take'
          f' {self._max_bytes >> 20:,} MiB (--connection_mib), and it takes'
          f' {grown >> 20:,}: lower the number of concurrent clients or the'
          ' size of the model, or raise the limit.'
        )


def start_server(
  service: ExecutorService, target: str
) -> tuple[grpc.Server, int]:
  """Starts to serve without TLS.

  Args:
    service: Answers the calls.
    target: What gRPC shall listen on, such as 127.0.0.1:0 or unix:PATH.

  Returns:
    The server and its port, if it has one.
  """
  server = grpc.server(
    futures.ThreadPoolExecutor(MAX_CALLS, thread_name_prefix='tff_worker'),
    options=stub_lib.CHANNEL_OPTIONS,
  )
  tff_names.add_executor_service(service, server)
  port = server.add_insecure_port(target)
  server.start()
  return server, port
