"""TFF execution contexts that run computations in this process.

See `program.py` for how a computation is compiled.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import cachetools
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import _tff
from tff_adaptive.runtime import errors
from tff_adaptive.runtime import fused as fused_lib
from tff_adaptive.runtime import nodes as nodes_lib
from tff_adaptive.runtime import program as program_lib
from tff_adaptive.runtime import values

# Computations built anew, but equal, find the program of the first.
_MAX_PROGRAMS = 64
# Clients folded in one call if their values are small.
_FOLD_AT_ONCE = 8
_SMALL_BYTES = 1 << 20


class Engine:
  """Compiles and runs computations; what both contexts share.

  Attributes:
    max_concurrent_clients: Clients that run at once.
    devices: Names of the devices that clients are spread over.
    aggregation_seconds: Spent until now on adding up what clients sent and on
      what the server computes.
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
    if max_concurrent_clients is not None and max_concurrent_clients < 1:
      raise ValueError(
        '`max_concurrent_clients` must be at least 1 or None (chosen from'
        f' cores and devices), got {max_concurrent_clients!r}.'
      )
    if default_num_clients < 0:
      raise ValueError(
        '`default_num_clients` must be at least 0, got'
        f' {default_num_clients!r}.'
      )
    _tff.spare_datasets_the_optimizer()
    self.devices = _check_devices(devices)
    self._automatic = max_concurrent_clients is None
    if max_concurrent_clients is None:
      max_concurrent_clients = _default_concurrency(self.devices)
    self.max_concurrent_clients = max_concurrent_clients
    self._default_num_clients = default_num_clients
    self._pool = concurrent.futures.ThreadPoolExecutor(
      max_concurrent_clients, thread_name_prefix='tff_client'
    )
    # TensorFlow's own choice: the first GPU for what has a kernel there.
    self.server_device = ''
    if dataset_cache_bytes < 0:
      raise ValueError(
        '`dataset_cache_bytes` must be at least 0, got'
        f' {dataset_cache_bytes!r}.'
      )
    self._datasets = values.DatasetCache(dataset_cache_bytes)
    self.aggregation_seconds = 0.0
    self._lock = threading.RLock()
    self._compiled = cachetools.LRUCache(_MAX_PROGRAMS)
    # Hashing a computation serializes it, all its constants included, so a
    # computation that was seen before is recognized as the same object.
    self._by_id: dict[int, tuple[program_lib.Program, Signature]] = {}

  def compile(
    self, comp: Any, compiled: bool = False
  ) -> tuple[program_lib.Program, 'Signature']:
    """The program of `comp`, which is in native form if `compiled`."""
    key = id(comp)
    with self._lock:
      known = self._by_id.get(key)
      if known is not None:
        return known
      digest = _tff.computation_digest(comp)
      program = self._compiled.get(digest)
      if program is None:
        program = program_lib.Program(comp, compiled)
        self._compiled[digest] = program
      # Equal computations may still differ in their Python containers.
      known = program, Signature(program, comp.type_signature, self._datasets)
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
    run = _Run(self, program, count)
    signature.ingest(argument, run.server, run.clients)
    with program.lock:
      run.execute()
    return signature.restore(run.server, run.clients)

  def submit(self, function: Any, *arguments: Any) -> concurrent.futures.Future:
    try:
      return self._pool.submit(function, *arguments)
    except RuntimeError as e:
      raise errors.RuntimeFailure(
        'This in-process context was closed; call set_in_process_context again.'
      ) from e

  @contextlib.contextmanager
  def aggregating(self) -> Iterator[Any]:
    """What happens inside counts as aggregation."""
    start = time.perf_counter()
    yield
    with self._lock:
      self.aggregation_seconds += time.perf_counter() - start

  def threads_for(self, shared_bytes: int) -> int:
    """Clients that may run at once, given what each copies at least.

    Args:
      shared_bytes: Size of what the server sends to each client.
    """
    if not self._automatic or not shared_bytes:
      return self.max_concurrent_clients
    # Weights, gradient, update, optimizer state and temporaries.
    room = _available_memory() // (2 * 6 * shared_bytes)
    return max(1, min(self.max_concurrent_clients, room))

  def close(self) -> None:
    self._pool.shutdown(wait=False, cancel_futures=True)


