"""Execution contexts that spread clients over a Ray cluster.

Each computation is split at its aggregation (TFF's `MergeableCompForm`): actors
run their shares of the clients, then this process merges the partial sums in
the order of the shares and runs the remainder. A computation is sent to each
actor once. Values that all clients receive are sent to each machine once a
round, without the parts that no client reads.

The number of shares is the largest number of actors so far: shares of a lost
actor go to others, so sums stay the same to the bit. A computation that cannot
be split (an aggregation that depends on another, a secure sum) runs whole on
one actor, and one without clients runs in this process.
"""

import concurrent.futures
import dataclasses
import functools
import itertools
import threading
from collections.abc import (
  Callable,
  Iterator,
  Mapping,
  MutableMapping,
  Sequence,
)
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
from tff_adaptive.runtime.engine import resources
from tff_adaptive.runtime.engine import values

_MAX_COMPILED = 64
# Ids of this process's calls.
_numbers = itertools.count()
# An actor that does not stop within this time is replaced.
_SECONDS_TO_STOP = 5.0


@dataclasses.dataclass
class _Sent:
  """A computation in Ray's object store.

  Attributes:
    comp: The computation.
    digest: Its `tff_names.computation_digest`.
    message: Reference to the serialized computation.
    read: For each tensor of its argument that is not at clients, whether it is
      used; `None` until an actor has compiled the computation.
  """

  comp: tff.framework.ConcreteComputation
  digest: bytes
  message: ray.ObjectRef
  read: list[bool] | None = None


@dataclasses.dataclass
class _Cut:
  """A computation split at its aggregation, or whole.

  Attributes:
    first: The part before the merge; all of it if it cannot be split.
    merge: Merges two partial results; `None` if it cannot be split.
    rest: The part after the merge.
    early: Whether `first` also returns the clients' results, as the second of
      two elements, because they do not depend on the merge.
  """

  first: _Sent
  merge: tff.framework.ConcreteComputation | None = None
  rest: _Sent | None = None
  early: bool = False


