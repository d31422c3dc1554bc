"""Asynchronous training with buffered updates, in virtual time.

Nguyen et al., "Federated learning with buffered asynchronous aggregation"
(FedBuff), arXiv 2106.06639, Algorithm 1: so many clients train at once, each
from the model that it received when it began; whenever K of them have answered,
the server takes a step, and who has answered makes room for another client. A
round here is a step of the server. With Delta_i an update and tau_i the steps
that the server took while client i trained:

  Delta = mean of s(tau_i) Delta_i,  s(tau) = 1 / sqrt(1 + tau), or 1
"""

import collections
import dataclasses
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import processes
from tff_adaptive.recording import client_states
from tff_adaptive.recording import memories
from tff_adaptive.recording import metric_names
from tff_adaptive.recording import step_sizes
from tff_adaptive.training import availability
from tff_adaptive.training import data as data_lib
from tff_adaptive.training import rounds as rounds_lib

_NO_CLIENT = -1


class Errand(NamedTuple):
  """A client's training under way.

  Attributes:
    over: The virtual time at which the client answers or is given up.
    order: Clients began in this order.
    client: Its place among all clients.
    version: Steps that the server had taken when it began.
    seat: Which of those that train at once it is.
    answers: Whether it answers in time.
    late: Whether it would have answered later.
  """

  over: float
  order: int
  client: int
  version: int
  seat: int
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
  under_way: tuple[Errand, ...]


@dataclasses.dataclass(frozen=True)
class Answers(availability.Turnout):
  """Who answered in a round.

  Attributes:
    errands: Those of the cohort, in its order.
    under_way: Those that are not over at the end of the round.
  """

  errands: Sequence[Errand]
  under_way: Sequence[Errand]


class Schedule(availability.Turnouts):
  """Who trains when, and on which version of the model.

  Clients begin in the order in which the cohort of the round would be drawn;
  one that trains already, or whose answer the server has not used yet, is left
  out, and nobody is asked twice for one version. Answers that come together
  count in the order in which their clients began, before another client begins.
  A round in which nobody is left to ask ends with what there is.
  """

  def __init__(
    self,
    client_ids: Sequence[str],
    draw: Callable[[int], Sequence[str]],
    num_examples: Callable[[str, int], int],
    behaviour: availability.Behaviour,
    *,
    wanted: int,
    concurrency: int,
    deadline: Optional[float] = None,
  ):
    """Begins with nobody.

    Args:
      client_ids: All clients.
      draw: From the number of a round to all clients, in the order drawn.
      num_examples: From a client and the number of a round to the examples that
        it iterates.
      behaviour: The clients'.
      wanted: K, answers to a step of the server.
      concurrency: Clients that train at once.
      deadline: Virtual seconds after which a client is given up.
    """
    super().__init__()
    self._client_ids = client_ids
    self._places = {client: place for place, client in enumerate(client_ids)}
    self._draw = draw
    self._num_examples = num_examples
    self._behaviour = behaviour
    self._wanted = wanted
    self._concurrency = concurrency
    self._deadline = deadline
    self._moments = {0: _Moment(0.0, 0, ())}

  def answers(self, number: int) -> Answers:
    """Returns who answers in a round, and to which version."""
    found = self.turnout(number)
    assert isinstance(found, Answers)
    return found

  def _of_round(self, number: int) -> Answers:
    last = max(n for n in self._moments if n < number)
    for missing in range(last + 1, number):
      self._play(missing)
    return self._play(number)

  def _play(self, number: int) -> Answers:
    """Plays a round from where the one before ended."""
    before = self._moments[number - 1]
    clock, begun = before.clock, before.begun
    under_way = list(before.under_way)
    waiting = iter(self._draw(number))
    answered: list[Errand] = []
    dropped = late = 0
    while len(answered) < self._wanted:
      # Whatever else is over by now comes before new beginnings.
      if not any(errand.over == clock for errand in under_way):
        new = self._begin(waiting, number, clock, begun, under_way, answered)
        under_way += new
        begun += len(new)
      if not under_way:
        break
      errand = min(under_way)
      under_way.remove(errand)
      clock = errand.over
      if errand.answers:
        answered.append(errand)
      late += errand.late
      dropped += not errand.answers and not errand.late
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
      ages = [number - 1 - errand.version for errand in answered]
      columns['staleness/mean'] = sum(ages) / len(ages)
      columns['staleness/max'] = max(ages)
    return Answers(
      [self._client_ids[errand.client] for errand in answered],
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
    under_way: Sequence[Errand],
    answered: Sequence[Errand],
  ) -> list[Errand]:
    """Lets clients begin where there is room."""
    busy = {errand.client for errand in (*under_way, *answered)}
    taken = {errand.seat for errand in under_way}
    free = [s for s in range(self._concurrency) if s not in taken]
    errands: list[Errand] = []
    while len(errands) < len(free):
      client = next((c for c in waiting if self._places[c] not in busy), None)
      if client is None:
        break
      seconds = availability.seconds_of(
        self._behaviour, self._num_examples, client, number
      )
      late = self._deadline is not None and seconds > self._deadline
      drops = self._behaviour.drops_out(client, number)
      errands.append(
        Errand(
          over=clock + (self._deadline if late else seconds),  # type: ignore[operator]
          order=begun + len(errands),
          client=self._places[client],
          version=number - 1,
          seat=free[len(errands)],
          answers=not late and not drops,
          late=late and not drops,
        )
      )
    return errands

  def saved(self, number: int) -> Mapping[str, Any]:
    """Returns what a checkpoint holds of the time after a round."""
    with self._lock:
      return _as_arrays(self._moments[number], self._concurrency)

  def restore(self, number: int, saved: Mapping[str, Any]) -> None:
    """Goes on after a round."""
    errands = zip(
      *(np.asarray(saved[name]).tolist() for name in Errand._fields),
      strict=True,
    )
    under_way = [Errand(*e) for e in errands]
    with self._lock:
      self._turnouts.clear()
      self._moments = {
        number: _Moment(
          float(saved['clock']),
          int(saved['begun']),
          tuple(e for e in under_way if e.client != _NO_CLIENT),
        )
      }


