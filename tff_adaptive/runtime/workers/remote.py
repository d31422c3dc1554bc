"""An execution context that spreads clients over several machines.

The means are TFF's own: each worker is a TFF executor behind gRPC, and TFF's
mergeable computations cut a computation at its aggregation: every worker runs
its share of the clients, the partial aggregates are merged, and one worker
finishes. Ours is what happens when a worker is slow to answer, dies, or comes
back.

A computation that cannot be cut (an aggregation that needs the result of
another, a secure sum) runs whole on one worker. One without clients runs in
this process.
"""

import asyncio
import time
from collections.abc import MutableMapping
from collections.abc import Sequence

import cachetools
import grpc
import tensorflow_federated as tff
from absl import logging

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import sharing
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import engine as engine_lib
from tff_adaptive.runtime.engine import values
from tff_adaptive.runtime.workers import arguments
from tff_adaptive.runtime.workers import stub as stub_lib

_SECONDS_BEFORE_ASKING_AGAIN = 30.0
_MAX_COMPILED = 64


class Worker(tff.framework.AsyncContext):
  """One worker as an asynchronous context.

  TFF's executors block the event loop during each call, so every worker gets a
  loop of its own, or only one of them would work at a time.

  Attributes:
    address: `host:port`.
    lost_at: When the worker was lost (monotonic time), `None` while it is not.
    complaint: Why it did not answer, as gRPC says it.
  """

  def __init__(
    self,
    address: str,
    *,
    credentials: grpc.ChannelCredentials | None,
    silence_timeout: float,
    computation_timeout: float | None,
  ):
    self.address = address
    self.complaint = ''
    self.lost_at: float | None = None
    self._credentials = credentials
    self._silence_timeout = silence_timeout
    self._computation_timeout = computation_timeout
    self._runner = tff_names.AsyncThreadRunner()
    self._stub: stub_lib.GuardedStub | None = None
    self._context: tff.framework.AsyncContext | None = None

  def connect(self, timeout: float) -> bool:
    """Opens the connection anew; `False` if the worker did not answer."""
    self.close()
    stub = stub_lib.GuardedStub(
      stub_lib.open_channel(self.address, self._credentials),
      self.address,
      silence_timeout=self._silence_timeout,
      computation_timeout=self._computation_timeout,
    )
    self._stub = stub
    end = time.monotonic() + timeout
    answered = False
    while not answered and (left := end - time.monotonic()) > 0:
      # A refused connection returns at once; gRPC itself pauses between tries.
      answered = stub.is_alive(left)
      if not answered:
        time.sleep(min(0.1, max(left, 0.0)))
    if answered:
      self._context = tff.framework.AsyncExecutionContext(
        executor_fn=tff.framework.ResourceManagingExecutorFactory(
          self._executor
        ),
        compiler_fn=tff_names.compile_to_native,
        transform_args=tff_names.transform_args,
        transform_result=tff_names.transform_result,
      )
      self.lost_at = None
    else:
      self.complaint = stub.complaint
      self.lost()
    return answered

  def lost(self) -> None:
    """Notes that the worker is gone."""
    self.lost_at = time.monotonic()
    self.close()

  def close(self) -> None:
    """Ends the connection; the worker stays."""
    if self._stub is not None:
      self._stub.close()
    self._stub = self._context = None

  async def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    if asyncio.iscoroutine(arg):
      arg = await arg
    # When one worker fails, TFF leaves the others' tasks behind; asyncio would
    # complain that nobody looked at how they ended.
    task = asyncio.current_task()
    if task is not None:
      task.add_done_callback(lambda t: t.cancelled() or t.exception())
    context = self._context
    if context is None:
      raise failures.WorkerFailure(
        f'The worker at {self.address} was lost.', self.address
      )
    return await self._runner.await_coro_and_return_result(
      context.invoke(comp, arg)
    )

  def _executor(
    self, cardinalities: dict[tff.framework.PlacementLiteral, int]
  ) -> tff.framework.RemoteExecutor:
    """Makes the executor that stands for the worker."""
    cardinalities.setdefault(tff.CLIENTS, 0)
    executor = tff.framework.RemoteExecutor(self._stub)
    executor.set_cardinalities(cardinalities)
    return executor


