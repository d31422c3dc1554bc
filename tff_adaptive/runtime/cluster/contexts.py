"""Execution contexts that spread clients over a Ray cluster.

TFF's mergeable computations cut a computation at its aggregation: each actor
runs its share of the clients, and this process merges their partial sums, in
the order of the shares, and finishes. A computation goes to an actor once, what
all clients receive to a machine once a round, and of that only what they read.

There are as many shares as there were ever actors: when one is lost its shares
go to others, so that sums stay the same to the bit. A computation that cannot
be cut (an aggregation that needs the result of another, a secure sum) runs
whole on one actor. One without clients runs in this process.
"""

import asyncio
import concurrent.futures
import dataclasses
import functools
import itertools
import threading
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import MutableMapping
from collections.abc import Sequence
from typing import Any

import cachetools
import numpy as np
import ray
import tensorflow_federated as tff
from absl import logging

from tff_adaptive.runtime import failures
from tff_adaptive.runtime import references
from tff_adaptive.runtime import sharing
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime import waiting
from tff_adaptive.runtime.cluster import actor as actor_lib
from tff_adaptive.runtime.cluster import connection
from tff_adaptive.runtime.cluster import fleet as fleet_lib
from tff_adaptive.runtime.cluster import wire
from tff_adaptive.runtime.engine import engine as engine_lib
from tff_adaptive.runtime.engine import values

_MAX_COMPILED = 64
_MAX_INVOCATIONS = 8
_SECONDS_BETWEEN_LOOKS = 0.2
# After which an actor that was asked to stop computing is replaced.
_SECONDS_TO_STOP = 5.0


@dataclasses.dataclass
class _Sent:
  """A computation that actors may run.

  Attributes:
    comp: The computation.
    digest: Its identity.
    message: A reference to it in Ray's store.
    read: Of each tensor of its argument that is not at the clients, whether it
      is read; `None` until an actor has compiled it.
  """

  comp: tff.framework.ConcreteComputation
  digest: bytes
  message: ray.ObjectRef
  read: list[bool] | None = None


@dataclasses.dataclass
class _Cut:
  """A computation cut at its aggregation, or whole.

  Attributes:
    first: Up to the merge; all of it if it cannot be cut.
    merge: Merges two partial results; `None` if it cannot be cut.
    rest: After the merge.
    early: Whether `first` also returns what clients get, as the second of two
      results: it does not depend on what is merged.
  """

  first: _Sent
  merge: tff.framework.ConcreteComputation | None = None
  rest: _Sent | None = None
  early: bool = False