class Signature:
  """How a computation's arguments and results become tensors and back."""

  def __init__(
    self,
    program: program_lib.Program,
    type_signature: Any,
    datasets: values.DatasetCache,
  ):
    """Compiles the conversions.

    Args:
      program: The compiled computation.
      type_signature: Its `tff.FunctionType`, with Python containers.
      datasets: Datasets seen before.
    """
    self._parts: list[tuple[bool, list[int], Callable]] = []
    self._parameter = type_signature.parameter
    self._split: Callable = lambda value, out: None
    if self._parameter is not None:
      members: list[tff.Type] = []
      self._split = _compile_parts(self._parameter, members)
      for (kind, node), member in zip(program.arguments, members):
        slots = [leaf.slot for leaf in node.leaves]
        ingest = values.compile_ingest(member, datasets)
        self._parts.append((kind == 'client', slots, ingest))
    self._restore = _compile_result(program.result, type_signature.result)

  def num_clients(self, argument: Any) -> Optional[int]:
    if self._parameter is None or not any(part[0] for part in self._parts):
      return None
    parts: list[Any] = []
    self._split(argument, parts)
    counts = set()
    for (at_clients, _, _), value in zip(self._parts, parts):
      if at_clients:
        if not isinstance(value, (list, tuple)):
          raise TypeError(
            'Expected a list or tuple with one value per client, got'
            f' {type(value).__name__}.'
          )
        counts.add(len(value))
    if len(counts) > 1:
      raise ValueError(
        'The arguments disagree about the number of clients: they have'
        f' {sorted(counts)} elements.'
      )
    return counts.pop()

  def ingest(self, argument: Any, server: list, clients: list[dict]) -> None:
    """Puts the argument's tensors into the slots of server and clients."""
    if self._parameter is None:
      return
    parts: list[Any] = []
    self._split(argument, parts)
    for (at_clients, slots, ingest), value in zip(self._parts, parts):
      if at_clients:
        for index, (store, one) in enumerate(zip(clients, value)):
          leaves: list[tf.Tensor] = []
          try:
            ingest(one, leaves)
          except TypeError as e:
            raise TypeError(f'Client {index}: {e}') from e
          store.update(zip(slots, leaves))
      else:
        leaves = []
        ingest(value, leaves)
        for slot, leaf in zip(slots, leaves):
          server[slot] = leaf

  def restore(self, server: list, clients: list[dict]) -> Any:
    """The Python value of the result."""
    return self._restore(server, clients)


def _compile_parts(type_spec: tff.Type, members: list) -> Callable:
  """Splits arguments as `Tracer.argument` numbers their parts.

  Args:
    type_spec: Of the argument.
    members: Receives the unplaced type of each part.

  Returns:
    A function of a value and a list that receives the parts.
  """
  if isinstance(type_spec, tff.FederatedType):
    members.append(type_spec.member)
    return lambda value, out: out.append(value)
  if isinstance(type_spec, tff.StructType):
    split = values.compile_split(type_spec)
    inner = [
      _compile_parts(element, members)
      for _, element in _tff.struct_items(type_spec)
    ]

    def parts(value: Any, out: Any) -> None:
      for part, element in zip(inner, split(value)):
        part(element, out)

    return parts
  members.append(type_spec)
  return lambda value, out: out.append(value)


def _compile_result(value: Any, type_spec: tff.Type) -> Callable:
  """A function from the slots of server and clients to a Python value."""
  if isinstance(value, nodes_lib.Federated):
    slots = [leaf.slot for leaf in nodes_lib.flatten(value.value)]
    restore = values.compile_restore(type_spec.member)
    if type_spec.placement is tff.CLIENTS and not type_spec.all_equal:
      return lambda server, clients: [
        restore(
          iter(
            [store[slot] if slot in store else server[slot] for slot in slots]
          )
        )
        for store in clients
      ]
    return lambda server, clients: restore(
      iter([server[slot] for slot in slots])
    )
  if isinstance(type_spec, tff.StructType):
    parts = [
      _compile_result(element, element_type)
      for element, (_, element_type) in zip(value, _tff.struct_items(type_spec))
    ]
    pack = values.compile_pack(type_spec)
    return lambda server, clients: pack(
      [part(server, clients) for part in parts]
    )
  restore = values.compile_restore(type_spec)
  return lambda server, clients: restore(iter([server[value.slot]]))


