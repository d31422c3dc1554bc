"""A context's actors: one per GPU or group of CPU cores of each machine."""

import collections
import concurrent.futures
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
from absl import logging
from ray.util import scheduling_strategies

from tff_adaptive.runtime import failures
from tff_adaptive.runtime.cluster import actor as actor_lib
from tff_adaptive.runtime.engine import resources

# A lost machine does not answer, and Ray takes a while to notice.
_SECONDS_TO_CONFIRM = 5.0
_SECONDS_BETWEEN_LOOKS = 0.1


class Slot:
  """An actor's place on a machine; Ray restarts the actor there.

  Attributes:
    node: Ray's id of the machine.
    machine: Host name of the machine.
    actor: Ray's handle of the actor.
  """

  def __init__(self, node: str, machine: str, actor: Any):
    self.node = node
    self.machine = machine
    self.actor = actor
    self._answer: concurrent.futures.Future[str]
    self.ask()

  def ask(self) -> None:
    """Pings the actor, which answers once it is ready."""
    # Ray repeats the ping after each restart of the actor.
    reference = self.actor.machine.options(max_task_retries=-1).remote()
    self._answer = reference.future()

  @property
  def is_ready(self) -> bool:
    """Whether the actor has answered the last ping."""
    return self._answer.done() and self._answer.exception() is None

  @property
  def error(self) -> BaseException | None:
    """The error of the last ping; `None` while it may still be answered."""
    return self._answer.exception() if self._answer.done() else None


