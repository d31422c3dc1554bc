"""TFF's executor protocol, served on the in-process engine."""

import itertools
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any
from typing import TypeAlias
from typing import TypeVar

import grpc
import tensorflow_federated as tff
from absl import logging

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import engine as engine_lib
from tff_adaptive.runtime.engine import values as values_lib
from tff_adaptive.runtime.tff_names import executor_pb2
from tff_adaptive.runtime.workers import arguments
from tff_adaptive.runtime.workers import stub as stub_lib

# A Python value, or the message of a computation, and its type.
_Value: TypeAlias = tuple[values_lib.PythonValue, tff.Type]
_Response = TypeVar('_Response')


class _Executor:
  """The values of one executor, until they are disposed of.

  Attributes:
    num_clients: Size of the cohort of computations whose arguments do not show
      it.
    values: By the ids that clients of the protocol know them by.
  """

  def __init__(self, num_clients: int):
    self.num_clients = num_clients
    self.values: dict[str, _Value] = {}


class ExecutorService(tff_names.ExecutorGroupServicer):
  """TFF's executor protocol on the in-process engine.

  A call runs at once and to its end, so that a peer's load is bounded by its
  own calls.
  """

  def __init__(self, engine: engine_lib.Engine):
    self._engine = engine
    self._lock = threading.Lock()
    self._ids = itertools.count()
    self._executors: dict[str, _Executor] = {}

  def GetExecutor(
    self,
    request: executor_pb2.GetExecutorRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.GetExecutorResponse:
    cardinalities = tff_names.deserialize_cardinalities(request.cardinalities)
    name = str(next(self._ids))
    with self._lock:
      self._executors[name] = _Executor(cardinalities.get(tff.CLIENTS, 0))
    return executor_pb2.GetExecutorResponse(
      executor=executor_pb2.ExecutorId(id=name)
    )

  def CreateValue(
    self,
    request: executor_pb2.CreateValueRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.CreateValueResponse:
    def create(executor: _Executor) -> _Value:
      return tff_names.deserialize_value(request.value)

    return self._create(
      request, context, create, executor_pb2.CreateValueResponse
    )

  def CreateStruct(
    self,
    request: executor_pb2.CreateStructRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.CreateStructResponse:
    def create(executor: _Executor) -> _Value:
      elements, types = [], []
      for element in request.element:
        value, type_spec = executor.values[element.value_ref.id]
        name = element.name or None
        elements.append((name, value))
        types.append((name, type_spec))
      return tff_names.Struct(elements), tff.StructType(types)

    return self._create(
      request, context, create, executor_pb2.CreateStructResponse
    )

  def CreateSelection(
    self,
    request: executor_pb2.CreateSelectionRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.CreateSelectionResponse:
    def create(executor: _Executor) -> _Value:
      value, type_spec = executor.values[request.source_ref.id]
      return value[request.index], type_spec[request.index]

    return self._create(
      request, context, create, executor_pb2.CreateSelectionResponse
    )

  def CreateCall(
    self, request: executor_pb2.CreateCallRequest, context: grpc.ServicerContext
  ) -> executor_pb2.CreateCallResponse:
    def create(executor: _Executor) -> _Value:
      proto, type_spec = executor.values[request.function_ref.id]
      argument = None
      if request.HasField('argument_ref') and request.argument_ref.id:
        argument, _ = executor.values[request.argument_ref.id]
      result = self._engine.run(
        tff_names.computation_from_proto(proto),
        argument,
        num_clients=executor.num_clients,
        compiled=True,
      )
      return result, type_spec.result

    return self._create(
      request, context, create, executor_pb2.CreateCallResponse
    )

  def Compute(
    self, request: executor_pb2.ComputeRequest, context: grpc.ServicerContext
  ) -> executor_pb2.ComputeResponse:
    def compute(executor: _Executor) -> executor_pb2.ComputeResponse:
      value, type_spec = executor.values[request.value_ref.id]
      proto, _ = tff.framework.serialize_value(value, type_spec)
      return executor_pb2.ComputeResponse(value=proto)

    return self._run(request, context, compute)

  def Dispose(
    self, request: executor_pb2.DisposeRequest, context: grpc.ServicerContext
  ) -> executor_pb2.DisposeResponse:
    def dispose(executor: _Executor) -> executor_pb2.DisposeResponse:
      for reference in request.value_ref:
        executor.values.pop(reference.id, None)
      return executor_pb2.DisposeResponse()

    return self._run(request, context, dispose)

  def DisposeExecutor(
    self,
    request: executor_pb2.DisposeExecutorRequest,
    context: grpc.ServicerContext,
  ) -> executor_pb2.DisposeExecutorResponse:
    with self._lock:
      self._executors.pop(request.executor.id, None)
    return executor_pb2.DisposeExecutorResponse()

  def _create(
    self,
    request: Any,
    context: grpc.ServicerContext,
    create: Callable[[_Executor], _Value],
    response: Callable[..., _Response],
  ) -> _Response:
    """Adds the value that `create` returns to the request's executor."""

    def work(executor: _Executor) -> _Response:
      created = create(executor)
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
    try:
      return work(executor)
    except failures.UnsupportedComputationError as e:
      context.abort(grpc.StatusCode.UNIMPLEMENTED, str(e))
    except KeyError as e:
      context.abort(grpc.StatusCode.INVALID_ARGUMENT, f'There is no value {e}.')
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The boundary of the process: the caller must learn what happened here.
      logging.exception('A computation failed.')
      context.abort(grpc.StatusCode.INTERNAL, f'{type(e).__name__}: {e}')
    raise AssertionError('abort() returned')


def server_credentials(
  certificate: str | None,
  private_key: str | None,
  trainer_certificate: str | None,
) -> grpc.ServerCredentials | None:
  """Reads TLS credentials from files; `None` without a certificate.

  Args:
    certificate: As `serve_worker` takes it.
    private_key: As `serve_worker` takes it.
    trainer_certificate: As `serve_worker` takes it.
  """
  if certificate is None or private_key is None:
    return None
  trusted = None
  if trainer_certificate is not None:
    trusted = arguments.read_pem(trainer_certificate, 'trainer_certificate')
  return grpc.ssl_server_credentials(
    [
      (
        arguments.read_pem(private_key, 'private_key'),
        arguments.read_pem(certificate, 'certificate'),
      )
    ],
    root_certificates=trusted,
    require_client_auth=trusted is not None,
  )


def start_server(
  engine: engine_lib.Engine,
  *,
  port: int,
  bind_address: str,
  credentials: grpc.ServerCredentials | None,
) -> tuple[grpc.Server, int]:
  """Starts to serve an engine.

  Args:
    engine: Runs the computations.
    port: Port to listen on; 0 picks a free one.
    bind_address: Network interface to listen on.
    credentials: TLS credentials; `None` means no TLS.

  Returns:
    The server and its port.

  Raises:
    OSError: If the address cannot be listened on.
  """
  server = grpc.server(
    futures.ThreadPoolExecutor(32, thread_name_prefix='tff_worker'),
    options=[*stub_lib.CHANNEL_OPTIONS, ('grpc.so_reuseport', 0)],
  )
  tff_names.add_executor_service(ExecutorService(engine), server)
  host = f'[{bind_address}]' if ':' in bind_address else bind_address
  target = f'{host}:{port}'
  cause: Exception | None = None
  try:
    if credentials is None:
      bound = server.add_insecure_port(target)
    else:
      bound = server.add_secure_port(target, credentials)
  except RuntimeError as e:
    bound, cause = 0, e
  if not bound:
    raise OSError(
      f'Cannot listen on {target}: the port is taken, this machine does not'
      ' have the address'
      + (', or certificate and key do not fit.' if credentials else '.')
    ) from cause
  server.start()
  return server, bound
