"""A worker for the remote runtime.

TFF's own worker program listens on every network interface and has no TLS
(its flags are the port, the size of messages and a bound on concurrent calls).
So the default worker is ours: it speaks the same gRPC protocol
(`tensorflow_federated.ExecutorGroup`), runs computations on the in-process
engine, hence on this machine's GPUs too, listens where it is told, and takes
TLS credentials. TFF's program can still be served, on all interfaces only.

Whoever can reach a worker can run TensorFlow graphs on its machine.
"""

import itertools
import os
import signal
import threading
from concurrent import futures
from typing import Any
from typing import Optional

import grpc
import tensorflow_federated as tff
from absl import logging

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import engine as in_process
from tff_adaptive.runtime.workers import arguments
from tff_adaptive.runtime.workers import process as worker
from tff_adaptive.runtime.workers import stub as stub_lib

_POLL_SECONDS = 0.5


class ExecutorService(tff_names.ExecutorGroupServicer):
  """TFF's executor protocol on the in-process engine.

  Values live in numbered executors until they are disposed of. A call runs at
  once and to its end, so that a client's cohort is bounded by its own calls.
  """

  def __init__(self, engine: in_process.Engine):
    self._engine = engine
    self._lock = threading.Lock()
    self._ids = itertools.count()
    self._executors: dict[str, tuple[int, dict[str, Any]]] = {}

  def GetExecutor(self, request: Any, context: Any) -> Any:
    cardinalities = tff_names.deserialize_cardinalities(request.cardinalities)
    name = str(next(self._ids))
    with self._lock:
      self._executors[name] = cardinalities.get(tff.CLIENTS, 0), {}
    return tff_names.executor_pb2.GetExecutorResponse(
      executor=tff_names.executor_pb2.ExecutorId(id=name)
    )

  def CreateValue(self, request: Any, context: Any) -> Any:
    def create(values: Any, num_clients: Any) -> Any:
      return tff_names.deserialize_value(request.value)

    return self._create(
      request, context, create, tff_names.executor_pb2.CreateValueResponse
    )

  def CreateStruct(self, request: Any, context: Any) -> Any:
    def create(values: Any, num_clients: Any) -> Any:
      elements, types = [], []
      for element in request.element:
        value, type_spec = values[element.value_ref.id]
        name = element.name or None
        elements.append((name, value))
        types.append((name, type_spec))
      return tff_names.Struct(elements), tff.StructType(types)

    return self._create(
      request, context, create, tff_names.executor_pb2.CreateStructResponse
    )

  def CreateSelection(self, request: Any, context: Any) -> Any:
    def create(values: Any, num_clients: Any) -> Any:
      value, type_spec = values[request.source_ref.id]
      return value[request.index], type_spec[request.index]

    return self._create(
      request, context, create, tff_names.executor_pb2.CreateSelectionResponse
    )

  def CreateCall(self, request: Any, context: Any) -> Any:
    def create(values: Any, num_clients: Any) -> Any:
      proto, type_spec = values[request.function_ref.id]
      argument = None
      if request.HasField('argument_ref') and request.argument_ref.id:
        argument, _ = values[request.argument_ref.id]
      comp = tff_names.computation_from_proto(proto)
      result = self._engine.run(
        comp, argument, num_clients=num_clients, compiled=True
      )
      return result, type_spec.result

    return self._create(
      request, context, create, tff_names.executor_pb2.CreateCallResponse
    )

  def Compute(self, request: Any, context: Any) -> Any:
    def compute(values: Any, num_clients: Any) -> Any:
      value, type_spec = values[request.value_ref.id]
      proto, _ = tff.framework.serialize_value(value, type_spec)
      return tff_names.executor_pb2.ComputeResponse(value=proto)

    return self._guard(request, context, compute)

  def Dispose(self, request: Any, context: Any) -> Any:
    def dispose(values: Any, num_clients: Any) -> Any:
      for reference in request.value_ref:
        values.pop(reference.id, None)
      return tff_names.executor_pb2.DisposeResponse()

    return self._guard(request, context, dispose)

  def DisposeExecutor(self, request: Any, context: Any) -> Any:
    with self._lock:
      self._executors.pop(request.executor.id, None)
    return tff_names.executor_pb2.DisposeExecutorResponse()

  def _create(
    self, request: Any, context: Any, create: Any, response: Any
  ) -> Any:
    def work(values: Any, num_clients: Any) -> Any:
      created = create(values, num_clients)
      name = str(next(self._ids))
      values[name] = created
      return response(value_ref=tff_names.executor_pb2.ValueRef(id=name))

    return self._guard(request, context, work)

  def _guard(self, request: Any, context: Any, work: Any) -> Any:
    """Runs `work` on an executor's values; failures become gRPC statuses."""
    with self._lock:
      found = self._executors.get(request.executor.id)
    if found is None:
      context.abort(
        grpc.StatusCode.FAILED_PRECONDITION,
        f'There is no executor {request.executor.id!r}; the worker was'
        ' restarted.',
      )
    num_clients, values = found or (0, {})  # abort() does not return.
    try:
      return work(values, num_clients)
    except failures.UnsupportedComputationError as e:
      context.abort(grpc.StatusCode.UNIMPLEMENTED, str(e))
    except KeyError as e:
      context.abort(grpc.StatusCode.INVALID_ARGUMENT, f'There is no value {e}.')
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The boundary of the process: the caller must learn what happened here.
      logging.exception('A computation failed.')
      context.abort(grpc.StatusCode.INTERNAL, f'{type(e).__name__}: {e}')


