"""An actor on a Ray cluster: the in-process engine of one machine or GPU."""

import contextlib
import dataclasses
import re
import socket
import threading
from collections.abc import (
  Hashable,
  Iterator,
  Mapping,
  MutableMapping,
  Sequence,
)
from typing import Any

import cachetools
import ray
import tensorflow as tf

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import machine
from tff_adaptive.runtime import references
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.cluster import wire
from tff_adaptive.runtime.engine import engine as engine_lib

_MAX_COMPUTATIONS = 64
# Remembered ids of cancelled calls.
_MAX_CANCELLED = 1024


@dataclasses.dataclass(frozen=True)
class Share:
  """One actor's share of the cohort.

  Attributes:
    columns: The clients' values, one list per part of the argument at clients.
    clients: Position of each client in the cohort.
    total: Size of the cohort.
  """

  columns: Sequence[Sequence[Any]]
  clients: Sequence[int]
  total: int


@dataclasses.dataclass(frozen=True)
class Answer:
  """The outcome of a call.

  Attributes:
    result: Parts of the result not at clients, encoded by `wire.encode`.
    columns: Parts at clients: one list of the clients' values for each.
    error: The exception that ended the call, or `None`.
  """

  result: Any = None
  columns: Sequence[Sequence[Any]] = ()
  error: Exception | None = None


class Actor:
  """A Ray actor that serves the in-process engine to other processes.

  Runs one computation at a time, which can be cancelled meanwhile.
  """

  def __init__(
    self,
    cores: int,
    threads: int,
    max_concurrent_clients: int | None,
    together: Mapping[str, Any],
  ):
    """Starts an engine.

    Args:
      cores: Number of CPU cores to use.
      threads: TensorFlow's threads per operation; 0 for as many as `cores`.
      max_concurrent_clients: As `create_in_process_context` takes it.
      together: `vectorize_clients` and its like, as
        `create_in_process_context` takes them.
    """
    # In a process that Ray reuses, TensorFlow keeps its existing threads.
    with contextlib.suppress(RuntimeError):
      tf.config.threading.set_inter_op_parallelism_threads(cores)
      tf.config.threading.set_intra_op_parallelism_threads(threads or cores)
      for gpu in tf.config.list_physical_devices('GPU'):
        # The process that started the cluster uses one of them, too.
        tf.config.experimental.set_memory_growth(gpu, True)
    if not tf.config.list_physical_devices('GPU'):
      if cores < len(machine.cores()):
        max_concurrent_clients = max_concurrent_clients or cores
    self._engine = engine_lib.Engine(
      max_concurrent_clients=max_concurrent_clients,
      **together,
    )
    self._computations: MutableMapping[bytes, Any] = cachetools.LRUCache(
      _MAX_COMPUTATIONS
    )
    self._lock = threading.Lock()
    self._has_spare_core = cores > 1
    self._last_call = -1
    self._call_ended = threading.Condition()
    self._data = _Data()
    self._running: dict[int, tff_functions.Cancellation] = {}
    self._cancelled: MutableMapping[int, bool] = cachetools.LRUCache(
      _MAX_CANCELLED
    )

  def machine(self) -> str:
    """Returns the host name; answers once the engine is ready."""
    return socket.gethostname()

  def read_at_server(
    self, digest: bytes, comp: Sequence[ray.ObjectRef]
  ) -> list[bool]:
    """Compiles a computation and returns its `Executable.read_at_server`.

    Args:
      digest: The computation's `tff_names.computation_digest`.
      comp: Reference to the serialized computation, the argument `once` of
        `Engine.compile` and `wire.pickle_forms`, used if the actor has not
        compiled it.
    """
    executable, _ = self._engine.compile(self._computation(digest, comp))
    return executable.read_at_server()

  def run(
    self,
    call: int,
    digest: bytes,
    comp: Sequence[ray.ObjectRef],
    argument: Any,
    share: Share,
  ) -> Answer:
    """Runs a computation on a share of the cohort.

    Args:
      call: Unique id of the call.
      digest: As in `read_at_server`.
      comp: As in `read_at_server`.
      argument: Encoded parts of the argument that are not at clients.
      share: The clients, with the parts that are.
    """
    try:
      with self._cancellable(call) as cancellation:
        computation = self._computation(digest, comp)
        columns = [self._data.of(column) for column in share.columns]
        type_spec = computation.type_signature
        value = wire.decode(argument, type_spec.parameter, iter(columns))
        result = self._engine.run(computation, value, cancellation=cancellation)
        found: list[list[Any]] = []
        encoded = wire.encode(result, type_spec.result, found)
        return Answer(encoded, found)
    except failures.ClientFailure as e:
      index = share.clients[e.client_index]
      return Answer(error=failures.ClientFailure(_in_cohort(e, share), index))
    except (
      failures.RuntimeFailure,
      failures.UnsupportedComputationError,
      TypeError,
      ValueError,
    ) as e:
      # Without `__cause__`, which other processes may fail to unpickle.
      return Answer(error=type(e)(_in_cohort(e, share)))

  @ray.method(concurrency_group='data')
  def load(
    self, call: int, columns: Sequence[Sequence[references.Reference]]
  ) -> None:
    """Loads the data of clients that the next call trains.

    With one core this waits until the current call has ended, as otherwise both
    would take longer, and the cluster waits for the slowest actor.

    Args:
      call: Id of the current call.
      columns: References, as they will be in the next call's share.
    """
    if not self._has_spare_core:
      with self._call_ended:
        self._call_ended.wait_for(lambda: self._last_call >= call)
    self._data.load(columns)

  @ray.method(concurrency_group='control')
  def cancel(self, call: int) -> None:
    """Cancels a running or future call."""
    with self._lock:
      self._cancelled[call] = True
      running = self._running.get(call)
    if running is not None:
      running.cancel()

  @contextlib.contextmanager
  def _cancellable(self, call: int) -> Iterator[tff_functions.Cancellation]:
    cancellation = tff_functions.Cancellation()
    with self._lock:
      self._running[call] = cancellation
      cancelled = call in self._cancelled
    if cancelled:
      cancellation.cancel()
    try:
      yield cancellation
    finally:
      with self._lock:
        del self._running[call]
      with self._call_ended:
        self._last_call = call
        self._call_ended.notify_all()

  def _computation(self, digest: bytes, comp: Sequence[ray.ObjectRef]) -> Any:
    if digest not in self._computations:
      [(message, once, forms)] = ray.get(list(comp))
      wire.register_forms(forms)
      computation = tff_names.computation_from_proto(
        tff_names.ComputationProto.FromString(message)
      )
      self._engine.compile(computation, once)
      self._computations[digest] = computation
    return self._computations[digest]


