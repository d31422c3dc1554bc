"""TFF execution contexts: in-process, TFF's C++ worker, Ray clusters.

Any TFF computation runs unchanged in each. Importing this package imports
neither TensorFlow, TFF nor other parts of `tff_adaptive`; the functions below
do so when called.

  tff_adaptive.runtime.set_in_process_context()
  state = process.initialize()
  output = process.next(state, client_datasets)
"""

from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING, TypeAlias

from tff_adaptive.runtime.cluster import requirements
from tff_adaptive.runtime.failures import CannotVectorize
from tff_adaptive.runtime.failures import ClientFailure
from tff_adaptive.runtime.failures import RuntimeFailure
from tff_adaptive.runtime.failures import UnsupportedComputationError
from tff_adaptive.runtime.failures import WorkerFailure
from tff_adaptive.runtime.references import Reference

__all__ = [
  'CannotVectorize',
  'ClientFailure',
  'Reference',
  'RuntimeFailure',
  'UnsupportedComputationError',
  'WorkerFailure',
  'aggregation_seconds',
  'create_ensemble',
  'create_in_process_context',
  'create_native_context',
  'create_ray_context',
  'data_announcer',
  'set_default_context',
  'set_in_process_context',
  'set_native_context',
  'set_ray_context',
]

if TYPE_CHECKING:
  import tensorflow_federated as tff

  from tff_adaptive.runtime.engine import ensemble

_Context: TypeAlias = 'tff.framework.SyncContext | tff.framework.AsyncContext'


def set_default_context(context: _Context) -> _Context:
  """Makes a context TFF's default, wrapping asynchronous ones for programs."""
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  if isinstance(context, tff.framework.AsyncContext):
    from tff_adaptive.runtime.engine import contexts  # pylint: disable=g-import-not-at-top

    context = contexts.ProgramContext(context)
  tff.framework.set_default_context(context)
  return context


def create_in_process_context(
  *,
  max_concurrent_clients: int | None = None,
  devices: Sequence[str] | None = None,
  default_num_clients: int = 0,
  dataset_cache_bytes: int = 256 << 20,
  vectorize_clients: str = 'auto',
  jit_compile: str = 'auto',
  matmul_precision: str = 'float32',
  asynchronous: bool = False,
) -> _Context:
  """Creates a context that runs computations in this process.

  A computation's graphs run on the installed TensorFlow, so on GPUs if it sees
  any. Clients run concurrently and are aggregated in their order, so results do
  not depend on the number of threads.

  A dataset that reshuffles in each iteration continues its sequence of orders
  in the next computation, as always in TensorFlow; TFF's own runtime sends a
  copy, which restarts it. With new dataset objects in each round both behave
  alike.

  Args:
    max_concurrent_clients: Maximum number of clients trained at once. By
      default the number of cores, or four per GPU (at most the number of
      cores), reduced for models so large that as many copies could exhaust the
      memory. Results do not depend on it.
    devices: Devices over which the in-process runtime spreads clients, such as
      GPU:0 and GPU:1; by default all GPUs, or the CPU without any.
    default_num_clients: Cohort size of computations whose arguments do not
      show it.
    dataset_cache_bytes: Memory in bytes for caching the batches of datasets
      that are passed to more than one invocation and are deterministic (no
      shuffling, file reading or randomness); 0 disables the cache. Entries are
      dropped with the dataset object.
    vectorize_clients: Whether clients of this package's processes take each
      local step together ('true'), one client at a time ('false'), or whatever
      is faster for the model ('auto').
    jit_compile: Whether XLA compiles the steps of clients that train together:
      'true', 'false', or on a GPU alone ('auto').
    matmul_precision: That of products of float32 on a GPU: 'float32', or the
      faster 'tf32' with 10 bits of mantissa. TensorFlow has one setting for a
      process, that of the last context.
    asynchronous: Whether to return a `tff.framework.AsyncContext`, which
      `tff.program.NativeFederatedContext` takes, instead of a
      `tff.framework.SyncContext`.

  Returns:
    The context; its `close()` ends its threads.

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
    vectorize_clients=vectorize_clients,
    jit_compile=jit_compile,
    matmul_precision=matmul_precision,
  )
  if asynchronous:
    return contexts.InProcessAsyncContext(engine)
  return contexts.InProcessContext(engine)


def set_in_process_context(**arguments: Any) -> _Context:
  """Makes an in-process context TFF's default context and returns it.

  Args:
    **arguments: As `create_in_process_context` takes them. With
      `asynchronous=True` the context is a `tff.program.FederatedContext`, which
      TFF's programs ask for, such as `tff.learning.programs.train_model`.
  """
  return set_default_context(create_in_process_context(**arguments))


def _current() -> Any:
  """Returns TFF's current context, without `ProgramContext` around it."""
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  context = tff.framework.get_context_stack().current
  return getattr(context, 'asynchronous', context)


