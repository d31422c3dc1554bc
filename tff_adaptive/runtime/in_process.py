"""TFF execution contexts that run computations in this process.

See `program.py` for how a computation is compiled.
"""

import asyncio
from collections.abc import Sequence
import collections
import concurrent.futures
import os
import threading
from typing import Any, Optional
import weakref

import cachetools
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import _tff
from tff_adaptive.runtime import errors
from tff_adaptive.runtime import program as program_lib
from tff_adaptive.runtime import values

_MAX_PROGRAMS = 256


class Engine:
  """Compiles and runs computations; what both contexts share.

  Attributes:
    max_concurrent_clients: Clients that run at once.
    devices: Names of the devices that clients are spread over.
  """

  def __init__(
      self,
      *,
      max_concurrent_clients: Optional[int] = None,
      devices: Optional[Sequence[str]] = None,
      default_num_clients: int = 0,
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
    self.devices = _check_devices(devices)
    self._automatic = max_concurrent_clients is None
    if max_concurrent_clients is None:
      max_concurrent_clients = _default_concurrency(self.devices)
    self.max_concurrent_clients = max_concurrent_clients
    self._default_num_clients = default_num_clients
    self._pool = concurrent.futures.ThreadPoolExecutor(
        max_concurrent_clients, thread_name_prefix='tff_client'
    )
    self._lock = threading.RLock()
    self._programs = cachetools.LRUCache(_MAX_PROGRAMS)
    # Hashing a computation serializes it, all its constants included, so a
    # computation that was seen before is recognized as the same object.
    self._by_id = {}

  def program(self, comp) -> program_lib.Program:
    """The compiled form of `comp`."""
    key = id(comp)
    with self._lock:
      known = self._by_id.get(key)
      if known is not None:
        return known
      compiled = self._programs.get(comp)
      if compiled is None:
        compiled = self._compile(comp)
        self._programs[comp] = compiled
      self._by_id[key] = compiled
      weakref.finalize(comp, self._by_id.pop, key, None)
      return compiled

  def _compile(self, comp) -> program_lib.Program:
    with tf.device(None):
      native = _tff.compile_to_native(comp)
      return program_lib.Program(
          native.to_building_block(), comp.type_signature.parameter
      )

  def run(self, comp, argument: Any) -> Any:
    """Runs `comp`; blocks until the result is there."""
    if not isinstance(comp, tff.framework.ConcreteComputation):
      raise TypeError(
          'The in-process runtime runs `tff.Computation`s, got'
          f' {type(comp).__name__}.'
      )
    program = self.program(comp)
    run = _Run(self, program, comp.type_signature, argument)
    with program.lock:
      return run.result()

  def submit(self, function, *arguments) -> concurrent.futures.Future:
    return self._pool.submit(function, *arguments)

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


class _Run:
  """One invocation."""

  def __init__(self, engine, program, type_signature, argument):
    self._engine = engine
    self._program = program
    self._type = type_signature
    self._server: dict[program_lib.Leaf, tf.Tensor] = {}
    self._clients: list[dict[program_lib.Leaf, tf.Tensor]] = []
    self._ingest(argument)

  def _ingest(self, argument: Any) -> None:
    parameter = self._type.parameter
    count = None
    if parameter is not None and argument is not None:
      count = _tff.infer_num_clients(argument, parameter)
    if count is None:
      count = self._engine._default_num_clients
    self._clients = [{} for _ in range(count)]
    if parameter is None:
      return
    parts = []
    _split(argument, parameter, parts)
    for (kind, node), (value, member) in zip(self._program.arguments, parts):
      if kind == 'client':
        for index, (store, one) in enumerate(zip(self._clients, value)):
          leaves = []
          try:
            values.ingest(one, member, leaves)
          except TypeError as e:
            raise TypeError(f'Client {index}: {e}') from e
          store.update(zip(node.leaves, leaves))
      else:
        leaves = []
        values.ingest(value, member, leaves)
        self._server.update(zip(node.leaves, leaves))

  def result(self) -> Any:
    for phase in self._program.passes:
      self._run_server(phase.server)
      if phase.aggregations or phase.client.outputs:
        self._run_clients(phase)
    restored = self._restore(self._program.result, self._type.result)
    return _tff.to_container(restored, self._type.result)

  def _run_server(self, fused: program_lib.Fused) -> None:
    if not fused.outputs:
      return
    try:
      outputs = fused([self._server[leaf] for leaf in fused.inputs])
    except tf.errors.OpError as e:
      raise errors.RuntimeFailure(
          f'A computation at the server failed: {e.message}'
      ) from e
    self._server.update(zip(fused.outputs, outputs))

  def _run_clients(self, phase: program_lib.Pass) -> None:
    """One pass over the clients: work in parallel, folds in order."""
    count = len(self._clients)
    total = {}
    for aggregation in phase.aggregations:
      for state, zero in zip(aggregation.state.leaves, aggregation.zero):
        total[state] = self._server[zero]
    work = _ClientWork(self, phase)
    threads = 1 if phase.client.ordered else self._engine.threads_for(
        work.shared_bytes
    )
    if threads == 1 or count <= 1 or not phase.client.outputs:
      outcomes = map(work, range(count))
    else:
      outcomes = self._in_order(work, count, threads)
    for index, local in enumerate(outcomes):
      if phase.aggregations:
        total = self._fold(phase, total, local, index)
      # Whatever no later pass needs is freed here, client by client.
      self._clients[index] = {
          leaf: local[leaf] for leaf in phase.keep if leaf in local
      }
    for aggregation in phase.aggregations:
      for leaf, state in zip(
          aggregation.result.leaves, aggregation.state.leaves
      ):
        self._server[leaf] = total[state]

  def _in_order(self, work, count: int, threads: int):
    """Yields `work(0)`, `work(1)`, ... while a few more are under way."""
    gate = threading.Semaphore(threads)

    def guarded(index):
      with gate:
        return work(index)

    # Enough to keep the threads busy while one client takes long, and few
    # enough that finished clients waiting for their turn take little memory.
    ahead = 2 * threads
    futures = collections.deque()
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

  def _fold(self, phase, total, local, index):
    fused = phase.fold

    def find(leaf):
      if leaf in total:
        return total[leaf]
      return self._leaf(leaf, local)

    try:
      outputs = fused([find(leaf) for leaf in fused.inputs])
    except tf.errors.OpError as e:
      raise _client_failure(e, index, len(self._clients), None) from e
    updated = dict(zip(fused.outputs, outputs))
    return {
        state: updated[new] if new in updated else find(new)
        for aggregation in phase.aggregations
        for state, new in zip(aggregation.state.leaves, aggregation.update)
    }

  def _restore(self, value: Any, type_spec: tff.Type) -> Any:
    if isinstance(value, program_lib.Federated):
      leaves = program_lib._flatten(value.value)
      if type_spec.placement is tff.CLIENTS and not type_spec.all_equal:
        return [
            values.restore(
                iter([self._leaf(leaf, store) for leaf in leaves]),
                type_spec.member,
            )
            for store in self._clients
        ]
      return values.restore(
          iter([self._server[leaf] for leaf in leaves]), type_spec.member
      )
    if isinstance(type_spec, tff.StructType):
      return _tff.Struct(
          [
              (name, self._restore(element, element_type))
              for element, (name, element_type) in zip(
                  value, _tff.struct_items(type_spec)
              )
          ]
      )
    return values.restore(iter([self._server[value]]), type_spec)

  def _leaf(self, leaf, store):
    return store[leaf] if leaf in store else self._server[leaf]


class _ClientWork:
  """Runs a pass's client function for one client after another.

  Attributes:
    shared_bytes: Size of what the server sends to each client.
  """

  def __init__(self, run: _Run, phase: program_lib.Pass):
    self._run = run
    self._fused = phase.client
    self._devices = run._engine.devices
    self._own = []
    shared = []
    for position, leaf in enumerate(self._fused.inputs):
      if leaf.node.site == program_lib.CLIENT:
        self._own.append((position, leaf))
        shared.append(None)
      else:
        shared.append(run._server[leaf])
    self.shared_bytes = sum(
        t.dtype.size * (t.shape.num_elements() or 0)
        for t in shared
        if t is not None and t.dtype != tf.variant
    )
    # One copy per device and pass, instead of one per client.
    self._shared = [shared]
    if len(self._devices) > 1:
      self._shared = [_copy_to(device, shared) for device in self._devices]

  def __call__(self, index: int) -> dict[program_lib.Leaf, tf.Tensor]:
    local = dict(self._run._clients[index])
    if not self._fused.outputs:
      return local
    slot = index % len(self._devices)
    arguments = list(self._shared[slot])
    for position, leaf in self._own:
      arguments[position] = local[leaf]
    device = self._devices[slot]
    try:
      with tf.device(device):
        outputs = self._fused(arguments)
    except (tf.errors.OpError, MemoryError) as e:
      raise _client_failure(
          e,
          index,
          len(self._run._clients),
          self._run._engine.max_concurrent_clients,
          device,
      ) from e
    local.update(zip(self._fused.outputs, outputs))
    return local


def _copy_to(device: str, tensors):
  with tf.device(device):
    return [
        t if t is None or t.dtype == tf.variant else tf.identity(t)
        for t in tensors
    ]


def _client_failure(error, index, count, concurrent_clients, device='the CPU'):
  if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
    return errors.ClientFailure(
        f'Client {index} of {count} ran out of memory on {device}, with'
        f' {concurrent_clients} clients at once: lower max_concurrent_clients,'
        f' the batch size or the size of the model. ({error})',
        index,
    )
  return errors.ClientFailure(
      f'Client {index} of {count} failed:'
      f' {getattr(error, "message", str(error))}',
      index,
  )


def _split(argument: Any, type_spec: tff.Type, parts: list) -> None:
  """Appends the parts of an argument as `Tracer.argument` numbers them."""
  if isinstance(type_spec, tff.FederatedType):
    parts.append((argument, type_spec.member))
  elif isinstance(type_spec, tff.StructType):
    elements = values.struct_elements(argument, type_spec)
    for element, (_, element_type) in zip(
        elements, _tff.struct_items(type_spec)
    ):
      _split(element, element_type, parts)
  else:
    parts.append((argument, type_spec))


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

  def invoke(self, comp, arg):
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

  async def invoke(self, comp, arg):
    if asyncio.iscoroutine(arg):
      arg = await arg
    return await asyncio.get_running_loop().run_in_executor(
        self._invocations, self._engine.run, comp, arg
    )

  def close(self) -> None:
    """Ends the threads; the context cannot be used afterwards."""
    self._invocations.shutdown(wait=False, cancel_futures=True)
    self._engine.close()