def _as_arrays(moment: _Moment, concurrency: int) -> Mapping[str, Any]:
  """Writes a moment as arrays whose shapes are always the same."""
  nobody = Errand(0.0, 0, _NO_CLIENT, 0, 0, False, False)
  missing = concurrency - len(moment.under_way)
  rows = [*moment.under_way, *[nobody] * missing]
  columns = zip(Errand._fields, zip(*rows, strict=True), strict=True)
  kinds = {'over': np.float64, 'answers': np.bool_, 'late': np.bool_}
  return collections.OrderedDict(
    clock=np.float64(moment.clock),
    begun=np.int64(moment.begun),
    **{
      name: np.array(values, kinds.get(name, np.int64))
      for name, values in columns
    },
  )


class StaggeredClients:
  """Training clients that begin in rounds of their own.

  A client's data are those of the round in which it began.
  """

  def __init__(self, clients: data_lib.ClientDatasets, schedule: Schedule):
    """Takes the clients' data, and who begins when."""
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
    errands = self._schedule.answers(round_number).errands
    begun = {c: e.version + 1 for c, e in zip(cohort, errands, strict=True)}
    found, failures = data_lib.read_each(
      cohort, lambda client: self._clients.for_client(client, begun[client])
    )
    return data_lib.CohortData.of(cohort, found, failures)