def create_ensemble(computation: 'tff.Computation') -> 'ensemble.Ensemble':
  """Creates a computation's form for several server states at once.

  Args:
    computation: Such as the `next` of a learning process. The current context
      runs it, which must be one of `create_in_process_context`.

  Raises:
    CannotVectorize: If its clients must run one by one, or in another context.
  """
  from tff_adaptive.runtime.engine import contexts  # pylint: disable=g-import-not-at-top
  from tff_adaptive.runtime.engine import ensemble  # pylint: disable=g-import-not-at-top

  context = _current()
  if not isinstance(context, contexts.InProcessContext):
    raise CannotVectorize('another runtime runs it')
  return ensemble.Ensemble(context.engine, computation)


def aggregation_seconds() -> float | None:
  """Returns the seconds that TFF's current context spent on aggregation.

  This includes the accumulation of client values and the server computations so
  far; the rest of an invocation is client training.

  Returns:
    The seconds, of this machine if the context is a cluster's; `None` if it is
    native.
  """
  engine = getattr(_current(), 'engine', None)
  return None if engine is None else engine.resources.aggregation_seconds


def data_announcer() -> Callable[[Sequence[Reference]], None] | None:
  """Returns a function that announces clients' data to TFF's current context.

  It takes the references of the clients of a later computation and returns at
  once. Machines load these data when they have computed their share of the
  current computation, or while they compute it if they have more cores than
  one. Data that are announced and not used are dropped. May be called from any
  thread.

  Returns:
    The function, or `None` if the context loads no data in advance.
  """
  return getattr(getattr(_current(), 'runner', None), 'announce', None)


def create_native_context(
  *,
  default_num_clients: int = 0,
  max_concurrent_clients: int | None = None,
  asynchronous: bool = False,
) -> _Context:
  """Creates a context on TFF's C++ runtime.

  The first computation starts the worker process. It ends with this process,
  for whatever reason, and does not hold its standard output or error open. TFF
  repeats a computation that lost its worker; after a few times it is an error.

  Args:
    default_num_clients: Cohort size of computations whose arguments do not
      show it.
    max_concurrent_clients: Maximum number of clients trained at once; by
      default unbounded.
    asynchronous: Whether to return a `tff.framework.AsyncContext`, which
      `tff.program.NativeFederatedContext` takes, instead of a
      `tff.framework.SyncContext`.

  Returns:
    The context; its `close()` ends the worker.

  Raises:
    ValueError: If an argument is outside its range.
    RuntimeFailure: If this installation of TFF has no worker; from
      computations, what the worker reports.
    WorkerFailure: From computations, when the worker cannot be started, or dies
      repeatedly.
  """
  from tff_adaptive.runtime import native  # pylint: disable=g-import-not-at-top

  if max_concurrent_clients is not None and max_concurrent_clients < 1:
    raise ValueError(
      '`max_concurrent_clients` must be at least 1 or None (no bound), got'
      f' {max_concurrent_clients!r}.'
    )
  worker = native.Worker(default_num_clients, max_concurrent_clients or -1)
  context = native.NativeAsyncContext(worker)
  return context if asynchronous else native.NativeContext(context)


