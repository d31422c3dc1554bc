"""The schedule of asynchronous training, in virtual time.

It says which client trains when, and from which version of the model. A fixed
number of clients train at once; whenever as many as wanted have answered, the
server takes a step, and a client that has answered makes room for another. A
round is a step of the server. See `asynchronous`.
"""

import collections
import dataclasses
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np

from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import behaviour as behaviour_lib

_NO_CLIENT = -1


class InFlightClient(NamedTuple):
  """A client's training under way.

  Attributes:
    over: The virtual time at which the client answers or is given up.
    order: Clients began in this order.
    client: Its place among all clients.
    version: Steps that the server had taken when it began.
    slot: Its place among those that train at once.
    answers: Whether it answers in time.
    late: Whether it would have answered later.
  """

  over: float
  order: int
  client: int
  version: int
  slot: int
  answers: bool
  late: bool


class _Moment(NamedTuple):
  """The clients under way after a round.

  Attributes:
    clock: Virtual time of the server's step.
    begun: How many clients have begun so far.
    under_way: Their training.
  """

  clock: float
  begun: int
  under_way: tuple[InFlightClient, ...]


@dataclasses.dataclass(frozen=True)
class Answers(availability.RoundParticipation):
  """The answers of a round.

  Attributes:
    flights: Those of the cohort, in its order.
    under_way: Those that are not over at the end of the round.
  """

  flights: Sequence[InFlightClient]
  under_way: Sequence[InFlightClient]


class Schedule(availability.Participation):
  """The training of clients, and the versions of the model they train from.

  Clients begin in the order in which the cohort of the round would be drawn;
  one that trains already, or whose answer the server has not used yet, is
  skipped, and so is one that has trained from the same version. Answers that
  come together count in the order in which their clients began, before another
  client begins. If no client is left to begin, a round ends with the answers
  that there are.
  """

  def __init__(
    self,
    client_ids: Sequence[str],
    draw: Callable[[int], Sequence[str]],
    work: Callable[[str, int], int],
    behaviour: behaviour_lib.Behaviour,
    *,
    wanted: int,
    concurrency: int,
    deadline: Optional[float] = None,
  ):
    """Begins without clients under way.

    Args:
      client_ids: All clients.
      draw: From the number of a round to all clients, in the order drawn.
      work: From a client and the number of a round to the examples that it
        iterates, or to its local steps, as the behaviour counts.
      behaviour: The clients'.
      wanted: K, answers to a step of the server.
      concurrency: Clients that train at once.
      deadline: Virtual seconds after which a client is given up.
    """
    super().__init__()
    self._client_ids = client_ids
    self._places = {client: place for place, client in enumerate(client_ids)}
    self._draw = draw
    self._work = work
    self._behaviour = behaviour
    self._wanted = wanted
    self._concurrency = concurrency
    self._deadline = deadline
    self._moments = {0: _Moment(0.0, 0, ())}

  def answers(self, number: int) -> Answers:
    """Returns a round's answers, with the versions they began from."""
    found = self.of_round(number)
    assert isinstance(found, Answers)
    return found

  def _compute(self, number: int) -> Answers:
    last = max(n for n in self._moments if n < number)
    for missing in range(last + 1, number):
      self._play(missing)
    return self._play(number)

  def _play(self, number: int) -> Answers:
    """Simulates a round from the end of the one before."""
    before = self._moments[number - 1]
    clock, begun = before.clock, before.begun
    under_way = list(before.under_way)
    waiting = iter(self._draw(number))
    answered: list[InFlightClient] = []
    dropped = late = 0
    while len(answered) < self._wanted:
      # Whatever else is over by now comes before new beginnings.
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
    """Lets clients begin where there is room."""
    busy = {flight.client for flight in (*under_way, *answered)}
    taken = {flight.slot for flight in under_way}
    free = [s for s in range(self._concurrency) if s not in taken]
    flights: list[InFlightClient] = []
    while len(flights) < len(free):
      client = next((c for c in waiting if self._places[c] not in busy), None)
      if client is None:
        break
      work = behaviour_lib.work_of(self._behaviour, self._work, client, number)
      seconds = self._behaviour.seconds(client, number, work)
      late = self._deadline is not None and seconds > self._deadline
      drops = self._behaviour.drops_out(client, number)
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
    """Returns the moment after a round, as a checkpoint holds it."""
    with self._lock:
      return _as_arrays(self._moments[number], self._concurrency)

  def restore(self, number: int, saved: Mapping[str, Any]) -> None:
    """Goes on after a round."""
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
  """Returns what `Schedule.saved` returns before any client begins."""
  return _as_arrays(_Moment(0.0, 0, ()), concurrency)


def _as_arrays(moment: _Moment, concurrency: int) -> Mapping[str, Any]:
  """Writes a moment as arrays whose shapes are always the same."""
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
