"""Prefetching of the next cohort's data while the current one trains."""

import concurrent.futures
import queue
import threading
import weakref
from collections.abc import Callable
from collections.abc import Sequence
from typing import Optional
from typing import TypeAlias

from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.runtime import waiting

# A cohort and its batches. It is drawn in the thread as well, because which
# clients answer in time may depend on their numbers of examples.
_Prepared: TypeAlias = concurrent.futures.Future[
  tuple[list[str], data.CohortData]
]


class Prefetcher:
  """Training clients whose next round is prepared in a thread.

  Only one round is prepared ahead, so that at most two cohorts' batches are in
  memory. An error in the thread is raised by `for_round` of that round. Any
  other round than the prepared one is built on request, so the order of calls
  affects only their duration.
  """

  def __init__(
    self,
    clients: data.Clients,
    cohort_fn: Callable[[int], Sequence[str]],
    last_round: int,
  ):
    """Initializes the prefetcher; starts no thread yet.

    Args:
      clients: The training clients.
      cohort_fn: Maps a round's number (1, 2, ...) to its clients' ids.
      last_round: Number of the last round to prepare.
    """
    self._clients = clients
    self._cohort_fn = cohort_fn
    self._last_round = last_round if clients.prepared_ahead else 0
    self._expected: Optional[int] = None
    self._found: _Prepared
    self._rounds: Optional[queue.SimpleQueue] = None

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data.CohortData:
    """Returns the cohort's batches, and starts preparing the next round.

    Raises:
      RunError: If no client's data can be read.
    """
    expected, self._expected = self._expected, None
    found = None
    if expected == round_number:
      prepared, data_of_prepared = waiting.result_of(self._found)
      if prepared == list(cohort):
        found = data_of_prepared
    elif expected is not None:  # The clients are not thread-safe.
      concurrent.futures.wait([self._found])
    if found is None:
      found = self._clients.for_round(round_number, cohort)
    if round_number < self._last_round:
      self._begin(round_number + 1)
    return found

  def _begin(self, round_number: int) -> None:
    self._expected = round_number
    self._found = concurrent.futures.Future()
    if self._rounds is None:
      self._rounds = queue.SimpleQueue()
      # A daemon, so that data that hang do not keep a stopped program alive.
      threading.Thread(
        target=_prepare,
        args=(self._rounds, self._clients, self._cohort_fn),
        name='data of the next round',
        daemon=True,
      ).start()
      weakref.finalize(self, self._rounds.put, None)
    self._rounds.put((round_number, self._found))


def _prepare(
  rounds: queue.SimpleQueue,
  clients: data.Clients,
  cohort_fn: Callable[[int], Sequence[str]],
) -> None:
  """Prepares the rounds of a queue, until it gives `None`."""
  while (asked := rounds.get()) is not None:
    round_number, found = asked
    try:
      cohort = list(cohort_fn(round_number))
      found.set_result((cohort, clients.for_round(round_number, cohort)))
    except BaseException as e:  # pylint: disable=broad-exception-caught
      found.set_exception(e)
    del asked, found  # Holds no cohort's data while it waits.
