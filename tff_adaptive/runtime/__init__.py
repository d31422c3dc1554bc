"""TFF execution contexts: in this process, TFF's own, over several machines.

A TFF computation runs unchanged in each. Importing this package imports
neither TensorFlow nor TFF, and nothing else of `tff_adaptive`; the functions
below do so when called.

  tff_adaptive.runtime.set_in_process_context()
  state = process.initialize()
  output = process.next(state, client_datasets)
"""

import os
from collections.abc import Sequence
from typing import Any
from typing import TYPE_CHECKING
from typing import TypeAlias

from tff_adaptive.runtime.failures import ClientFailure
from tff_adaptive.runtime.failures import RuntimeFailure
from tff_adaptive.runtime.failures import UnsupportedComputationError
from tff_adaptive.runtime.failures import WorkerFailure
from tff_adaptive.runtime.workers import arguments as arguments_lib
from tff_adaptive.runtime.workers.serving import ENGINES
from tff_adaptive.runtime.workers.serving import serve_worker

__all__ = [
  'ENGINES',
  'ClientFailure',
  'RuntimeFailure',
  'UnsupportedComputationError',
  'WorkerFailure',
  'aggregation_seconds',
  'create_in_process_context',
  'create_native_context',
  'create_remote_context',
  'serve_worker',
  'set_default_context',
  'set_in_process_context',
  'set_native_context',
  'set_remote_context',
  'set_threads_per_operation',
]

if TYPE_CHECKING:
  import tensorflow_federated as tff

_Context: TypeAlias = 'tff.framework.SyncContext | tff.framework.AsyncContext'


def set_default_context(context: _Context) -> _Context:
  """Makes a context TFF's default; an asynchronous one, that of programs."""
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  if isinstance(context, tff.framework.AsyncContext):
    from tff_adaptive.runtime import programs  # pylint: disable=g-import-not-at-top

    context = programs.ProgramContext(context)
  tff.framework.set_default_context(context)
  return context


def create_in_process_context(
  *,
  max_concurrent_clients: int | None = None,
  devices: Sequence[str] | None = None,
  default_num_clients: int = 0,
  dataset_cache_bytes: int = 256 << 20,
  asynchronous: bool = False,
) -> _Context:
  """Creates a context that runs computations in this process.

  The TensorFlow graphs of a computation run on the TensorFlow installed here,
  so on GPUs where it sees any. Clients run concurrently and are aggregated in
  their order, so results do not depend on the number of threads.

  A dataset object that shuffles anew in each iteration goes on with its orders
  from one computation to the next, as anywhere in TensorFlow; TFF's own runtime
  sends a copy, which starts with the first order each time. New dataset objects
  in each round behave alike in both.

  Args:
    max_concurrent_clients: Clients that are trained at once; unless given, the
      number of cores, or four per GPU if there are as many cores, and fewer if
      the model is so large that this many copies could fill the memory. It
      changes no result.
    devices: Devices that the in-process runtime spreads clients over, such as
      GPU:0 and GPU:1; all GPUs unless given, or else the CPU.
    default_num_clients: Cohort size of computations whose arguments do not
      show it.
    dataset_cache_bytes: Memory for the batches of datasets that come in more
      than one invocation and yield the same each time (no shuffling, reading or
      randomness); 0 keeps none. A dataset's batches go with the dataset object.
    asynchronous: Whether to return a `tff.framework.AsyncContext`, which
      `tff.program.NativeFederatedContext` takes, instead of a
      `tff.framework.SyncContext`.

  Returns:
    The context; its `close()` ends the threads.

  Raises:
    ValueError: If a device is unknown or a number is out of range.
    ClientFailure: From computations, when a client fails.
    UnsupportedComputationError: From computations that use what this runtime
      cannot run; the message names it.
  """
  # pylint: disable=g-import-not-at-top
  from tff_adaptive.runtime.engine import contexts
  from tff_adaptive.runtime.engine import engine as engine_lib

  engine = engine_lib.Engine(
    max_concurrent_clients=max_concurrent_clients,
    devices=devices,
    default_num_clients=default_num_clients,
    dataset_cache_bytes=dataset_cache_bytes,
  )
  if asynchronous:
    return contexts.InProcessAsyncContext(engine)
  return contexts.InProcessContext(engine)


def set_threads_per_operation(count: int = 1) -> None:
  """Sets into how many threads TensorFlow divides an operation.

  Unless told, TensorFlow divides an operation among all cores, and sums inside
  it are added in an order that depends on their number. A number that is fixed
  gives the same bits on any machine with the same kind of processor. With 1,
  clients that train at once do not wait for parts of each other's operations.
  `main.py` calls this with --threads_per_operation; in a program of your own,
  call it before TensorFlow's first operation. Workers of the native runtime
  that start later have the same number.

  Args:
    count: Threads, at least 1. More than there are cores give the same bits as
      on a machine that has them, later.

  Raises:
    ValueError: If `count` is less than 1.
    RuntimeFailure: If TensorFlow has computed in this process with another
      number.
  """
  from tff_adaptive.runtime.engine import resources  # pylint: disable=g-import-not-at-top

  resources.set_threads_per_operation(count)