class _Data:
  """The clients' data, which may be loaded in advance by another thread."""

  def __init__(self) -> None:
    # Sources are not thread-safe.
    self._lock = threading.Lock()
    self._loaded: dict[Hashable, Any] = {}

  def load(self, columns: Sequence[Sequence[references.Reference]]) -> None:
    """Loads data in advance, in place of those of an earlier call."""
    with self._lock:
      self._loaded = {}
      for column in columns:
        # The call itself reports what cannot be loaded.
        with contextlib.suppress(failures.RuntimeFailure):
          keys = [reference.key for reference in column]
          self._loaded |= zip(keys, _load(column), strict=True)

  def of(self, column: Sequence[Any]) -> list[Any]:
    """Returns clients' values, with data in place of all `Reference`s.

    Raises:
      ClientFailure: If a client's data cannot be loaded.
    """
    with self._lock:
      return _load(
        [
          self._loaded.pop(value.key, value)
          if isinstance(value, references.Reference)
          else value
          for value in column
        ]
      )


def _load(column: Sequence[Any]) -> list[Any]:
  """Loads the data of all `Reference`s among the clients' values.

  Raises:
    ClientFailure: If a client's data cannot be loaded.
  """
  values = list(column)
  places: dict[Any, list[int]] = {}
  for place, value in enumerate(values):
    if isinstance(value, references.Reference):
      places.setdefault(value.source, []).append(place)
  for group in places.values():
    found = [values[place] for place in group]
    try:
      loaded = found[0].load(found)
    except failures.ClientFailure as e:
      raise failures.ClientFailure(str(e), group[e.client_index]) from e
    for place, value in zip(group, loaded, strict=True):
      values[place] = value
  return values


def _in_cohort(error: Exception, share: Share) -> str:
  """Returns an error's message with index in the cohort and host name.

  The engine's messages begin with the index in the share: `Client 3 of 10`.
  """
  told = str(error)
  if found := re.match(r'Client (\d+)( of \d+)?', told):
    index = share.clients[int(found[1])]
    told = f'Client {index} of {share.total}{told[found.end() :]}'
  return f'On {socket.gethostname()}: {told}'