class Cluster:
  """The actors, and the computations that they run."""

  def __init__(
    self,
    address: str,
    *,
    cpus_per_actor: int | None,
    max_concurrent_clients: int | None,
    start_timeout: float,
    retries: int,
  ):
    """Takes the arguments of `create_ray_context`."""
    for name, value, least in (
      ('cpus_per_actor', cpus_per_actor, 1),
      ('max_concurrent_clients', max_concurrent_clients, 1),
      ('retries', retries, 0),
    ):
      if value is not None and value < least:
        raise ValueError(f'`{name}` must be at least {least}, got {value!r}.')
    if start_timeout <= 0:
      raise ValueError(
        f'`start_timeout` must be positive seconds, got {start_timeout!r}.'
      )
    self._owner = failures.Owner()
    self.local = engine_lib.Engine()
    self._retries = retries
    self._connected = connection.connect(address)
    try:
      self.fleet = fleet_lib.Fleet(
        cpus_per_actor=cpus_per_actor,
        max_concurrent_clients=max_concurrent_clients,
        start_timeout=start_timeout,
      )
    except BaseException:
      if self._connected:
        ray.shutdown()
      raise
    self._num_shares = 0
    self._lock = threading.RLock()
    self._cuts: MutableMapping[bytes, _Cut] = cachetools.LRUCache(_MAX_COMPILED)

  def run(
    self,
    comp: tff.framework.ConcreteComputation,
    arg: values.PythonValue,
    cancellation: tff_functions.Cancellation | None = None,
  ) -> values.PythonValue:
    """Runs a computation; blocks until the result is there.

    Args:
      comp: The computation.
      arg: Its argument.
      cancellation: Ends the computation, from another thread.
    """
    self._owner.check()
    type_spec = comp.type_signature.parameter
    if not tff_names.has_clients(type_spec):
      return self.local.run(comp, arg, cancellation=cancellation)
    work = sharing.client_work(arg, type_spec)
    columns: list[list[Any]] = []
    server = wire.encode(arg, type_spec, columns)
    with self._lock:
      self.fleet.look()
      self._num_shares = max(self._num_shares, len(self.fleet.ready()))
      cut = self._cut(comp)
    count = 1 if cut.merge is None else self._num_shares
    shares = sharing.shares(work, count) or [[]]
    call = _Call(
      [
        actor_lib.Share(
          [[column[i] for i in clients] for column in columns],
          clients,
          len(work),
        )
        for clients in shares
      ],
      cancellation or tff_functions.Cancellation(),
    )
    answers = self._on_actors(cut.first, server, call)
    if cut.merge is None or cut.rest is None:
      result = call.result(answers, comp.type_signature.result)
    else:
      merged = self._merge(cut, answers, call.cancellation)
      result = self._finish(cut, cut.rest, server, merged, call, answers)
    # Types that were sent have lost the containers.
    return tff_names.in_containers(result, comp.type_signature.result)

  def _merge(
    self,
    cut: _Cut,
    answers: Sequence[actor_lib.Answer],
    cancellation: tff_functions.Cancellation,
  ) -> values.PythonValue:
    """Merges partial results in the order of the shares."""
    type_spec = cut.first.comp.type_signature.result
    partial = [answer.result for answer in answers]
    if cut.early:
      type_spec, partial = type_spec[0], [both[0] for both in partial]
    merged, *others = (wire.decode(p, type_spec, iter(())) for p in partial)
    for other in others:
      merged = self.local.run(
        cut.merge, (merged, other), cancellation=cancellation
      )
    return merged

  def _finish(
    self,
    cut: _Cut,
    rest: _Sent,
    server: Any,
    merged: values.PythonValue,
    call: '_Call',
    answers: Sequence[actor_lib.Answer],
  ) -> values.PythonValue:
    """Runs what comes after the merge, at clients if they get results of it."""
    comp = rest.comp
    original_type, merged_type = (
      spec for _, spec in tff_names.struct_items(comp.type_signature.parameter)
    )
    result_type = comp.type_signature.result
    if tff_names.has_clients(result_type) and not cut.early:
      sent = (server, wire.encode(merged, merged_type, []))
      answers = self._on_actors(rest, sent, call)
      return call.result(answers, result_type)
    # What is left is the server's: the same whichever clients there are.
    nobody: list[list[Any]] = [[] for _ in call.shares[0].columns]
    original = wire.decode(server, original_type, iter(nobody))
    result = self.local.run(
      comp, (original, merged), cancellation=call.cancellation
    )
    if not cut.early:
      return result
    encoded = wire.encode(result, result_type, [])
    return wire.decode(encoded, result_type, iter(call.columns(answers)))

  def _cut(self, comp: tff.framework.ConcreteComputation) -> _Cut:
    """Cuts a computation at its aggregation, if that can be done."""
    digest = tff_names.computation_digest(comp)
    if digest not in self._cuts:
      form = None
      if not tff_names.contains_secure_sum(comp):
        try:
          form = tff_names.compile_to_mergeable(comp)
        except ValueError as e:
          logging.warning(
            'This computation runs on one actor at a time, because its'
            ' aggregations depend on each other: %s',
            e,
          )
      if form is None:
        cut = _Cut(_send(comp))
      else:
        both = self._with_clients_results(comp, form.up_to_merge)
        first = _send(form.up_to_merge) if both is None else _send(both, True)
        rest = _send(form.after_merge)
        cut = _Cut(first, form.merge, rest, both is not None)
      self._cuts[digest] = cut
    return self._cuts[digest]

  def _with_clients_results(
    self,
    comp: tff.framework.ConcreteComputation,
    up_to_merge: tff.framework.ConcreteComputation,
  ) -> tff.framework.ConcreteComputation | None:
    """Adds what clients get to what goes up, if it needs no aggregation.

    After the merge clients would have to train again for it.
    """
    result_type = comp.type_signature.result
    if not tff_names.has_clients(result_type):
      return None
    parameter = comp.type_signature.parameter

    @tff.federated_computation(parameter)
    def at_clients(arg: Any) -> Any:
      return list(_client_parts(comp(arg), result_type))

    executable, _ = self.local.compile(at_clients)
    if executable.aggregates:
      return None

    @tff.federated_computation(parameter)
    def both(arg: Any) -> Any:
      return up_to_merge(arg), at_clients(arg)

    return both

  def _on_actors(
    self, sent: _Sent, server: Any, call: '_Call'
  ) -> list[actor_lib.Answer]:
    """Runs a computation on all shares; the shares of lost actors again.

    Args:
      sent: The computation.
      server: What of its argument is not at the clients.
      call: The shares.

    Raises:
      WorkerFailure: If actors were lost too often, or all of them.
    """
    found: dict[int, actor_lib.Answer] = {}
    argument = None
    for attempt in itertools.count():
      slots = self.fleet.ready()
      try:
        if argument is None:
          argument = ray.put(self._read_part(sent, server, slots))
      except ray.exceptions.RayError as e:
        lost: dict[int, Exception] = {0: e}
        losers = slots
      else:
        with self._lock:
          assigned = self.fleet.assign(call.names_without(found), slots)
        lost = call.on_slots(sent, argument, assigned, found)
        losers = [assigned[number] for number in lost]
      if not lost:
        return [found[number] for number in range(len(call.shares))]
      told = call.describe(lost, losers)
      with self._lock:
        self.fleet.lost(losers)
      if attempt == self._retries:
        raise failures.WorkerFailure(told) from next(iter(lost.values()))
      left = self.fleet.ready()
      machines = ', '.join(dict.fromkeys(slot.machine for slot in left))
      logging.warning('%s Going on with %s.', told, machines)
    raise AssertionError('unreachable')

  @staticmethod
  def _read_part(
    sent: _Sent, server: Any, slots: Sequence[fleet_lib.Slot]
  ) -> Any:
    """Removes the parts of an argument that no client reads."""
    if sent.read is None:
      # All of them compile it meanwhile.
      asked = [
        slot.actor.read_at_server.remote(sent.digest, [sent.message])
        for slot in slots
      ]
      sent.read = waiting.result_of(asked[0].future())
    return wire.leave_out(
      server, sent.comp.type_signature.parameter, iter(sent.read)
    )

  def close(self) -> None:
    """Ends the actors, and the connection if this made it."""
    if ray.is_initialized():
      self.fleet.close()
      if self._connected:
        ray.shutdown()
    self.local.close()


