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
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import TypeAlias
from typing import Union

import numpy as np
import tensorflow as tf

from tff_adaptive import processes
from tff_adaptive.lab.recording import client_states
from tff_adaptive.lab.training.asynchrony import schedule as schedule_lib
from tff_adaptive.lab.training.data import datasets as data_lib
from tff_adaptive.lab.training.data import remote_data
from tff_adaptive.lab.training.loop import rounds as rounds_lib

Clients: TypeAlias = Union[data_lib.ClientDatasets, remote_data.RemoteClients]


class AsynchronousClients:
  """Training clients that began in different rounds.

  A client's data are those of the round in which it began.
  """

  def __init__(self, clients: Clients, schedule: schedule_lib.Schedule):
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
    schedule: Optional[schedule_lib.Schedule] = None,
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
      schedule_lib.nobody(self._concurrency)
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


def _slot(flight: schedule_lib.InFlightClient) -> str:
  return f'slot {flight.slot}'


def discount_of(staleness: Optional[str]) -> Callable[[int], float]:
  """Returns the discount s of --staleness, which is 'polynomial' or 'none'."""
  if staleness == 'polynomial':
    return lambda steps: 1 / np.sqrt(1 + steps)
  return lambda steps: 1.0
