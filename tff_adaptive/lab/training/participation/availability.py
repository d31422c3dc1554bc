"""The clients that answer in time in a round.

Time is virtual, so that the answers that count are known before a round trains,
and only their clients are trained.
"""

import abc
import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.training.participation import (
  system_model as system_model_lib,
)

# Virtual seconds of a round; the loop accumulates them.
ROUND_SECONDS = 'virtual/round_seconds'
# Examples or local steps of the client with most of them: with equal clients it
# is what the round waits for.
MOST_WORK = 'virtual/most_work'

# Number of rounds to cache; the current and the prefetched one are needed.
KEPT = 4


@dataclasses.dataclass(frozen=True)
class RoundParticipation:
  """The clients that answered in a round.

  Attributes:
    cohort: Ids of the clients whose answers count, in the order drawn.
    columns: The round's columns of metrics.csv on participation.
  """

  cohort: list[str]
  columns: Mapping[str, Any]


class Participation(abc.ABC):
  """The participation in each round; thread-safe."""

  def __init__(self) -> None:
    self._rounds: dict[int, RoundParticipation] = {}
    self._lock = threading.Lock()

  def of_round(self, number: int) -> RoundParticipation:
    """Returns a round's participation."""
    with self._lock:
      if number not in self._rounds:
        self._rounds[number] = self._compute(number)
        while len(self._rounds) > KEPT:
          del self._rounds[next(iter(self._rounds))]
      return self._rounds[number]

  @abc.abstractmethod
  def _compute(self, number: int) -> RoundParticipation:
    """Computes a round's participation, a function of seed and round."""

  def cohort(self, number: int) -> list[str]:
    """Returns the ids of the clients whose answers count in a round."""
    return list(self.of_round(number).cohort)

  def columns(self, number: int) -> Mapping[str, Any]:
    """Returns a round's columns of metrics.csv."""
    return self.of_round(number).columns


class Availability(Participation):
  """The clients of a cohort that answer in time.

  A round ends when `wanted` clients have answered, or at the deadline; without
  a deadline at the latest when the slowest client drawn would have answered.
  """

  def __init__(
    self,
    draw: Callable[[int], Sequence[str]],
    work: Callable[[str, int], int],
    system_model: system_model_lib.ClientSystemModel,
    *,
    wanted: int,
    deadline: Optional[float] = None,
  ):
    """Initializes the participation; draws no client yet.

    Args:
      draw: Maps a round's number to the ids of the clients drawn.
      work: Maps a client and a round's number to the number of examples that it
        iterates, or of its local steps if `system_model.per_step`.
      system_model: Speed and dropouts of the clients.
      wanted: Maximum number of answers that count.
      deadline: Virtual seconds after which no answer counts.
    """
    super().__init__()
    self._draw = draw
    self._work = work
    self._system_model = system_model
    self._wanted = wanted
    self._deadline = math.inf if deadline is None else deadline

  def _compute(self, number: int) -> RoundParticipation:
    drawn = self._draw(number)
    amounts = {
      client: system_model_lib.work_of(
        self._system_model, self._work, client, number
      )
      for client in drawn
    }
    seconds = [
      self._system_model.seconds(client, amounts[client]) for client in drawn
    ]
    answers = [
      (after, place)
      for place, (client, after) in enumerate(zip(drawn, seconds, strict=True))
      if not self._system_model.drops_out(client, number)
    ]
    # Simultaneous answers count in the order drawn.
    in_time = sorted(a for a in answers if a[0] <= self._deadline)
    counted = in_time[: self._wanted]
    over = self._deadline
    if len(counted) == self._wanted:
      over = counted[-1][0]
    elif math.isinf(over):
      over = max(seconds)
    columns: dict[str, float] = {
      'virtual/selected': len(drawn),
      'virtual/dropped': len(drawn) - len(answers),
      'virtual/late': len(answers) - len(counted),
    }
    cohort = [drawn[place] for place in sorted(p for _, p in counted)]
    if self._system_model.timed:
      columns[ROUND_SECONDS] = round(over, 6)
      columns[MOST_WORK] = max((amounts[c] for c in cohort), default=0)
    return RoundParticipation(cohort, columns)


def describe(settings: settings_lib.Settings) -> str:
  """Describes clients' speed and which answers count; empty if all do."""
  if not system_model_lib.is_asked(settings):
    return ''
  mean = settings.client_seconds_per_example
  each = settings.client_seconds_per_step
  spread = system_model_lib.spread_of(settings)
  apart = f' (spread {spread:g})' if spread else ''
  link = system_model_lib.link_of(settings)
  devices = settings.client_devices
  if devices and link == system_model_lib.KINDS[devices].link:
    link = None
  whose = 'a client is given up' if settings.asynchronous else 'none does'
  parts = [
    f'clients take {mean:g} virtual seconds an example on average{apart}'
    if mean is not None
    else '',
    f'clients compute and send as {devices}' if devices else '',
    f'clients take {each:g} virtual seconds a gradient on average{apart}'
    if each is not None
    else '',
    f'messages travel at {link.mbit_down:g} Mbit/s down and '
    f'{link.mbit_up:g} up, and {link.latency:g} s each way'
    if link
    else '',
    f'{settings.client_dropout:.3g} of the sampled clients drop out'
    if settings.client_dropout
    else '',
    f'{settings.concurrency} clients train at once, and the server takes a '
    f'step after every {settings.clients_per_round} answers (staleness '
    f'{settings.staleness})'
    if settings.asynchronous
    else '',
    f'the first {settings.clients_per_round} of {settings.over_selection:g} '
    'times as many to answer count'
    if settings.over_selection is not None
    else '',
    f'after {settings.deadline:g} virtual seconds {whose}'
    if settings.deadline is not None
    else '',
  ]
  return ', '.join(filter(None, parts))
