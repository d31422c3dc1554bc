"""One run of a compiled computation, phase by phase."""

import collections
import concurrent.futures
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import sharing
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime import waiting
from tff_adaptive.runtime.engine import dataset_cache
from tff_adaptive.runtime.engine import executable as executable_lib
from tff_adaptive.runtime.engine import fused as fused_lib
from tff_adaptive.runtime.engine import lockstep
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import phases
from tff_adaptive.runtime.engine import resources as resources_lib

_logger = logging.getLogger(__name__)

# Number of clients folded in one call, if each one's values are small.
_FOLD_AT_ONCE = 8
_SMALL_BYTES = 1 << 20
# Memory for outputs of finished clients that wait for their turn.
_WAITING_BYTES = 32 << 20


class Invocation:
  """One run of an executable, with its tensors.

  Attributes:
    server: The server's tensors by slot.
    clients: Each client's tensors by slot, in the cohort's order.
    resources: Threads, devices and memory.
    cancellation: Cancels the run.
  """

  def __init__(
    self,
    resources: resources_lib.Resources,
    executable: executable_lib.Executable,
    num_clients: int,
    cancellation: tff_functions.Cancellation | None = None,
  ):
    """Creates a run with empty slots.

    Args:
      resources: Threads, devices and memory.
      executable: The compiled computation.
      num_clients: Size of the cohort.
      cancellation: Cancels the run from another thread.
    """
    self.resources = resources
    self._phases = executable.phases
    self.server: nodes_lib.ServerTensors = [None] * executable.num_slots
    self.clients: list[nodes_lib.ClientTensors] = [
      {} for _ in range(num_clients)
    ]
    self.cancellation = cancellation or tff_functions.Cancellation()

  def execute(self) -> None:
    """Runs all phases; the arguments' slots must be filled.

    Python handles signals such as Ctrl-C in the main thread, but not while that
    is inside TensorFlow. So there another thread runs the phases, and an
    exception raised by a signal handler cancels them.

    Raises:
      ClientFailure: If a client's TensorFlow code fails.
      RuntimeFailure: If the server's TensorFlow code fails.
    """
    if threading.current_thread() is not threading.main_thread():
      self._execute()
      return
    future = self.resources.submit(self._execute, beside=True)
    try:
      waiting.result_of(future)
    finally:
      if not future.done():
        self.cancellation.cancel()
        concurrent.futures.wait([future])

  def _execute(self) -> None:
    try:
      for phase in self._phases:
        if phase.server.outputs:
          with self.resources.aggregating():
            self._run_server(phase.server)
        if phase.total or phase.client.outputs or phase.keep:
          self._run_clients(phase)
    except BaseException:
      self.cancellation.cancel()  # Stops the other clients.
      raise

  def _run_server(self, fused: fused_lib.Fused) -> None:
    server = self.server
    # Datasets' iterators follow their variants, and GPUs have none.
    makes_datasets = any(o.spec.dtype == tf.variant for o in fused.outputs)
    try:
      outputs = fused(
        self.cancellation,
        [server[leaf.slot] for leaf in fused.inputs],
        '/device:CPU:0' if makes_datasets else '',
      )
    except tf.errors.OpError as e:
      raise failures.RuntimeFailure(
        f'A computation at the server failed: {e.message}'
      ) from e
    for leaf, tensor in zip(fused.outputs, outputs):
      server[leaf.slot] = tensor

  def _run_clients(self, phase: phases.Phase) -> None:
    """Runs clients and accumulates their values in order."""
    together = phase.together
    if not self.clients or not self.resources.vectorizes(
      phase.client.shared_bytes, phase.loops
    ):
      self._run_alone(phase)
      return
    done, reason = False, ''
    try:
      done = together is not None and self._run_together(phase, together)
    except failures.CannotVectorize as e:
      phase.alone_because, phase.together = str(e), None
    except (tf.errors.OpError, MemoryError) as e:
      self.cancellation.check()
      reason = str(e).partition('\n')[0] or type(e).__name__
    # Not within `except`, where the error keeps the groups' tensors.
    if not reason:
      if not done:
        self._say_alone(phase)
        self._run_alone(phase)
      return
    assert together is not None
    if self._compiles(together):
      together.cannot_compile = reason
      try:
        self._run_clients(phase)
      except BaseException:
        together.cannot_compile = ''  # XLA is not to blame.
        raise
      _logger.warning('Clients train without XLA: %s', reason)
      return
    # Alone, to find the client that fails.
    self._run_alone(phase)
    # None does, so it is due to the form for several clients.
    phase.alone_because, phase.together = reason, None
    self._say_alone(phase)

  def _joined(
    self, phase: phases.Phase, together: lockstep.Together
  ) -> lockstep.Rows | None:
    """Joins clients' rows; `None` if theirs cannot be, as others' may be.

    After a cohort of large data no other one trains together.
    """
    try:
      return lockstep.joined(
        [c[together.data.slot] for c in self.clients],
        few_sizes=self._compiles(together),
        only_own=self.resources.on_gpu,
        check=self.cancellation.check,
      )
    except failures.CannotVectorize as e:
      phase.alone_because = '' if str(e) in phase.said else str(e)
    except MemoryError as e:
      phase.alone_because, phase.together = str(e), None
    except tf.errors.OpError:
      phase.alone_because = ''  # Alone, the client that fails is named.
    return None

  def _compiles(self, together: lockstep.Together) -> bool:
    return self.resources.jit_compile and not together.cannot_compile

  def _say_alone(self, phase: phases.Phase) -> None:
    """Logs once why clients train one at a time."""
    if phase.alone_because:
      asked = self.resources.vectorize_clients == 'true'
      _logger.log(
        logging.WARNING if asked else logging.INFO,
        'Clients train one at a time: %s.',
        phase.alone_because,
      )
      phase.said.add(phase.alone_because)
      phase.alone_because = ''

  def _run_together(
    self, phase: phases.Phase, together: lockstep.Together
  ) -> bool:
    """Runs clients in groups, each in one call, and accumulates them.

    Returns:
      Whether their rows can be joined; otherwise nothing runs.

    Raises:
      CannotVectorize: If TensorFlow cannot vectorize their function.
      tf.errors.OpError, MemoryError: If a group, a copy of its rows or its sum
        fails; which client is to blame is unknown.
    """
    if (rows := self._joined(phase, together)) is None:
      return False
    shared = [self.server[leaf.slot] for leaf in phase.fold.shared]
    totals = [self.server[slot] for slot in phase.zero]
    kept: dict[int, nodes_lib.ClientTensors] = {}
    on_gpu = self.resources.on_gpu
    # Copied once a device, and not for each group.
    components = [
      _copy_to(device, rows.components) if on_gpu else rows.components
      for device in self.resources.devices
    ]
    for block in lockstep.blocks(
      len(self.clients), phase.client.output_bytes, on_gpu
    ):
      groups = self._run_block(together, rows, components, block)
      with self.resources.aggregating():
        totals = self._add_groups(phase, totals, shared, groups)
      for members, outputs in groups:
        kept.update(self._kept(phase, members, outputs))
    for index, local in kept.items():
      self.clients[index] = local
    for slot, tensor in zip(phase.total, totals):
      self.server[slot] = tensor
    return True

  def _run_block(
    self,
    together: lockstep.Together,
    rows: lockstep.Rows,
    components: Sequence[Sequence[tf.Tensor]],
    block: range,
  ) -> list[tuple[Sequence[int], dict[int, tf.Tensor]]]:
    """Runs some clients in groups; returns each group's stacked outputs.

    Args:
      together: The clients' function.
      rows: The data of all clients.
      components: The rows' tensors, for each device.
      block: The clients to run.
    """
    members = lockstep.groups(
      block,
      rows,
      # A GPU is kept busy by more clients in a call, not by more calls.
      1 if self.resources.on_gpu else self.resources.max_concurrent_clients,
      len(self.resources.devices),
      together.received_bytes,
    )
    compiled = self._compiles(together)
    size = lockstep.rounded_up(max(map(len, members)))
    if compiled:  # A single client would not be vectorized.
      size = max(2, size)
    functions = [
      together.function(
        size,
        rows.padded_size,
        rows.components,
        rows.most_batches(group) if compiled else None,
      )
      for group in members
    ]
    shared = [self.server[leaf.slot] for leaf in together.shared]

    def run(place: int) -> dict[int, tf.Tensor]:
      group = members[place]
      on = place % len(self.resources.devices)
      arguments = [
        *shared,
        *(
          lockstep.stacked([self.clients[i][leaf.slot] for i in group], size)
          for leaf in together.own
        ),
        lockstep.numbers([rows.begin[i] for i in group], size),
        lockstep.numbers([rows.end[i] for i in group], size),
        *components[on],
      ]
      device = self.resources.devices[on]
      outputs = functions[place](arguments, device, self.cancellation)
      return dict(zip(together.output_slots, outputs))

    if len(members) == 1:
      return [(members[0], run(0))]
    futures = [self.resources.submit(run, i) for i in range(len(members))]
    try:
      return [
        (group, waiting.result_of(future))
        for group, future in zip(members, futures)
      ]
    finally:
      concurrent.futures.wait(futures)

  def _add_groups(
    self,
    phase: phases.Phase,
    totals: list[tf.Tensor],
    shared: list[tf.Tensor],
    groups: Sequence[tuple[Sequence[int], dict[int, tf.Tensor]]],
  ) -> list[tf.Tensor]:
    values = []
    members = [index for group, _ in groups for index in group]
    order = sorted(range(len(members)), key=members.__getitem__)
    for group, outputs in groups:
      own = [
        outputs[leaf.slot]
        if leaf.slot in outputs
        else lockstep.stacked(
          [self.clients[i][leaf.slot] for i in group], len(group)
        )
        for leaf in phase.fold.inputs
      ]
      values.append((len(group), own))
    return phase.fold.over_groups(
      self.cancellation,
      totals,
      shared,
      values,
      lockstep.numbers(order, len(order)),
      self.resources.devices if self.resources.on_gpu else (),
    )

  def _kept(
    self,
    phase: phases.Phase,
    group: Sequence[int],
    outputs: dict[int, tf.Tensor],
  ) -> dict[int, nodes_lib.ClientTensors]:
    """Returns what later phases need of each client of a group."""
    with tf.device('/device:CPU:0'):  # One copy for all clients.
      made = {s: tf.unstack(outputs[s]) for s in phase.keep if s in outputs}
    kept = {}
    for place, index in enumerate(group):
      local = self.clients[index]
      kept[index] = {
        slot: made[slot][place] if slot in made else local[slot]
        for slot in phase.keep
        if slot in made or slot in local
      }
    return kept

  def _run_alone(self, phase: phases.Phase) -> None:
    """Runs clients one by one, in parallel threads."""
    count = len(self.clients)
    work = _ClientCalls(self, phase)
    accumulation = _Accumulation(self, phase)
    threads = self.resources.threads_for(work.shared_bytes)
    if (
      threads == 1
      or count <= 1
      or phase.client.ordered
      or work.ordered
      or not phase.client.outputs
    ):
      outcomes: Iterable[nodes_lib.ClientTensors] = map(work, range(count))
    else:
      outcomes = self._in_order(work, count, threads)
    for index, local in enumerate(outcomes):
      with self.resources.aggregating():
        accumulation.add(index, local)
      # Frees the client's tensors that no later phase needs.
      self.clients[index] = {
        slot: local[slot] for slot in phase.keep if slot in local
      }
    with self.resources.aggregating():
      accumulation.finish()
    for slot, tensor in zip(phase.total, accumulation.totals):
      self.server[slot] = tensor

  def _in_order(
    self, work: '_ClientCalls', count: int, threads: int
  ) -> Iterator[nodes_lib.ClientTensors]:
    """Yields `work(0)`, `work(1)`, ..., computed ahead in several threads.

    Clients with the most batches start first, so that no thread is left with a
    long one when the others are idle. Results are yielded in the cohort's
    order.
    """
    # Keeps threads busy while one client takes long, and bounds the memory of
    # finished clients that wait for their turn.
    ahead = max(2 * threads, _WAITING_BYTES // work.output_bytes)
    gate = threading.Semaphore(threads)
    # Sorted within blocks of `ahead` clients, so that the next client to yield
    # has always been submitted.
    order = [
      index
      for start in range(0, count, ahead)
      for index in sorted(
        range(start, min(start + ahead, count)), key=work.steps, reverse=True
      )
    ]

    def guarded(index: int) -> nodes_lib.ClientTensors:
      with gate:
        return work(index)

    remaining = collections.deque(order)
    futures: dict[int, concurrent.futures.Future] = {}
    try:
      for index in range(count):
        while remaining and len(futures) < ahead:
          following = remaining.popleft()
          futures[following] = self.resources.submit(guarded, following)
        outcome = waiting.result_of(futures[index])
        del futures[index]
        yield outcome
    except BaseException:
      self.cancellation.cancel()
      raise
    finally:
      for future in futures.values():
        future.cancel()
      concurrent.futures.wait(futures.values())


class _ClientCalls:
  """A phase's client function, called with a client's index.

  Attributes:
    shared_bytes: Size of the server's tensors that each client receives.
    output_bytes: Size of a client's outputs, at least 1; `_WAITING_BYTES` if
      unknown.
    ordered: Whether clients must run one by one because some share a dataset
      object: if it shuffles, its order changes with each iteration, and
      clients' orders must not depend on threads.
  """

  def __init__(self, run: Invocation, phase: phases.Phase):
    self._run = run
    self._fused = phase.client
    self._devices = run.resources.devices
    self._outputs = [leaf.slot for leaf in phase.client.outputs]
    made = phase.client.output_bytes
    self.output_bytes = max(1, _WAITING_BYTES if made is None else made)
    self._own = []
    shared: list[tf.Tensor | None] = []
    for position, leaf in enumerate(phase.client.inputs):
      if leaf.node.site is nodes_lib.CLIENT:
        self._own.append((position, leaf.slot))
        shared.append(None)
      else:
        shared.append(run.server[leaf.slot])
    self.shared_bytes = _size(
      phase.client.shared_bytes, [t for t in shared if t is not None]
    )
    # Slots of replaceable inputs, by position; none on GPUs, where batches must
    # be copied anyway.
    self._replaceable = {
      position: leaf.slot
      for position, leaf in enumerate(phase.client.inputs)
      if leaf in phase.client.replaceable and not run.resources.on_gpu
    }
    self.ordered = any(
      _occurs_twice([store.get(slot) for store in run.clients])
      for _, slot in self._own
    )
    if self._outputs:
      for of_rows in {self._has_rows(store) for store in run.clients}:
        # Traced before several threads call it.
        phase.client.function(of_rows)
    # Copied once per device and phase instead of once per client.
    self._shared = [shared]
    self._places = [0] * len(run.clients)
    if len(self._devices) > 1:
      work = [float(self.steps(index)) for index in range(len(run.clients))]
      self._places = sharing.spread(work, len(self._devices))
      self._shared = [_copy_to(device, shared) for device in self._devices]

  def steps(self, index: int) -> int:
    """Returns a client's number of batches; 0 if unknown."""
    local = self._run.clients[index]
    return sum(getattr(local.get(slot), 'count', 0) for _, slot in self._own)

  def __call__(self, index: int) -> nodes_lib.ClientTensors:
    local = self._run.clients[index]
    if not self._outputs:
      return local
    place = self._places[index]
    arguments = list(self._shared[place])
    of_rows = self._has_rows(local)
    for position, slot in self._own:
      if of_rows and position in self._replaceable:
        arguments[position] = local[slot].packed
      else:
        arguments[position] = dataset_cache.dataset_of(local[slot])
    try:
      outputs = self._fused(
        self._run.cancellation, arguments, self._devices[place], of_rows
      )
    except (tf.errors.OpError, MemoryError) as e:
      raise _client_failure(e, index, self._run, self._devices[place]) from e
    return {**local, **dict(zip(self._outputs, outputs))}

  def _has_rows(self, local: nodes_lib.ClientTensors) -> bool:
    """Returns whether the rows of all of a client's datasets are known."""
    return bool(self._replaceable) and all(
      dataset_cache.has_rows(local.get(slot))
      for slot in self._replaceable.values()
    )


class _Accumulation:
  """A phase's accumulators, to which clients are added in order.

  Attributes:
    totals: The accumulators.
  """

  def __init__(self, run: Invocation, phase: phases.Phase):
    self._run = run
    self._fold = phase.fold
    self._slots = [leaf.slot for leaf in phase.fold.inputs]
    self._shared = [run.server[leaf.slot] for leaf in phase.fold.shared]
    self._waiting: list[tuple[int, list[tf.Tensor]]] = []
    self._at_once: int | None = None
    self.totals = [run.server[slot] for slot in phase.zero]

  def add(self, index: int, local: nodes_lib.ClientTensors) -> None:
    """Adds a client's values, buffering small ones of several clients."""
    values = [local[slot] for slot in self._slots]
    self._waiting.append((index, values))
    if self._at_once is None:
      # Buffers small clients for one call; large ones would take memory.
      small = _size(self._fold.input_bytes, values) <= _SMALL_BYTES
      self._at_once = _FOLD_AT_ONCE if small else 1
    if len(self._waiting) >= self._at_once:
      self.finish()

  def finish(self) -> None:
    """Adds the buffered values."""
    while self._waiting:
      # Powers of two, so that few functions are traced.
      count = 1 << (len(self._waiting).bit_length() - 1)
      some, self._waiting = self._waiting[:count], self._waiting[count:]
      self._add(some)

  def _add(self, clients: list[tuple[int, list[tf.Tensor]]]) -> None:
    try:
      self.totals = self._fold(
        self._run.cancellation,
        self.totals,
        self._shared,
        [v for _, v in clients],
      )
    except tf.errors.OpError as e:
      if len(clients) > 1:
        # Retries one by one, to find the client that fails.
        for client in clients:
          self._add([client])
        return
      index, _ = clients[0]
      raise _client_failure(e, index, self._run, '') from e


def _size(known: int | None, tensors: Sequence[tf.Tensor]) -> int:
  """Returns the known size in bytes, or else computes that of eager tensors.

  Computing it takes longer than a small client's training. Datasets count as 0.
  """
  if known is not None:
    return known
  return sum(
    t.dtype.size * t.shape.num_elements()
    for t in tensors
    if t.dtype != tf.variant
  )


def _occurs_twice(tensors: Sequence[tf.Tensor | None]) -> bool:
  """Returns whether an uncached dataset is in the list more than once."""
  datasets = [
    id(dataset_cache.dataset_of(t))
    for t in tensors
    if t is not None and t.dtype == tf.variant and not dataset_cache.has_rows(t)
  ]
  return len(set(datasets)) < len(datasets)


def _copy_to(
  device: str, tensors: Sequence[tf.Tensor | None]
) -> list[tf.Tensor | None]:
  """Copies tensors, except datasets, to a device."""
  with tf.device(device):
    return [
      t if t is None or t.dtype == tf.variant else tf.identity(t)
      for t in tensors
    ]


def _client_failure(
  error: Exception, index: int, run: Invocation, device: str
) -> failures.ClientFailure:
  """Builds the error that names the failed client and the reason."""
  count = len(run.clients)
  if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
    place = device.rpartition('device:')[2] or 'this machine'
    return failures.ClientFailure(
      f'Client {index} of {count} ran out of memory on {place}, with up to'
      f' {run.resources.max_concurrent_clients} clients at once: lower'
      ' max_concurrent_clients, the batch size or the size of the model.'
      f' ({error})',
      index,
    )
  return failures.ClientFailure(
    f'Client {index} of {count} failed:'
    f' {getattr(error, "message", None) or error}',
    index,
  )
