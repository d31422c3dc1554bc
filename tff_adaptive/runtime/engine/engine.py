"""TFF execution contexts that run computations in this process.

See `program.py` for how a computation is compiled.
"""

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Sequence
from typing import Any
from typing import Optional

import cachetools
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import executable as program_lib
from tff_adaptive.runtime.engine import invocation
from tff_adaptive.runtime.engine import resources
from tff_adaptive.runtime.engine import signature as signature_lib
from tff_adaptive.runtime.engine import values

# Computations built anew, but equal, find the program of the first.
_MAX_PROGRAMS = 64
_Compiled = tuple[program_lib.Program, signature_lib.Signature]


class Engine:
  """Compiles and runs computations; what both contexts share.

  Attributes:
    resources: What clients run on.
  """

  def __init__(
    self,
    *,
    max_concurrent_clients: Optional[int] = None,
    devices: Optional[Sequence[str]] = None,
    default_num_clients: int = 0,
    dataset_cache_bytes: int = 256 << 20,
  ):
    """See `tff_adaptive.runtime.create_in_process_context`."""
    for name, value in (
      ('default_num_clients', default_num_clients),
      ('dataset_cache_bytes', dataset_cache_bytes),
    ):
      if value < 0:
        raise ValueError(f'`{name}` must be at least 0, got {value!r}.')
    self.resources = resources.Resources(max_concurrent_clients, devices)
    self._default_num_clients = default_num_clients
    self._datasets = values.DatasetCache(dataset_cache_bytes)
    self._lock = threading.RLock()
    self._compiled = cachetools.LRUCache(_MAX_PROGRAMS)
    # Hashing a computation serializes it, all its constants included, so a
    # computation that was seen before is recognized as the same object.
    self._by_id: dict[int, _Compiled] = {}

  def compile(self, comp: Any, compiled: bool = False) -> _Compiled:
    """The program of `comp`, which is in native form if `compiled`."""
    key = id(comp)
    with self._lock:
      known = self._by_id.get(key)
      if known is not None:
        return known
      digest = tff_names.computation_digest(comp)
      program = self._compiled.get(digest)
      if program is None:
        program = program_lib.Program(comp, compiled)
        self._compiled[digest] = program
      # Equal computations may still differ in their Python containers.
      known = (
        program,
        signature_lib.Signature(program, comp.type_signature, self._datasets),
      )
      self._by_id[key] = known
      weakref.finalize(comp, self._by_id.pop, key, None)
      return known

  def run(
    self,
    comp: Any,
    argument: Any,
    *,
    num_clients: Optional[int] = None,
    compiled: bool = False,
  ) -> Any:
    """Runs `comp`; blocks until the result is there.

    Args:
      comp: A `tff.Computation`.
      argument: Its argument, packed as `tff.framework.SyncContext` gets it.
      num_clients: Size of the cohort where the argument does not show it.
      compiled: Whether `comp` is in TFF's native form already.

    Returns:
      NumPy values in the containers that `comp` declares.
    """
    if not isinstance(comp, tff.framework.ConcreteComputation):
      raise TypeError(
        'The in-process runtime runs `tff.Computation`s, got'
        f' {type(comp).__name__}.'
      )
    program, signature = self.compile(comp, compiled)
    count = signature.num_clients(argument)
    if count is None:
      count = self._default_num_clients if num_clients is None else num_clients
    run = invocation.Invocation(self.resources, program, count)
    signature.ingest(argument, run.server, run.clients)
    with program.lock:
      run.execute()
    return signature.restore(run.server, run.clients)

  def close(self) -> None:
    self.resources.close()


class InProcessContext(tff.framework.SyncContext):
  """Synchronous context; see `tff_adaptive.runtime.set_in_process_context`."""

  def __init__(self, engine: Engine):
    self._engine = engine

  @property
  def engine(self) -> Engine:
    return self._engine

  def invoke(self, comp: Any, arg: Any) -> Any:
    return self._engine.run(comp, arg)

  def close(self) -> None:
    """Ends the client threads; the context cannot be used afterwards."""
    self._engine.close()


class InProcessAsyncContext(tff.framework.AsyncContext):
  """Asynchronous context: the event loop stays free during a computation."""

  def __init__(self, engine: Engine):
    self._engine = engine
    # Invocations wait for clients; they need threads of their own, or they
    # could occupy all those that the clients need.
    self._invocations = concurrent.futures.ThreadPoolExecutor(
      8, thread_name_prefix='tff_invocation'
    )

  @property
  def engine(self) -> Engine:
    return self._engine

  async def invoke(self, comp: Any, arg: Any) -> Any:
    if asyncio.iscoroutine(arg):
      arg = await arg
    return await asyncio.get_running_loop().run_in_executor(
      self._invocations, self._engine.run, comp, arg
    )

  def close(self) -> None:
    """Ends the threads; the context cannot be used afterwards."""
    self._invocations.shutdown(wait=False, cancel_futures=True)
    self._engine.close()
