"""Asynchronous training with buffered updates, in virtual time.

Nguyen et al., "Federated learning with buffered asynchronous aggregation"
(FedBuff), arXiv 2106.06639, Algorithm 1: a fixed number of clients train
concurrently, each from the model that it received when it began. Another client
begins whenever one has answered, and the server takes a step after every K
answers. A round here is a server step. With Delta_i an update and tau_i its
staleness, the number of server steps since client i began:

  Delta = mean of s(tau_i) Delta_i,  s(tau) = 1 / sqrt(1 + tau), or 1
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, NamedTuple, Optional, TypeAlias, Union

import numpy as np
import tensorflow as tf

from tff_adaptive import processes
from tff_adaptive.lab.recording import client_states
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training.data import datasets as data_lib
from tff_adaptive.lab.training.data import remote_data
from tff_adaptive.lab.training.loop import rounds as rounds_lib
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import (
  system_model as system_model_lib,
)

_NO_CLIENT = -1


class InFlightClient(NamedTuple):
  """A client in flight: one that has begun to train and not yet answered.

  Attributes:
    over: Virtual seconds at which it answers, drops out or is abandoned.
    order: Number of clients that began before it.
    client: Its index among all clients.
    version: Number of server steps taken when it began.
    slot: Its index among the concurrent clients.
    answers: Whether it answers in time.
    late: Whether it would answer after the deadline.
  """

  over: float
  order: int
  client: int
  version: int
  slot: int
  answers: bool
  late: bool


class _Moment(NamedTuple):
  """The schedule's state after a round.

  Attributes:
    clock: Virtual time of the server step, in seconds.
    begun: Number of clients that have begun so far.
    under_way: The clients in flight.
  """

  clock: float
  begun: int
  under_way: tuple[InFlightClient, ...]


@dataclasses.dataclass(frozen=True)
class Answers(availability.RoundParticipation):
  """The answers of a round.

  Attributes:
    flights: The cohort's training, in the cohort's order.
    under_way: The clients still in flight at the end of the round.
  """

  flights: Sequence[InFlightClient]
  under_way: Sequence[InFlightClient]


class Schedule(availability.Participation):
  """The schedule of clients and of the model versions they train from.

  Clients begin in the order in which the round's cohort would be drawn. A
  client is skipped while it is in flight, until the server has used its answer,
  and if it has trained from the same version. Simultaneous answers count in the
  order in which their clients began, before another client begins. If no client
  is left to begin, the round ends with fewer answers.
  """

  def __init__(
    self,
    client_ids: Sequence[str],
    draw: Callable[[int], Sequence[str]],
    work: Callable[[str, int], int],
    system_model: system_model_lib.ClientSystemModel,
    *,
    wanted: int,
    concurrency: int,
    deadline: Optional[float] = None,
  ):
    """Initializes the schedule without clients in flight.

    Args:
      client_ids: All clients.
      draw: Maps a round's number to all clients, in the order drawn.
      work: Maps a client and a round's number to the number of examples that it
        iterates, or of its local steps if `system_model.per_step`.
      system_model: Speed and dropouts of the clients.
      wanted: K, number of answers per server step.
      concurrency: Number of clients that train at once.
      deadline: Virtual seconds after which a client is abandoned.
    """
    super().__init__()
    self._client_ids = client_ids
    self._places = {client: place for place, client in enumerate(client_ids)}
    self._draw = draw
    self._work = work
    self._system_model = system_model
    self._wanted = wanted
    self._concurrency = concurrency
    self._deadline = deadline
    self._moments = {0: _Moment(0.0, 0, ())}

  def answers(self, number: int) -> Answers:
    """Returns a round's answers, with the versions they trained from."""
    return cast(Answers, self.of_round(number))

  def _compute(self, number: int) -> Answers:
    last = max(n for n in self._moments if n < number)
    for missing in range(last + 1, number):
      self._play(missing)
    return self._play(number)

  def _play(self, number: int) -> Answers:
    """Simulates a round, starting from the state after the previous one."""
    before = self._moments[number - 1]
    clock, begun = before.clock, before.begun
    under_way = list(before.under_way)
    waiting = iter(self._draw(number))
    answered: list[InFlightClient] = []
    dropped = late = 0
    while len(answered) < self._wanted:
      # Simultaneous answers count before another client begins.
      if not any(flight.over == clock for flight in under_way):
        new = self._begin(waiting, number, clock, begun, under_way, answered)
        under_way += new
        begun += len(new)
      if not under_way:
        break
      flight = min(under_way)
      under_way.remove(flight)
      clock = flight.over
      if flight.answers:
        answered.append(flight)
      late += flight.late
      dropped += not flight.answers and not flight.late
    self._moments[number] = _Moment(clock, begun, tuple(under_way))
    for old in sorted(self._moments)[: -availability.KEPT]:
      del self._moments[old]
    columns: dict[str, Any] = {
      'virtual/selected': begun - before.begun,
      'virtual/dropped': dropped,
      'virtual/late': late,
      availability.ROUND_SECONDS: round(clock - before.clock, 6),
      metric_names.VIRTUAL_SECONDS: round(clock, 6),
    }
    if answered:
      ages = [number - 1 - flight.version for flight in answered]
      columns['staleness/mean'] = sum(ages) / len(ages)
      columns['staleness/max'] = max(ages)
    return Answers(
      [self._client_ids[flight.client] for flight in answered],
      columns,
      answered,
      tuple(under_way),
    )

  def _begin(
    self,
    waiting: Iterator[str],
    number: int,
    clock: float,
    begun: int,
    under_way: Sequence[InFlightClient],
    answered: Sequence[InFlightClient],
  ) -> list[InFlightClient]:
    """Starts a client in each free slot, as long as any are waiting."""
    busy = {flight.client for flight in (*under_way, *answered)}
    taken = {flight.slot for flight in under_way}
    free = [s for s in range(self._concurrency) if s not in taken]
    flights: list[InFlightClient] = []
    while len(flights) < len(free):
      client = next((c for c in waiting if self._places[c] not in busy), None)
      if client is None:
        break
      work = system_model_lib.work_of(
        self._system_model, self._work, client, number
      )
      seconds = self._system_model.seconds(client, work)
      late = self._deadline is not None and seconds > self._deadline
      drops = self._system_model.drops_out(client, number)
      flights.append(
        InFlightClient(
          over=clock + (self._deadline if late else seconds),  # type: ignore[operator]
          order=begun + len(flights),
          client=self._places[client],
          version=number - 1,
          slot=free[len(flights)],
          answers=not late and not drops,
          late=late and not drops,
        )
      )
    return flights

  def saved(self, number: int) -> Mapping[str, Any]:
    """Returns the state after a round as arrays, for a checkpoint."""
    with self._lock:
      return _as_arrays(self._moments[number], self._concurrency)

  def restore(self, number: int, saved: Mapping[str, Any]) -> None:
    """Restores the state after a round, as `saved` returned it."""
    flights = zip(
      *(np.asarray(saved[name]).tolist() for name in InFlightClient._fields),
      strict=True,
    )
    under_way = [InFlightClient(*e) for e in flights]
    with self._lock:
      self._rounds.clear()
      self._moments = {
        number: _Moment(
          float(saved['clock']),
          int(saved['begun']),
          tuple(e for e in under_way if e.client != _NO_CLIENT),
        )
      }