class Cluster:
  """Runs computations on a fleet of actors."""

  def __init__(
    self,
    address: str,
    *,
    cpus_per_actor: int | None,
    max_concurrent_clients: int | None,
    start_timeout: float,
    retries: int,
    **together: Any,
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
    self.local = engine_lib.Engine(**together)
    self._retries = retries
    self._connected = connection.connect(address)
    try:
      self.fleet = fleet_lib.Fleet(
        cpus_per_actor=cpus_per_actor,
        max_concurrent_clients=max_concurrent_clients,
        start_timeout=start_timeout,
        together=together,
      )
    except BaseException:
      if self._connected:
        ray.shutdown()
      raise
    self._num_shares = 0
    self._announced: list[references.Reference] = []
    self._lock = threading.RLock()
    self._cuts: MutableMapping[bytes, _Cut] = cachetools.LRUCache(_MAX_COMPILED)

  def run(
    self,
    comp: tff.framework.ConcreteComputation,
    arg: values.PythonValue,
    cancellation: tff_functions.Cancellation | None = None,
  ) -> values.PythonValue:
    """Runs a computation and returns its result; blocks until it is done.

    Args:
      comp: The computation.
      arg: Its argument.
      cancellation: Cancels the computation from another thread.
    """
    resources.check_process()
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
      count,
      cancellation or tff_functions.Cancellation(),
    )
    answers = self._on_actors(cut.first, server, call)
    # Serialized types have lost their Python containers, so that results are
    # decoded with the type of `comp`.
    result_type = comp.type_signature.result
    if cut.merge is None or cut.rest is None:
      return call.result(answers, result_type)
    merged = self._merge(cut, answers, call.cancellation)
    return self._finish(
      cut, cut.rest, result_type, server, merged, call, answers
    )

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
    result_type: tff.Type,
    server: Any,
    merged: values.PythonValue,
    call: '_Call',
    answers: Sequence[actor_lib.Answer],
  ) -> values.PythonValue:
    """Runs `rest`; on the actors if it computes results at clients."""
    comp = rest.comp
    original_type, merged_type = (
      spec for _, spec in tff_names.struct_items(comp.type_signature.parameter)
    )
    if tff_names.has_clients(result_type) and not cut.early:
      sent = (server, wire.encode(merged, merged_type, []))
      answers = self._on_actors(rest, sent, call)
      return call.result(answers, result_type)
    # The remainder is at the server and needs no client's values.
    nobody: list[list[Any]] = [[] for _ in call.shares[0].columns]
    original = wire.decode(server, original_type, iter(nobody))
    result = self.local.run(
      comp, (original, merged), cancellation=call.cancellation
    )
    encoded = wire.encode(result, result_type, [])
    columns = call.columns(answers) if cut.early else []
    return wire.decode(encoded, result_type, iter(columns))

  def _cut(self, comp: tff.framework.ConcreteComputation) -> _Cut:
    """Splits a computation at its aggregation if possible; cached by digest."""
    digest = tff_names.computation_digest(comp)
    if digest not in self._cuts:
      form = None
      if not tff_names.contains_secure_sum(comp):
        try:
          form = tff_names.compile_to_mergeable(comp)
        except ValueError as e:
          logging.warning(
            'This computation runs on a single actor, because its '
            'aggregations depend on each other: %s',
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
    """Adds the clients' results to `up_to_merge` if they need no aggregation.

    Computed after the merge, they would need a second training. Returns `None`
    if there are none or they depend on an aggregation.
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
    """Runs a computation on all shares, retrying the shares of lost actors.

    Args:
      sent: The computation.
      server: Encoded parts of its argument that are not at clients.
      call: The invocation.

    Raises:
      WorkerFailure: If actors are lost too often, or all of them.
    """
    found: dict[int, actor_lib.Answer] = {}
    argument = None
    for attempt in itertools.count():
      slots = self.fleet.ready()
      try:
        if argument is None:
          argument = ray.put(self._read_part(sent, server, slots))
      except ray.exceptions.RayTaskError as e:
        raise failures.RuntimeFailure(str(e)) from e
      except ray.exceptions.RayError as e:
        lost: dict[int, Exception] = {0: e}
        losers = slots
      else:
        with self._lock:
          assigned = self.fleet.assign(call.names_without(found), slots)
        load = functools.partial(self._load_announced, call)
        lost = call.on_slots(sent, argument, assigned, found, load)
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
      logging.warning('%s Continuing with %s.', told, machines)
    raise AssertionError('unreachable')

  def announce(self, coming: Sequence[references.Reference]) -> None:
    """See `runtime.data_announcer`; replaces what was announced before."""
    with self._lock:
      self._announced = list(coming)

  def _load_announced(
    self, call: '_Call', running: Mapping[fleet_lib.Slot, int]
  ) -> None:
    """Lets actors load what was announced, after their shares of a call.

    Args:
      call: The invocation.
      running: The id of the last call of each actor that takes part.
    """
    with self._lock:
      announced, self._announced = self._announced, []
      known = {None, *(reference.key for reference in call.references())}
      coming = [r for r in announced if r.key not in known]
      shares = [
        [coming[i] for i in clients]
        for clients in sharing.shares([r.work for r in coming], call.count)
      ]
      names = [[r.name for r in share] for share in shares]
      assigned = self.fleet.assign(list(enumerate(names)), list(running))
    columns: dict[fleet_lib.Slot, list[Any]] = {}
    for number, slot in assigned.items():
      columns.setdefault(slot, []).append(shares[number])
    for slot, own in columns.items():
      slot.actor.load.remote(running[slot], own)

  @staticmethod
  def _read_part(
    sent: _Sent, server: Any, slots: Sequence[fleet_lib.Slot]
  ) -> Any:
    """Removes the parts of an argument that no client reads."""
    if sent.read is None:
      # Lets all actors compile it, but needs the answer of one only.
      asked = [
        slot.actor.read_at_server.remote(sent.digest, [sent.message])
        for slot in slots
      ]
      sent.read = waiting.result_of(asked[0].future())
    return wire.leave_out(
      server, sent.comp.type_signature.parameter, iter(sent.read)
    )

  def close(self) -> None:
    """Ends the actors, and the connection if this object made it."""
    if ray.is_initialized():
      self.fleet.close()
      if self._connected:
        ray.shutdown()
    self.local.close()


class _Call:
  """An invocation of a computation on all shares.

  Attributes:
    shares: The shares of the cohort, in its order.
    count: Number of shares of a cohort that is large enough.
    cancellation: Cancels the invocation from another thread.
  """

  def __init__(
    self,
    shares: Sequence[actor_lib.Share],
    count: int,
    cancellation: tff_functions.Cancellation,
  ):
    self.shares = shares
    self.count = count
    self.cancellation = cancellation

  def references(self, number: int | None = None) -> list[references.Reference]:
    """Returns the references of a share, or of all."""
    return [
      value
      for share in (self.shares if number is None else [self.shares[number]])
      for column in share.columns
      for value in column
      if isinstance(value, references.Reference)
    ]

  def columns(self, answers: Sequence[actor_lib.Answer]) -> list[list[Any]]:
    """Collects the clients' results of all shares, in the cohort's order."""
    order = np.argsort([i for share in self.shares for i in share.clients])
    joined = (
      list(itertools.chain.from_iterable(columns))
      for columns in zip(*(answer.columns for answer in answers), strict=True)
    )
    return [[wire.copied(column[i]) for i in order] for column in joined]

  def result(
    self, answers: Sequence[actor_lib.Answer], type_spec: tff.Type
  ) -> values.PythonValue:
    """Decodes the server's part, from any share, and all clients' parts."""
    encoded = wire.copied(answers[0].result)
    return wire.decode(encoded, type_spec, iter(self.columns(answers)))

  def names_without(
    self, done: Mapping[int, Any]
  ) -> list[tuple[int, list[str]]]:
    """Returns the index and the known client names of each unfinished share."""
    return [
      (number, [reference.name for reference in self.references(number)])
      for number in range(len(self.shares))
      if number not in done
    ]

  def on_slots(
    self,
    sent: _Sent,
    argument: ray.ObjectRef,
    assigned: Mapping[int, fleet_lib.Slot],
    found: dict[int, actor_lib.Answer],
    meanwhile: Callable[[Mapping[fleet_lib.Slot, int]], None],
  ) -> dict[int, Exception]:
    """Runs shares on their assigned actors.

    Args:
      sent: The computation.
      argument: Reference to the parts of its argument not at clients.
      assigned: The actor of each share, by the share's index.
      found: Receives the answers, by the share's index.
      meanwhile: Called while the shares run, with the id of the last call of
        each actor.

    Returns:
      Ray's error for each share without an answer, by the share's index.

    Raises:
      ClientFailure: If a client fails; the other shares are cancelled.
    """
    running = {}
    for number, slot in assigned.items():
      identifier = next(_numbers)
      reference = slot.actor.run.remote(
        identifier, sent.digest, [sent.message], argument, self.shares[number]
      )
      running[number] = _Running(slot, identifier, reference.future())
    lost: dict[int, Exception] = {}
    try:
      meanwhile({one.slot: one.identifier for one in running.values()})
      for number, one in running.items():
        try:
          answer = waiting.result_of(one.future, self.cancellation.check)
        except ray.exceptions.RayTaskError as e:
          raise failures.RuntimeFailure(f'On {one.slot.machine}: {e}') from e
        except ray.exceptions.RayError as e:
          lost[number] = e
          continue
        if answer.error is not None:
          raise answer.error
        found[number] = answer
    except BaseException:
      _stop(list(running.values()))  # Their results are not needed any more.
      raise
    return lost

  def describe(
    self,
    lost: Mapping[int, Exception],
    losers: Sequence[fleet_lib.Slot],
  ) -> str:
    """Returns a message naming the lost actors' machines and Ray's reason."""
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
  """A share that an actor is running.

  Attributes:
    slot: The actor that runs it.
    identifier: The call's id.
    future: The pending answer.
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
  """Yields the parts of a federated value that are placed at clients."""
  if isinstance(type_spec, tff.StructType):
    for index, (_, part) in enumerate(tff_names.struct_items(type_spec)):
      yield from _client_parts(value[index], part)
  elif tff_names.is_at_clients(type_spec):
    yield value


def _send(comp: tff.framework.ConcreteComputation, once: bool = False) -> _Sent:
  proto = tff.framework.ConcreteComputation.get_proto(comp)
  serialized = proto.SerializeToString(deterministic=True)
  message = ray.put((serialized, once, wire.pickle_forms(proto)))
  return _Sent(comp, tff_names.computation_digest(comp), message)