class _Call:
  """An invocation's shares, and what runs them.

  Attributes:
    shares: In the cohort's order.
    cancellation: Ends the invocation, from another thread.
  """

  def __init__(
    self,
    shares: Sequence[actor_lib.Share],
    cancellation: tff_functions.Cancellation,
  ):
    self.shares = shares
    self.cancellation = cancellation

  def columns(self, answers: Sequence[actor_lib.Answer]) -> list[list[Any]]:
    """Puts the clients' results of all shares into the cohort's order."""
    order = np.argsort([i for share in self.shares for i in share.clients])
    joined = (
      list(itertools.chain.from_iterable(columns))
      for columns in zip(*(answer.columns for answer in answers), strict=True)
    )
    return [[wire.copied(column[i]) for i in order] for column in joined]

  def result(
    self, answers: Sequence[actor_lib.Answer], type_spec: tff.Type
  ) -> values.PythonValue:
    """Decodes a result that all shares have, and their clients' parts of it."""
    encoded = wire.copied(answers[0].result)
    return wire.decode(encoded, type_spec, iter(self.columns(answers)))

  def names_without(
    self, done: Mapping[int, Any]
  ) -> list[tuple[int, list[str]]]:
    """Returns the shares that are not done, with their clients' names."""
    return [
      (
        number,
        [
          value.name
          for column in share.columns
          for value in column
          if isinstance(value, references.Reference)
        ],
      )
      for number, share in enumerate(self.shares)
      if number not in done
    ]

  def on_slots(
    self,
    sent: _Sent,
    argument: ray.ObjectRef,
    assigned: Mapping[int, fleet_lib.Slot],
    found: dict[int, actor_lib.Answer],
  ) -> dict[int, Exception]:
    """Runs shares.

    Args:
      sent: The computation.
      argument: What of its argument is not at the clients, in Ray's store.
      assigned: The actor of each share.
      found: Receives answers.

    Returns:
      Why there is no answer, of the shares that have none.

    Raises:
      ClientFailure: If a client fails; the others are stopped.
    """
    running = {}
    for number, slot in assigned.items():
      identifier = fleet_lib.next_call()
      reference = slot.actor.run.remote(
        identifier, sent.digest, [sent.message], argument, self.shares[number]
      )
      running[number] = _Running(slot, identifier, reference.future())
    lost: dict[int, Exception] = {}
    try:
      for number, one in running.items():
        try:
          answer = self._wait(one.future)
        except ray.exceptions.RayTaskError as e:
          raise failures.RuntimeFailure(f'On {one.slot.machine}: {e}') from e
        except ray.exceptions.RayError as e:
          lost[number] = e
          continue
        if answer.error is not None:
          raise answer.error
        found[number] = answer
    except BaseException:
      _stop(list(running.values()))  # Nobody wants what others still compute.
      raise
    return lost

  def _wait(
    self, future: 'concurrent.futures.Future[actor_lib.Answer]'
  ) -> actor_lib.Answer:
    while not concurrent.futures.wait([future], _SECONDS_BETWEEN_LOOKS).done:
      if self.cancellation.is_cancelled:
        raise failures.RuntimeFailure('The computation was cancelled.')
    return future.result()

  def describe(
    self,
    lost: Mapping[int, Exception],
    losers: Sequence[fleet_lib.Slot],
  ) -> str:
    """Says which actors were lost, and what they were at."""
    number, error = next(iter(lost.items()))
    share = self.shares[number]
    machines = ', '.join(dict.fromkeys(slot.machine for slot in losers))
    reason = str(error).strip().splitlines()[-1].strip().rstrip('.')
    return (
      f'An actor on {machines} was lost while it ran {len(share.clients)} of'
      f' {share.total} clients (Ray says: {reason}). If its memory was full,'
      ' lower max_concurrent_clients or the batch size.'
    )