def nobody(concurrency: int) -> Mapping[str, Any]:
  """Returns `Schedule.saved` of a schedule without clients in flight."""
  return _as_arrays(_Moment(0.0, 0, ()), concurrency)


def _as_arrays(moment: _Moment, concurrency: int) -> Mapping[str, Any]:
  """Converts a schedule's state to arrays of constant shape, one row a slot."""
  nobody = InFlightClient(0.0, 0, _NO_CLIENT, 0, 0, False, False)
  missing = concurrency - len(moment.under_way)
  rows = [*moment.under_way, *[nobody] * missing]
  columns = zip(InFlightClient._fields, zip(*rows, strict=True), strict=True)
  kinds = {'over': np.float64, 'answers': np.bool_, 'late': np.bool_}
  return collections.OrderedDict(
    clock=np.float64(moment.clock),
    begun=np.int64(moment.begun),
    **{
      name: np.array(values, kinds.get(name, np.int64))
      for name, values in columns
    },
  )


Clients: TypeAlias = Union[data_lib.ClientDatasets, remote_data.RemoteClients]


class AsynchronousClients:
  """Training clients that began in different rounds.

  A client's data are those of the round in which it began.
  """

  def __init__(self, clients: Clients, schedule: Schedule):
    """Initializes the clients from their data and the schedule."""
    self._clients = clients
    self._schedule = schedule
    self.client_ids = clients.client_ids
    self.prepared_ahead = clients.prepared_ahead

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data_lib.CohortData:
    """Returns the cohort's batches; see `ClientDatasets.for_round`.

    Raises:
      RunError: If no client's data can be read.
    """
    flights = self._schedule.answers(round_number).flights
    begun = {c: e.version + 1 for c, e in zip(cohort, flights, strict=True)}
    found, failures = data_lib.read_each(
      cohort, lambda client: self._clients.for_client(client, begun[client])
    )
    return data_lib.CohortData.of(cohort, found, failures)