def start_server(
  engine: in_process.Engine,
  *,
  port: int,
  bind_address: str,
  credentials: Optional[grpc.ServerCredentials],
) -> tuple[grpc.Server, int]:
  """Starts serving `engine`.

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


def serve(
  port: int,
  *,
  bind_address: str,
  engine: str,
  max_concurrent_clients: Optional[int],
  devices: Any,
  certificate: Optional[str],
  private_key: Optional[str],
  trainer_certificate: Optional[str],
  parent: Optional[int],
) -> int:
  """See `tff_adaptive.runtime.serve_worker`, which checks the arguments."""
  stop = threading.Event()
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stop.set())

  def goes_on() -> bool:
    """Waits a little; whether nobody asked to stop."""
    if stop.wait(_POLL_SECONDS):
      return False
    return parent in (None, os.getppid())

  if engine == 'native':
    return _serve_native(port, max_concurrent_clients, goes_on)
  credentials = None
  if certificate is not None and private_key is not None:
    trusted = None
    if trainer_certificate is not None:
      trusted = arguments.read_pem(trainer_certificate, 'trainer_certificate')
    credentials = grpc.ssl_server_credentials(
      [
        (
          arguments.read_pem(private_key, 'private_key'),
          arguments.read_pem(certificate, 'certificate'),
        )
      ],
      root_certificates=trusted,
      require_client_auth=trusted is not None,
    )
  running = in_process.Engine(
    max_concurrent_clients=max_concurrent_clients, devices=devices
  )
  server, bound = start_server(
    running, port=port, bind_address=bind_address, credentials=credentials
  )
  _announce(bind_address, bound, 'TLS' if credentials else 'no TLS')
  while goes_on():
    pass
  server.stop(grace=1.0).wait()
  running.close()
  return 0


def _serve_native(port: int, max_concurrent_clients: Any, goes_on: Any) -> int:
  process = worker.WorkerProcess(
    tff_names.worker_binary_path(),
    port=port or None,
    max_concurrent_calls=max_concurrent_clients or -1,
  )
  try:
    worker.wait_until(
      lambda: (
        process.exit_code() is not None
        or worker.accepts_connections('127.0.0.1', process.port)
      ),
      30.0,
    )
    if process.exit_code() is not None:
      raise OSError(f"TFF's worker {process.describe_exit()}.")
    _announce('0.0.0.0', process.port, 'no TLS')
    while goes_on():
      if process.exit_code() is not None:
        raise failures.WorkerFailure(
          f"TFF's worker {process.describe_exit()}.", process.address
        )
  finally:
    process.stop()
  return 0


def _announce(host: str, port: int, security: str) -> None:
  print(f'Worker listening on {host}:{port} ({security}).', flush=True)