class Fleet:
  """The actors of a context, on all machines of the cluster."""

  def __init__(
    self,
    *,
    cpus_per_actor: int | None,
    max_concurrent_clients: int | None,
    start_timeout: float,
    together: Mapping[str, Any],
  ):
    """Starts actors and waits until they are ready.

    Args:
      cpus_per_actor: Cores of an actor; by default all of a machine's, or an
        equal part of them for each GPU.
      max_concurrent_clients: Number of clients that an actor trains at once.
      start_timeout: Seconds to wait for actors to become ready.
      together: `vectorize_clients` and its like, as
        `create_in_process_context` takes them.

    Raises:
      WorkerFailure: If none becomes ready.
    """
    self._cpus = cpus_per_actor
    self._max_concurrent_clients = max_concurrent_clients
    self._together = together
    self._start_timeout = start_timeout
    self._slots: list[Slot] = []
    # Ids of machines that have slots, or no room for one.
    self._known: set[str] = set()
    self._homes: dict[str, Slot] = {}
    # Threads of their own for `cancel` and `load`, while the actor computes.
    options: dict[str, Any] = dict(concurrency_groups={'control': 1, 'data': 1})
    self._class = ray.remote(**options)(actor_lib.Actor)
    self.look()
    self._wait(self._slots, start_timeout)
    late = [s for s in self._slots if not s.is_ready and s.error is None]
    if late and any(s.is_ready for s in self._slots):
      logging.warning(
        'No actor has started on %s within %g s; the computation starts '
        'without it. Check with `ray status` whether the machine is in use.',
        _machines(late),
        start_timeout,
      )

  def look(self) -> None:
    """Starts actors on new machines; drops machines that left the cluster."""
    nodes = {node['NodeID']: node for node in ray.nodes() if node['Alive']}
    self._known.intersection_update(nodes)
    self._slots = [s for s in self._slots if s.node in nodes]
    for name in nodes.keys() - self._known:
      self._known.add(name)
      self._slots += self._slots_on(nodes[name])
    # An order independent of Ray's.
    self._slots.sort(key=lambda slot: (slot.machine, slot.node))

  def _slots_on(self, node: dict[str, Any]) -> list[Slot]:
    there = node['Resources']
    cpus, gpus = int(there.get('CPU', 0)), int(there.get('GPU', 0))
    each = self._cpus or (cpus // gpus if gpus else cpus)
    count = min(gpus or cpus, cpus // each) if each else 0
    options = dict(
      num_cpus=each,
      num_gpus=1 if gpus else 0,
      max_restarts=-1,
      scheduling_strategy=scheduling_strategies.NodeAffinitySchedulingStrategy(
        node['NodeID'], soft=False
      ),
    )
    return [
      Slot(
        node['NodeID'],
        node['NodeManagerHostname'],
        self._class.options(**options).remote(
          each,
          resources.threads_per_operation(),
          self._max_concurrent_clients,
          self._together,
        ),
      )
      for _ in range(count)
    ]

  def ready(self) -> list[Slot]:
    """Returns the slots whose actors are ready; waits if none is.

    Raises:
      WorkerFailure: If no actor is ready in time, or all have failed.
    """
    found = [s for s in self._slots if s.is_ready]
    if not found:
      end = time.monotonic() + self._start_timeout
      while not found and time.monotonic() < end:
        waiting = [s for s in self._slots if s.error is None]
        if not waiting:
          break
        self._wait(waiting, _SECONDS_TO_CONFIRM, some=True)
        self.look()
        found = [s for s in self._slots if s.is_ready]
    if found:
      return found
    reasons = [str(s.error) for s in self._slots if s.error is not None]
    why = reasons[0].strip().splitlines()[-1] if reasons else ''
    raise failures.WorkerFailure(
      f'No actor can run on {_machines(self._slots) or "any machine"} of the '
      'Ray cluster: it needs machines with free cores (see `ray status`) and '
      'with tff-adaptive installed' + (f' (Ray says: {why}).' if why else '.')
    )

  def lost(self, slots: Sequence[Slot]) -> None:
    """Marks actors as lost and pings all others.

    Those that answer at once stay ready; others are once Ray has restarted
    them.
    """
    machines = {slot.node for slot in slots}
    self._homes = {
      name: slot for name, slot in self._homes.items() if slot not in slots
    }
    for slot in self._slots:
      if slot.is_ready:
        slot.ask()
    others = [s for s in self._slots if s not in slots]
    self._wait(
      [s for s in others if s.node not in machines], _SECONDS_TO_CONFIRM
    )
    self._wait([s for s in others if s.node in machines], 1.0)

  def assign(
    self, shares: Sequence[tuple[int, Iterable[str]]], slots: Sequence[Slot]
  ) -> dict[int, Slot]:
    """Assigns shares to actors, preferring those that ran their clients before.

    Args:
      shares: Index and known client names of each share.
      slots: The actors that are ready.

    Returns:
      The actor of each share, by index; no actor gets two while another has
      none.
    """
    most = -(-len(shares) // len(slots))
    places = {slot: place for place, slot in enumerate(slots)}
    wishes: list[tuple[int, int, int]] = []
    names = {number: list(clients) for number, clients in shares}
    for number, clients in names.items():
      counts = collections.Counter(self._homes.get(name) for name in clients)
      wishes += [
        (-counts[slot], number, place) for slot, place in places.items()
      ]
    found: dict[int, Slot] = {}
    taken: collections.Counter[int] = collections.Counter()
    for limit in range(1, most + 1):
      for _, number, place in sorted(wishes):
        if number not in found and taken[place] < limit:
          found[number] = slots[place]
          taken[place] += 1
    for number, slot in found.items():
      self._homes.update(dict.fromkeys(names[number], slot))
    return found

  @staticmethod
  def _wait(slots: Sequence[Slot], seconds: float, some: bool = False) -> None:
    """Waits until all actors have answered; until one has if `some`."""
    enough = any if some else all
    end = time.monotonic() + seconds
    while slots and time.monotonic() < end:
      if enough(s.is_ready or s.error is not None for s in slots):
        return
      time.sleep(_SECONDS_BETWEEN_LOOKS)

  def close(self) -> None:
    """Ends the actors."""
    for slot in self._slots:
      ray.kill(slot.actor)
    self._slots = []


def _machines(slots: Iterable[Slot]) -> str:
  return ', '.join(dict.fromkeys(slot.machine for slot in slots))
