"""TFF execution contexts: in this process, TFF's own, over several machines.

A TFF computation runs unchanged in each. Importing this package imports
neither TensorFlow nor TFF, and nothing else of `tff_adaptive`; the functions
below do so when called.

  tff_adaptive.runtime.set_in_process_context()
  state = process.initialize()
  output = process.next(state, client_datasets)
"""

from collections.abc import Sequence
import os
from typing import Any

from tff_adaptive.runtime.errors import ClientFailure
from tff_adaptive.runtime.errors import RuntimeFailure
from tff_adaptive.runtime.errors import UnsupportedComputationError
from tff_adaptive.runtime.errors import WorkerFailure

__all__ = [
    'ClientFailure',
    'RuntimeFailure',
    'UnsupportedComputationError',
    'WorkerFailure',
    'create_in_process_context',
    'create_native_context',
    'set_in_process_context',
    'set_native_context',
]


def _set_default(context: Any) -> Any:
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  tff.framework.set_default_context(context)
  return context


def create_in_process_context(
    *,
    max_concurrent_clients: int | None = None,
    devices: Sequence[str] | None = None,
    default_num_clients: int = 0,
    asynchronous: bool = False,
) -> Any:
  """Creates a context that runs computations in this process.

  The TensorFlow graphs of a computation run on the TensorFlow installed here,
  so on GPUs where it sees any. Clients run concurrently and are aggregated in
  their order, so results do not depend on the number of threads.

  Args:
    max_concurrent_clients: Clients that run at once. `None` chooses the number
      of cores, or two per GPU, and fewer if the model is so large that this
      many copies could fill the memory.
    devices: Names such as 'GPU:1' or 'CPU:0' that clients are spread over;
      `None` means all GPUs, or the CPU if there are none.
    default_num_clients: Cohort size of computations whose arguments do not
      show it.
    asynchronous: Whether to return a `tff.framework.AsyncContext`, as
      `tff.program.NativeFederatedContext` needs, instead of a
      `tff.framework.SyncContext`.

  Returns:
    The context.

  Raises:
    ValueError: If a device is unknown or a number is out of range.
    ClientFailure: From computations, when a client fails.
    UnsupportedComputationError: From computations that use what this runtime
      cannot run; the message names it.
  """
  from tff_adaptive.runtime import in_process  # pylint: disable=g-import-not-at-top

  engine = in_process.Engine(
      max_concurrent_clients=max_concurrent_clients,
      devices=devices,
      default_num_clients=default_num_clients,
  )
  if asynchronous:
    return in_process.InProcessAsyncContext(engine)
  return in_process.InProcessContext(engine)


def set_in_process_context(**arguments: Any) -> Any:
  """Makes an in-process context TFF's default context and returns it.

  Args:
    **arguments: As `create_in_process_context` takes them.
  """
  return _set_default(create_in_process_context(**arguments))


def create_native_context(
    *,
    default_num_clients: int = 0,
    max_concurrent_clients: int | None = None,
    worker_timeout: float = 60.0,
    retries: int = 1,
    memory_limit: int | None = None,
    asynchronous: bool = False,
) -> Any:
  """Creates a context on TFF's C++ runtime, with its worker under control.

  The worker process is started by the first computation. It ends with this
  process, however that ends, and it does not hold on to this process's
  standard output or error.

  Args:
    default_num_clients: Cohort size of computations whose arguments do not
      show it.
    max_concurrent_clients: Clients that run at once; `None` leaves it to the
      worker (no bound).
    worker_timeout: Seconds. A worker that does not answer this long, at its
      start or during a computation, is an error. A long computation is none:
      the worker is asked for a sign of life meanwhile.
    retries: How often a computation that lost its worker is tried again, with
      a new worker, before the error is raised.
    memory_limit: Bytes of resident memory above which the worker is replaced
      before the next computation (TFF's worker grows slowly over rounds).
      `None` means half of the machine's memory.
    asynchronous: Whether to return a `tff.framework.AsyncContext`, as
      `tff.program.NativeFederatedContext` needs, instead of a
      `tff.framework.SyncContext`.

  Returns:
    The context; its `close()` ends the worker.

  Raises:
    ValueError: If an argument is outside its range.
    WorkerFailure: From computations, when the worker cannot be started, dies
      more than `retries` times, or stops answering.
  """
  from tff_adaptive.runtime import native  # pylint: disable=g-import-not-at-top

  if memory_limit is None:
    memory_limit = (
        os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2
    )
  context = native.create_async(
      default_num_clients=default_num_clients,
      max_concurrent_clients=max_concurrent_clients,
      worker_timeout=worker_timeout,
      retries=retries,
      memory_limit=memory_limit,
  )
  return context if asynchronous else native.NativeContext(context)


def set_native_context(**arguments: Any) -> Any:
  """Makes a native context TFF's default context and returns it.

  Args:
    **arguments: As `create_native_context` takes them.
  """
  return _set_default(create_native_context(**arguments))