class AsynchronousRounds(rounds_lib.LearningRounds):
  """Rounds of which each client trains from what it received as it began.

  What clients under way have received is held by seat, of which there are as
  many as clients train at once, in a file and perhaps in memory too, like what
  clients keep between rounds (`client_states`).
  """

  def __init__(
    self,
    process: processes.BufferedLearningProcess,
    *,
    initial_weights: tff.learning.models.ModelWeights,
    concurrency: int,
    schedule: Optional[Schedule] = None,
    discount: Callable[[int], float] = lambda staleness: 1.0,
    received_store: Optional[Callable[[client_states.Record], Any]] = None,
    store: Optional[Callable[[client_states.Record], Any]] = None,
    client_ids: Optional[Collection[str]] = None,
  ):
    """Initializes the process.

    Args:
      process: The process.
      initial_weights: Where training starts, as arrays.
      concurrency: Clients that train at once.
      schedule: Who trains when; without one nothing can be trained, but a
        model be restored.
      discount: s, from the server's steps since a client began to the factor of
        its update.
      received_store: Makes the store of what clients have received; in memory
        alone unless given.
      store: The same of what clients keep between rounds, if anything.
      client_ids: The task's clients; states of others are refused. Any unless
        given.
    """
    super().__init__(process, initial_weights=initial_weights)
    self._concurrency = concurrency
    self._schedule = schedule
    self._discount = discount
    self._done = 0
    self._received = memories.Memories(
      process.message(self.state), received_store
    )
    self._kept: Optional[memories.Memories] = None
    if process.initialize_client_state is not None:
      self._kept = memories.Memories(process.initialize_client_state(), store)
    self._client_ids = client_ids

  def run(
    self, cohort: Sequence[str], datasets: Sequence[tf.data.Dataset]
  ) -> collections.OrderedDict[str, Any]:
    """Runs a round; see `LearningRounds.run`.

    Raises:
      RunError: If a state on disk is damaged.
    """
    assert self._schedule is not None
    answers = self._schedule.answers(self._done + 1)
    message = self._process.message(self.state)
    columns = self._nobody()
    state = self.state
    if cohort:
      received = [
        message
        if errand.version == self._done
        else rounds_lib.kept_by(self._received, [_seat(errand)])[0]
        for errand in answers.errands
      ]
      factors = [
        np.float32(self._discount(self._done - errand.version))
        for errand in answers.errands
      ]
      output = self._step(cohort, received, factors, list(datasets))
      state = output.state
      self.step_records = step_sizes.rows(cohort, output.metrics)
      columns = rounds_lib.columns_of(output.metrics)
    # Seats of clients that have answered are free for those that began since.
    new = [_seat(e) for e in answers.under_way if e.version == self._done]
    self._received.keep(new, [message] * len(new))
    self.state = state
    self._done += 1
    return columns

  def _step(
    self,
    cohort: Sequence[str],
    received: Sequence[Any],
    factors: Sequence[np.float32],
    datasets: Sequence[Any],
  ) -> Any:
    """Calls the process; keeps what it returns for clients."""
    if self._kept is None:
      return self._process.next(self.state, received, factors, datasets)
    states = rounds_lib.kept_by(self._kept, cohort)
    output = self._process.next(self.state, received, factors, states, datasets)
    self._kept.keep(cohort, output.client_states)
    return output

  @property
  def _stores(self) -> list[Any]:
    kept = [] if self._kept is None else [self._kept.store]
    return [self._received.store, *kept]

  def snapshot(self) -> Any:
    return self.state, self._done, [s.snapshot() for s in self._stores]

  def roll_back(self, snapshot: Any) -> None:
    self.state, self._done, kept = snapshot
    for store, before in zip(self._stores, kept, strict=True):
      store.roll_back(before)

  @property
  def program_state(self) -> Any:
    """The server's state, who is under way, and what clients have and keep."""
    moment = _Moment(0.0, 0, ())
    schedule = (
      _as_arrays(moment, self._concurrency)
      if self._schedule is None
      else self._schedule.saved(self._done)
    )
    stored = dict(received=self._received.store.save())
    if self._kept is not None:
      stored['clients'] = self._kept.store.save()
    return collections.OrderedDict(
      server=self.state,
      rounds=np.int64(self._done),
      schedule=schedule,
      **stored,
    )

  def restore(self, program_state: Any) -> None:
    assert self._schedule is not None
    seats = [f'seat {number}' for number in range(self._concurrency)]
    self._received.store.restore(program_state['received'], seats)
    if self._kept is not None:
      self._kept.store.restore(program_state['clients'], self._client_ids)
    self.state = program_state['server']
    self._done = int(program_state['rounds'])
    self._schedule.restore(self._done, program_state['schedule'])

  def restore_model(self, program_state: Any) -> None:
    self.state = program_state['server']


def _seat(errand: Errand) -> str:
  return f'seat {errand.seat}'


def discount_of(staleness: Optional[str]) -> Callable[[int], float]:
  """Returns s of a word of --staleness: 'polynomial' or 'none'."""
  if staleness == 'polynomial':
    return lambda steps: 1 / np.sqrt(1 + steps)
  return lambda steps: 1.0