def set_in_process_context(**arguments: Any) -> _Context:
  """Makes an in-process context TFF's default context and returns it.

  Args:
    **arguments: As `create_in_process_context` takes them. With
      `asynchronous=True` the context is a `tff.program.FederatedContext`, which
      TFF's programs ask for, such as `tff.learning.programs.train_model`.
  """
  return set_default_context(create_in_process_context(**arguments))


def aggregation_seconds() -> float | None:
  """Returns the seconds that TFF's current context spent on aggregation.

  That is the time until now of adding up what clients send, and of the server's
  computations; an invocation's other time is the clients' training.

  Returns:
    `None` if the context cannot tell: only an in-process one can.
  """
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  context = tff.framework.get_context_stack().current
  context = getattr(context, 'asynchronous', context)
  engine = getattr(context, 'engine', None)
  return None if engine is None else engine.resources.aggregation_seconds


def create_native_context(
  *,
  default_num_clients: int = 0,
  max_concurrent_clients: int | None = None,
  worker_timeout: float = 60.0,
  retries: int = 1,
  memory_limit: int | None = None,
  asynchronous: bool = False,
) -> _Context:
  """Creates a context on TFF's C++ runtime, with its worker under control.

  The worker process is started by the first computation. It ends with this
  process, however that ends, and it does not hold on to this process's
  standard output or error.

  Args:
    default_num_clients: Cohort size of computations whose arguments do not
      show it.
    max_concurrent_clients: Clients that are trained at once; no bound unless
      given.
    worker_timeout: Seconds. A worker that does not answer this long, at its
      start or during a computation, is an error. A long computation is none:
      the worker is asked for a sign of life meanwhile.
    retries: How often a computation that lost its worker is tried again, with
      a new worker, before the error is raised.
    memory_limit: Bytes of resident memory above which the worker is replaced
      before the next computation (TFF's worker grows slowly over rounds); half
      of the machine's memory unless given.
    asynchronous: Whether to return a `tff.framework.AsyncContext`, which
      `tff.program.NativeFederatedContext` takes, instead of a
      `tff.framework.SyncContext`.

  Returns:
    The context; its `close()` ends the worker.

  Raises:
    ValueError: If an argument is outside its range.
    WorkerFailure: From computations, when the worker cannot be started, dies
      more than `retries` times, or stops answering.
  """
  from tff_adaptive.runtime.workers import native  # pylint: disable=g-import-not-at-top

  if memory_limit is None:
    memory_limit = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2
  context = native.create_async(
    default_num_clients=default_num_clients,
    max_concurrent_clients=max_concurrent_clients,
    worker_timeout=worker_timeout,
    retries=retries,
    memory_limit=memory_limit,
  )
  return context if asynchronous else native.NativeContext(context)


def set_native_context(**arguments: Any) -> _Context:
  """Makes a native context TFF's default context and returns it.

  Args:
    **arguments: As `create_native_context` takes them. With `asynchronous=True`
      the context is a `tff.program.FederatedContext`, which TFF's programs ask
      for.
  """
  return set_default_context(create_native_context(**arguments))


def create_remote_context(
  addresses: Sequence[str],
  *,
  retries: int = 1,
  connect_timeout: float = 10.0,
  worker_timeout: float = 60.0,
  computation_timeout: float | None = None,
  worker_certificate: str | None = None,
  trainer_certificate: str | None = None,
  trainer_private_key: str | None = None,
) -> _Context:
  """Creates a context that spreads clients over workers on other machines.

  Sums are made in the clients' order at each worker, then in the order of the
  addresses, so results agree with those of one machine up to rounding.

  Args:
    addresses: `host:port` of each worker, as `serve_worker` starts them.
    retries: How often a computation that lost a worker is run again on the
      others, before the error is raised. Nothing of a failed attempt is kept.
    connect_timeout: Seconds within which each worker must answer at first.
    worker_timeout: Seconds. A worker that gives no sign of life this long
      during a computation is lost.
    computation_timeout: Seconds after which a worker that still computes is
      given up, and ends what it computes; no limit unless given.
    worker_certificate: File with the remote workers' certificates, or of those
      that signed them (PEM); turns TLS on.
    trainer_certificate: File with the certificate to show to remote workers
      that ask.
    trainer_private_key: File with its key.

  Returns:
    A `tff.framework.SyncContext`; its `close()` ends the connections.

  Raises:
    ValueError: If an argument is outside its range.
    WorkerFailure: If a worker cannot be reached; from computations, when
      workers were lost more than `retries` times. Names the address.
  """
  arguments_lib.check_addresses(addresses)
  arguments_lib.check_remote_credentials(
    worker_certificate, trainer_certificate, trainer_private_key
  )
  from tff_adaptive.runtime.workers import remote  # pylint: disable=g-import-not-at-top

  return remote.RemoteContext(
    addresses,
    retries=retries,
    connect_timeout=connect_timeout,
    silence_timeout=worker_timeout,
    computation_timeout=computation_timeout,
    credentials=remote.channel_credentials(
      worker_certificate, trainer_certificate, trainer_private_key
    ),
  )


def set_remote_context(addresses: Sequence[str], **arguments: Any) -> _Context:
  """Makes a remote context TFF's default context and returns it.

  Args:
    addresses: As `create_remote_context` takes them.
    **arguments: As `create_remote_context` takes them.
  """
  return set_default_context(create_remote_context(addresses, **arguments))
