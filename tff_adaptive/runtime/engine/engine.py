"""The in-process engine's cache of executables, and its entry points."""

import threading
import weakref
from collections.abc import MutableMapping, Sequence
from typing import TypeAlias

import cachetools
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.engine import dataset_cache
from tff_adaptive.runtime.engine import executable as executable_lib
from tff_adaptive.runtime.engine import invocation
from tff_adaptive.runtime.engine import resources
from tff_adaptive.runtime.engine import signature as signature_lib
from tff_adaptive.runtime.engine import values

# Equal computations, such as rebuilt ones, share an executable.
_MAX_EXECUTABLES = 64
_Compiled: TypeAlias = tuple[executable_lib.Executable, signature_lib.Signature]


def _forget(engine: 'weakref.ref[Engine]', key: int) -> None:
  """Forgets a computation, of an engine that may be gone before it."""
  if (there := engine()) is not None:
    there.forget(key)


class Engine:
  """Compiles computations, each once, and runs them in this process.

  Attributes:
    resources: Threads, devices and memory.
    datasets: Cache of datasets passed as arguments.
  """

  def __init__(
    self,
    *,
    max_concurrent_clients: int | None = None,
    devices: Sequence[str] | None = None,
    default_num_clients: int = 0,
    dataset_cache_bytes: int = 256 << 20,
    vectorize_clients: str = 'auto',
    jit_compile: str = 'auto',
    matmul_precision: str = 'float32',
  ):
    """Takes the arguments of `create_in_process_context`."""
    for name, value in (
      ('default_num_clients', default_num_clients),
      ('dataset_cache_bytes', dataset_cache_bytes),
    ):
      if value < 0:
        raise ValueError(f'`{name}` must be at least 0, got {value!r}.')
    self.resources = resources.Resources(
      max_concurrent_clients,
      devices,
      vectorize_clients,
      jit_compile,
      matmul_precision,
    )
    self.datasets = dataset_cache.DatasetCache(dataset_cache_bytes)
    self._default_num_clients = default_num_clients
    self._lock = threading.RLock()
    self._executables: MutableMapping[bytes, executable_lib.Executable] = (
      cachetools.LRUCache(_MAX_EXECUTABLES)
    )
    # Hashing a computation serializes it with all its constants, so known
    # computations are recognized by object identity first.
    self._by_id: dict[int, _Compiled] = {}

  def compile(
    self, comp: tff.framework.ConcreteComputation, once: bool = False
  ) -> _Compiled:
    """Compiles a computation, or returns the executable of an equal one.

    Args:
      comp: The computation.
      once: As in `executable.Tracer`.
    """
    key = id(comp)
    with self._lock:
      known = self._by_id.get(key)
      if known is not None:
        return known
      digest = tff_names.computation_digest(comp)
      executable = self._executables.get(digest)
      if executable is None:
        executable = executable_lib.Executable(comp, once)
        self._executables[digest] = executable
      # Equal computations may still differ in their Python containers.
      known = (
        executable,
        signature_lib.Signature(executable, comp.type_signature, self.datasets),
      )
      self._by_id[key] = known
      weakref.finalize(comp, _forget, weakref.ref(self), key)
      return known

  def run(
    self,
    comp: tff.framework.ConcreteComputation,
    argument: values.PythonValue,
    *,
    cancellation: tff_functions.Cancellation | None = None,
  ) -> values.PythonValue:
    """Runs a computation and returns its result; blocks until it is done.

    Args:
      comp: The computation.
      argument: Its argument, packed as in `tff.framework.SyncContext.invoke`.
      cancellation: Cancels the computation from another thread.

    Returns:
      NumPy values in the Python containers of `comp`'s result type.
    """
    if not isinstance(comp, tff.framework.ConcreteComputation):
      raise TypeError(
        'The in-process runtime accepts `tff.Computation`s, got '
        f'{type(comp).__name__}.'
      )
    resources.check_process()
    executable, signature = self.compile(comp)
    count = signature.num_clients(argument)
    if count is None:
      count = self._default_num_clients
    run = invocation.Invocation(self.resources, executable, count, cancellation)
    try:
      signature.ingest(argument, run.server, run.clients)
    finally:
      self.datasets.forget_rows()
    with executable.lock:
      run.execute()
    return signature.restore(run.server, run.clients)

  def forget(self, key: int) -> None:
    """Forgets a computation that is gone, given its id."""
    self._by_id.pop(key, None)

  def close(self) -> None:
    """Ends the client threads; the engine cannot be used afterwards."""
    self.resources.close()