class RemoteContext(tff.framework.SyncContext):
  """Synchronous context on several workers.

  See `tff_adaptive.runtime.set_remote_context`.
  """

  def __init__(
    self,
    addresses: Sequence[str],
    *,
    retries: int,
    connect_timeout: float,
    silence_timeout: float,
    computation_timeout: float | None,
    credentials: grpc.ChannelCredentials | None,
  ):
    if retries < 0:
      raise ValueError(f'`retries` must be at least 0, got {retries!r}.')
    for name, value in (
      ('connect_timeout', connect_timeout),
      ('worker_timeout', silence_timeout),
      ('computation_timeout', computation_timeout),
    ):
      if value is not None and value <= 0:
        raise ValueError(f'`{name}` must be positive seconds, got {value!r}.')
    self._owner = failures.Owner()
    self._retries = retries
    self._connect_timeout = connect_timeout
    self._workers = [
      Worker(
        address,
        credentials=credentials,
        silence_timeout=silence_timeout,
        computation_timeout=computation_timeout,
      )
      for address in addresses
    ]
    self._local = engine_lib.Engine()
    self._runner = tff_names.AsyncThreadRunner()
    self._compiled: MutableMapping[bytes, tff_names.MergeableForm | None] = (
      cachetools.LRUCache(_MAX_COMPILED)
    )
    silent = [w for w in self._workers if not w.connect(connect_timeout)]
    if silent:
      self.close()
      complaint = silent[0].complaint
      raise failures.WorkerFailure(
        f'No worker answered at {", ".join(w.address for w in silent)} within'
        f' {connect_timeout:g} s: start one there with the `worker` command,'
        ' or look at the address, the firewall and the TLS settings'
        + (f' (gRPC says: {complaint}).' if complaint else '.'),
        silent[0].address,
      )

  @property
  def workers(self) -> list[Worker]:
    """The workers that are in use now."""
    return [w for w in self._workers if w.lost_at is None]

  def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    self._owner.check()
    if not tff_names.has_clients(comp.type_signature.parameter):
      return self._local.run(comp, arg)
    self._ask_lost_workers()
    for attempt in range(self._retries + 1):
      workers = self.workers
      if not workers:
        raise failures.WorkerFailure(
          'All workers were lost: '
          + ', '.join(w.address for w in self._workers)
          + '.'
        )
      try:
        return self._invoke_on(workers, comp, arg)
      except failures.WorkerFailure as e:
        self._drop(e)
        left = [w.address for w in self.workers]
        if attempt == self._retries or not left:
          raise
        logging.warning('%s Going on with %s.', e, ', '.join(left))
    raise AssertionError('unreachable')

  def _invoke_on(
    self,
    workers: Sequence[Worker],
    comp: tff.framework.ConcreteComputation,
    arg: values.PythonValue,
  ) -> values.PythonValue:
    """Runs a computation on workers; any failure of one fails it."""
    form = self._mergeable(comp)
    if form is None:
      return self._runner.run_coro_and_return_result(
        workers[0].invoke(comp, arg)
      )
    parts = sharing.client_shares(
      arg, form.up_to_merge.type_signature.parameter, len(workers)
    )
    return self._runner.run_coro_and_return_result(
      tff_names.invoke_mergeable(form, parts, workers)
    )

  def _mergeable(
    self, comp: tff.framework.ConcreteComputation
  ) -> tff_names.MergeableForm | None:
    """Cuts a computation at its aggregation; `None` if it cannot be cut."""
    digest = tff_names.computation_digest(comp)
    if digest not in self._compiled:
      if tff_names.contains_secure_sum(comp):
        form = None
      else:
        try:
          form = tff_names.compile_to_mergeable(comp)
        except ValueError as e:
          logging.warning(
            'This computation runs on one worker at a time, because its'
            ' aggregations depend on each other: %s',
            e,
          )
          form = None
      self._compiled[digest] = form
    return self._compiled[digest]

  def _drop(self, error: failures.WorkerFailure) -> None:
    """Leaves out the workers that do not answer any more."""
    for candidate in self.workers:
      if candidate.address == error.address or not candidate.connect(
        self._connect_timeout
      ):
        candidate.lost()

  def _ask_lost_workers(self) -> None:
    """Connects to lost workers that are back, if it is time to ask again."""
    for candidate in self._workers:
      lost_at = candidate.lost_at
      if (
        lost_at is not None
        and time.monotonic() - lost_at > _SECONDS_BEFORE_ASKING_AGAIN
        and candidate.connect(0.5)
      ):
        logging.warning('The worker at %s is back.', candidate.address)

  def close(self) -> None:
    """Ends the connections; the workers stay."""
    for candidate in self._workers:
      candidate.close()
    self._local.close()


def channel_credentials(
  worker_certificate: str | None,
  trainer_certificate: str | None,
  trainer_private_key: str | None,
) -> grpc.ChannelCredentials | None:
  """Reads TLS credentials from files; `None` without `worker_certificate`."""
  if worker_certificate is None:
    return None

  def read(path: str | None, argument: str) -> bytes | None:
    return None if path is None else arguments.read_pem(path, argument)

  return grpc.ssl_channel_credentials(
    read(worker_certificate, 'worker_certificate'),
    read(trainer_private_key, 'trainer_private_key'),
    read(trainer_certificate, 'trainer_certificate'),
  )