class AsynchronousRounds(rounds_lib.LearningRounds):
  """Rounds in which each client trains from the message it began with.

  Messages of clients in flight are stored by slot, one slot per concurrent
  client, in a file and optionally in memory, like client states
  (`client_states`).
  """

  def __init__(
    self,
    process: processes.BufferedLearningProcess,
    state: Any,
    *,
    concurrency: int,
    schedule: Optional[Schedule] = None,
    discount: Callable[[int], float] = lambda staleness: 1.0,
    received_store: rounds_lib.Store = client_states.ClientStates,
    **states: Any,
  ):
    """Takes the process and its initial state.

    Args:
      process: The process.
      state: Its initial state, with the initial model weights.
      concurrency: Number of clients that train at once.
      schedule: The schedule of clients. Without one the model can be restored,
        but no round run.
      discount: s, a function from staleness in server steps to the factor of an
        update.
      received_store: Builds the store of received messages; in memory only by
        default.
      **states: `store` and `client_ids` of `LearningRounds`.
    """
    super().__init__(process, state, **states)
    self._concurrency = concurrency
    self._schedule = schedule
    self._discount = discount
    self._done = 0
    self._received = received_store(process.message(state))

  def run(
    self, cohort: Sequence[str], datasets: Sequence[tf.data.Dataset]
  ) -> rounds_lib.Columns:
    assert self._schedule is not None
    answers = self._schedule.answers(self._done + 1)
    message = self._process.message(self.state)
    columns = self._nobody()
    if cohort:
      received = [
        message
        if flight.version == self._done
        else rounds_lib.kept_by(self._received, [_slot(flight)])[0]
        for flight in answers.flights
      ]
      factors = [
        np.float32(self._discount(self._done - flight.version))
        for flight in answers.flights
      ]
      metrics = self._step(cohort, received, factors, list(datasets))
      columns = rounds_lib.columns_of(metrics)
    # Clients that began since reuse the slots of those that have answered.
    new = [_slot(e) for e in answers.under_way if e.version == self._done]
    self._received.keep(new, [message] * len(new))
    self._done += 1
    return columns

  @property
  def _stores(self) -> list[Any]:
    return [self._received, *([] if self._kept is None else [self._kept])]

  def snapshot(self) -> Any:
    return self.state, self._done, [s.snapshot() for s in self._stores]

  def roll_back(self, snapshot: Any) -> None:
    self.state, self._done, kept = snapshot
    for store, before in zip(self._stores, kept, strict=True):
      store.roll_back(before)

  @property
  def program_state(self) -> Any:
    """The server's state, the clients in flight, and their stored states."""
    schedule = (
      nobody(self._concurrency)
      if self._schedule is None
      else self._schedule.saved(self._done)
    )
    stored = dict(received=self._received.save())
    if self._kept is not None:
      stored['clients'] = self._kept.save()
    return collections.OrderedDict(
      server=self.state,
      rounds=np.int64(self._done),
      schedule=schedule,
      **stored,
    )

  def restore(self, program_state: Any) -> None:
    assert self._schedule is not None
    slots = [f'slot {number}' for number in range(self._concurrency)]
    self._received.restore(program_state['received'], slots)
    if self._kept is not None:
      self._kept.restore(program_state['clients'], self._client_ids)
    self.state = program_state['server']
    self._done = int(program_state['rounds'])
    self._schedule.restore(self._done, program_state['schedule'])

  def restore_model(self, program_state: Any) -> None:
    self.state = program_state['server']


def _slot(flight: InFlightClient) -> str:
  return f'slot {flight.slot}'


# The factor of an update, by --staleness, given the steps since its model.
DISCOUNTS: Mapping[str, Callable[[int], float]] = {
  'polynomial': lambda steps: 1 / np.sqrt(1 + steps),
  'none': lambda steps: 1.0,
}