class _Run:
  """One invocation: the tensors in the slots of the server and each client."""

  def __init__(
    self,
    engine: Engine,
    program: program_lib.Program,
    num_clients: int,
  ):
    self._engine = engine
    self._program = program
    self.server: list[Optional[tf.Tensor]] = [None] * program.num_slots
    self.clients: list[dict[int, tf.Tensor]] = [{} for _ in range(num_clients)]

  def execute(self) -> None:
    for phase in self._program.passes:
      if phase.server.outputs:
        with self._engine.aggregating():
          self._run_server(phase.server)
      if phase.total or phase.client.outputs or phase.keep:
        self._run_clients(phase)

  def _run_server(self, fused: fused_lib.Fused) -> None:
    server = self.server
    try:
      outputs = fused(
        [server[leaf.slot] for leaf in fused.inputs],
        self._engine.server_device,
      )
    except tf.errors.OpError as e:
      raise errors.RuntimeFailure(
        f'A computation at the server failed: {e.message}'
      ) from e
    for leaf, tensor in zip(fused.outputs, outputs):
      server[leaf.slot] = tensor

  def _run_clients(self, phase: program_lib.Pass) -> None:
    """One pass over the clients: work in parallel, folds in order."""
    count = len(self.clients)
    work = _ClientWork(self, phase)
    fold = _Fold(self, phase)
    threads = self._engine.threads_for(work.shared_bytes)
    if (
      threads == 1
      or count <= 1
      or phase.client.ordered
      or work.ordered
      or not phase.client.outputs
    ):
      outcomes: Iterable[Any] = map(work, range(count))
    else:
      outcomes = self._in_order(work, count, threads)
    for index, local in enumerate(outcomes):
      with self._engine.aggregating():
        fold.add(index, local)
      # Whatever no later pass needs is freed here, client by client.
      self.clients[index] = {
        slot: local[slot] for slot in phase.keep if slot in local
      }
    with self._engine.aggregating():
      fold.finish()
    for slot, tensor in zip(phase.total, fold.totals):
      self.server[slot] = tensor

  def _in_order(
    self, work: '_ClientWork', count: int, threads: int
  ) -> Iterator[Any]:
    """Yields `work(0)`, `work(1)`, ... while a few more are under way."""
    # Enough to keep the threads busy while one client takes long, and few
    # enough that finished clients waiting for their turn take little memory.
    ahead = 2 * threads
    gate = threading.Semaphore(threads)

    def guarded(index: int) -> Any:
      with gate:
        return work(index)

    futures: collections.deque[concurrent.futures.Future] = collections.deque()
    following = 0
    try:
      while following < count or futures:
        while following < count and len(futures) < ahead:
          futures.append(self._engine.submit(guarded, following))
          following += 1
        yield futures.popleft().result()
    finally:
      for future in futures:
        future.cancel()
      concurrent.futures.wait(futures)


class _ClientWork:
  """Runs a pass's client function for one client after another.

  Attributes:
    shared_bytes: Size of what the server sends to each client.
    ordered: Whether clients must run one after another, because some of them
      have the same dataset object: one that shuffles gives each iteration the
      next order, and which client gets which must not depend on threads.
  """

  def __init__(self, run: _Run, phase: program_lib.Pass):
    self._run = run
    self._fused = phase.client
    self._devices = run._engine.devices
    self._outputs = [leaf.slot for leaf in phase.client.outputs]
    self._own = []
    shared: list[Optional[tf.Tensor]] = []
    for position, leaf in enumerate(phase.client.inputs):
      if leaf.node.site == nodes_lib.CLIENT:
        self._own.append((position, leaf.slot))
        shared.append(None)
      else:
        shared.append(run.server[leaf.slot])
    self.shared_bytes = _size([t for t in shared if t is not None])
    self._listable = [
      (position, leaf.slot)
      for position, leaf in enumerate(phase.client.inputs)
      if leaf in phase.client.listable
    ]
    # Not on GPUs, where the batches have to be copied anyway.
    if any('GPU' in device for device in self._devices):
      self._listable = []
    self.ordered = any(
      _occurs_twice([store.get(slot) for store in run.clients])
      for _, slot in self._own
    )
    if self._outputs:
      listed = {self._lists(store) is not None for store in run.clients}
      for form in listed:
        phase.client.prepare(form)
    # One copy per device and pass, instead of one per client.
    self._shared = [shared]
    if len(self._devices) > 1:
      self._shared = [_copy_to(device, shared) for device in self._devices]

  def __call__(self, index: int) -> dict[int, tf.Tensor]:
    local = self._run.clients[index]
    if not self._outputs:
      return local
    slot = index % len(self._devices)
    arguments = list(self._shared[slot])
    for position, own in self._own:
      arguments[position] = local[own]
    lists = self._lists(local)
    if lists is not None:
      for (position, _), tensor in zip(self._listable, lists):
        arguments[position] = tensor
    try:
      outputs = self._fused(arguments, self._devices[slot], lists is not None)
    except (tf.errors.OpError, MemoryError) as e:
      raise _client_failure(e, index, self._run, self._devices[slot]) from e
    return {**local, **dict(zip(self._outputs, outputs))}

  def _lists(self, local: Any) -> Optional[list[tf.Tensor]]:
    """Lists of batches for all datasets of a client, if there are."""
    if not self._listable:
      return None
    lists = []
    for _, slot in self._listable:
      variant = local.get(slot)
      batches = getattr(variant, 'tff_adaptive_batches', None)
      if batches is None:
        return None
      lists.append(batches)
    return lists