@dataclasses.dataclass(frozen=True)
class _Running:
  """A share under way.

  Attributes:
    slot: The actor that runs it.
    identifier: The call's number.
    future: Its answer.
  """

  slot: fleet_lib.Slot
  identifier: int
  future: 'concurrent.futures.Future[actor_lib.Answer]'


def _stop(running: Sequence[_Running]) -> None:
  """Cancels running computations; replaces actors that do not stop."""
  for one in running:
    if not one.future.done():
      one.slot.actor.cancel.remote(one.identifier)
  concurrent.futures.wait([one.future for one in running], _SECONDS_TO_STOP)
  for one in running:
    if not one.future.done():
      ray.kill(one.slot.actor, no_restart=False)
      one.slot.ask()


def _client_parts(value: Any, type_spec: tff.Type) -> Iterator[Any]:
  """Yields the parts of a value in a computation that are at the clients."""
  if isinstance(type_spec, tff.StructType):
    for index, (_, part) in enumerate(tff_names.struct_items(type_spec)):
      yield from _client_parts(value[index], part)
  elif tff_names.has_clients(type_spec):
    yield value


def _send(comp: tff.framework.ConcreteComputation, once: bool = False) -> _Sent:
  proto = tff.framework.ConcreteComputation.get_proto(comp)
  message = ray.put((proto.SerializeToString(deterministic=True), once))
  return _Sent(comp, tff_names.computation_digest(comp), message)


class RayContext(tff.framework.SyncContext):
  """Synchronous context; see `tff_adaptive.runtime.set_ray_context`.

  Attributes:
    is_closed: Whether `close` was called.
  """

  def __init__(self, cluster: Cluster):
    self._cluster = cluster
    self.is_closed = False

  @property
  def engine(self) -> engine_lib.Engine:
    """The engine that merges and finishes, in this process."""
    return self._cluster.local

  @property
  def machines(self) -> list[str]:
    """The machine of each actor that can compute."""
    return [slot.machine for slot in self._cluster.fleet.ready()]

  def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    return self._cluster.run(comp, arg)

  def close(self) -> None:
    """Ends the actors; the context cannot be used afterwards."""
    self.is_closed = True
    self._cluster.close()


class RayAsyncContext(tff.framework.AsyncContext):
  """Asynchronous context: the event loop stays free during a computation."""

  def __init__(self, cluster: Cluster):
    self._cluster = cluster
    self._invocations = concurrent.futures.ThreadPoolExecutor(
      _MAX_INVOCATIONS, thread_name_prefix='tff_invocation'
    )

  async def invoke(
    self, comp: tff.framework.ConcreteComputation, arg: values.PythonValue
  ) -> values.PythonValue:
    if asyncio.iscoroutine(arg):
      arg = await arg
    cancellation = tff_functions.Cancellation()
    run = functools.partial(self._cluster.run, comp, arg, cancellation)
    try:
      return await asyncio.get_running_loop().run_in_executor(
        self._invocations, run
      )
    except asyncio.CancelledError:
      cancellation.cancel()
      raise

  def close(self) -> None:
    """Ends threads and actors; the context cannot be used afterwards."""
    self._invocations.shutdown(wait=False, cancel_futures=True)
    self._cluster.close()