def set_native_context(**arguments: Any) -> _Context:
  """Makes a native context TFF's default context and returns it.

  Args:
    **arguments: As `create_native_context` takes them. With `asynchronous=True`
      the context is a `tff.program.FederatedContext`, which TFF's programs ask
      for.
  """
  return set_default_context(create_native_context(**arguments))


def create_ray_context(
  address: str = 'auto',
  *,
  cpus_per_actor: int | None = None,
  max_concurrent_clients: int | None = None,
  retries: int = 1,
  start_timeout: float = 120.0,
  asynchronous: bool = False,
  vectorize_clients: str = 'auto',
  jit_compile: str = 'auto',
  matmul_precision: str = 'float32',
) -> _Context:
  """Creates a context that spreads clients over the machines of a Ray cluster.

  Each machine, on which this project must be installed, has one actor per GPU
  or, without GPUs, per group of cores. Each actor runs a share of the clients
  on the in-process engine. Sums are added in the clients' order in a share,
  then in the order of the shares, whose number is the largest number of actors
  so far: results are bitwise equal for equal numbers of actors, and agree with
  those of one machine up to rounding.

  Ray restarts an actor that dies; meanwhile others rerun its share. A machine
  that joins the cluster is used once an actor has started there.

  Args:
    address: `host:port` of the cluster's head, or `auto` for the cluster named
      by RAY_ADDRESS or running on this machine; if there is none, one is
      started here. This machine must belong to the cluster. An existing
      connection made by `ray.init` is reused.
    cpus_per_actor: Cores of each actor; by default all of its machine's, or an
      equal share of them per GPU.
    max_concurrent_clients: Maximum number of clients that an actor trains at
      once; by default its number of cores, or four on a GPU. Results do not
      depend on it.
    retries: Number of times the clients of lost actors are retried in one
      computation before the error is raised.
    start_timeout: Seconds to wait for actors to start; actors that start later
      join later computations.
    asynchronous: Whether to return a `tff.framework.AsyncContext`, which
      `tff.program.NativeFederatedContext` takes, instead of a
      `tff.framework.SyncContext`.
    vectorize_clients, jit_compile, matmul_precision: As
      `create_in_process_context` takes them, for the clients of an actor's
      share.

  Returns:
    The context; its `close()` ends the actors.

  Raises:
    ValueError: If an argument is outside its range, or Ray is not installed.
    WorkerFailure: If no cluster answers, or no actor starts; from computations,
      if actors were lost more than `retries` times, or all of them.
    ClientFailure: From computations, when a client fails; names the machine.
  """
  requirements.require_ray()
  # pylint: disable=g-import-not-at-top
  from tff_adaptive.runtime.cluster import contexts as cluster_lib
  from tff_adaptive.runtime.engine import contexts

  cluster = cluster_lib.Cluster(
    address,
    cpus_per_actor=cpus_per_actor,
    max_concurrent_clients=max_concurrent_clients,
    start_timeout=start_timeout,
    retries=retries,
    vectorize_clients=vectorize_clients,
    jit_compile=jit_compile,
    matmul_precision=matmul_precision,
  )
  if asynchronous:
    return contexts.InProcessAsyncContext(cluster.local, cluster)
  return contexts.InProcessContext(cluster.local, cluster)


def set_ray_context(address: str = 'auto', **arguments: Any) -> _Context:
  """Makes a Ray context TFF's default context and returns it.

  Args:
    address: As `create_ray_context` takes it.
    **arguments: As `create_ray_context` takes them. With `asynchronous=True`
      the context is a `tff.program.FederatedContext`, which TFF's programs ask
      for.
  """
  return set_default_context(create_ray_context(address, **arguments))