class _Fold:
  """Adds clients' values to the accumulators, in the clients' order."""

  def __init__(self, run: _Run, phase: program_lib.Pass):
    self._run = run
    self._fold = phase.fold
    self._device = run._engine.server_device
    self._slots = [leaf.slot for leaf in phase.fold.inputs]
    self._shared = [run.server[leaf.slot] for leaf in phase.fold.shared]
    self._waiting: list[tuple[int, list[tf.Tensor]]] = []
    self._at_once: Optional[int] = None
    self.totals = [run.server[slot] for slot in phase.zero]

  def add(self, index: int, local: dict[int, tf.Tensor]) -> None:
    values = [local[slot] for slot in self._slots]
    self._waiting.append((index, values))
    if self._at_once is None:
      # A few small clients wait for one call; large ones would take memory.
      small = _size(values) <= _SMALL_BYTES
      self._at_once = _FOLD_AT_ONCE if small else 1
    if len(self._waiting) >= self._at_once:
      self.finish()

  def finish(self) -> None:
    """Adds those that wait."""
    while self._waiting:
      # Powers of two, so that few functions are ever traced.
      count = 1 << (len(self._waiting).bit_length() - 1)
      some, self._waiting = self._waiting[:count], self._waiting[count:]
      self._add(some)

  def _add(self, clients: list[tuple[int, list[tf.Tensor]]]) -> None:
    try:
      self.totals = self._fold(
        self.totals, self._shared, [v for _, v in clients], self._device
      )
    except tf.errors.OpError as e:
      if len(clients) > 1:
        # One by one, to learn whose values cannot be added.
        for client in clients:
          self._add([client])
        return
      index, _ = clients[0]
      raise _client_failure(e, index, self._run, self._device) from e


def _size(tensors: Sequence[tf.Tensor]) -> int:
  return sum(
    t.dtype.size * (t.shape.num_elements() or 0)
    for t in tensors
    if t.dtype != tf.variant
  )


def _occurs_twice(tensors: Sequence[Optional[tf.Tensor]]) -> bool:
  """Whether a dataset that may change is in the list more than once."""
  datasets = [
    id(t)
    for t in tensors
    if t is not None
    and t.dtype == tf.variant
    and not hasattr(t, 'tff_adaptive_batches')
  ]
  return len(set(datasets)) < len(datasets)


def _copy_to(device: str, tensors: Any) -> Any:
  with tf.device(device):
    return [
      t if t is None or t.dtype == tf.variant else tf.identity(t)
      for t in tensors
    ]


def _client_failure(
  error: Exception, index: int, run: _Run, device: str
) -> errors.ClientFailure:
  count = len(run.clients)
  if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
    place = device.rpartition('device:')[2] or 'this machine'
    return errors.ClientFailure(
      f'Client {index} of {count} ran out of memory on {place}, with up to'
      f' {run._engine.max_concurrent_clients} clients at once: lower'
      ' max_concurrent_clients, the batch size or the size of the model.'
      f' ({error})',
      index,
    )
  return errors.ClientFailure(
    f'Client {index} of {count} failed:'
    f' {getattr(error, "message", None) or error}',
    index,
  )


def _check_devices(names: Optional[Sequence[str]]) -> list[str]:
  """Full names of the devices asked for; by default all GPUs, else the CPU."""
  known = [device.name for device in tf.config.list_logical_devices()]
  short = {name.rpartition('device:')[2]: name for name in known}
  if names is None:
    gpus = [name for name in short if name.startswith('GPU')]
    return [short[name] for name in gpus] or [short['CPU:0']]
  if isinstance(names, str) or not names:
    raise ValueError(
      f'`devices` must be a list of device names, got {names!r}; this'
      f' process has {", ".join(short)}.'
    )
  chosen = []
  for name in names:
    key = name.rpartition('device:')[2].lstrip('/').upper()
    if name not in known and key not in short:
      raise ValueError(
        f'There is no device {name!r}; this process has {", ".join(short)}.'
      )
    chosen.append(name if name in known else short[key])
  return chosen


def _default_concurrency(devices: Sequence[str]) -> int:
  cores = len(os.sched_getaffinity(0))
  gpus = sum('GPU' in device for device in devices)
  if not gpus:
    return max(1, cores)
  # A second client per GPU hides the gaps between a client's kernels.
  return max(1, min(2 * gpus, cores))


def _available_memory() -> int:
  with open('/proc/meminfo', encoding='ascii') as file:
    for line in file:
      if line.startswith('MemAvailable:'):
        return int(line.split()[1]) * 1024
  return 1 << 62


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
