"""The next cohort's data, prepared while this one trains."""

import concurrent.futures
import threading
from collections.abc import Callable
from collections.abc import Sequence
from typing import Optional

from tff_adaptive.lab.training import protocols
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.runtime import waiting


class Prefetcher:
  """Training clients whose next round is prepared in a thread.

  One round is prepared ahead, no more: so there are never more than two
  cohorts' batches in memory. What goes wrong in the thread is raised in the
  round that it belongs to. A round that was not foreseen is prepared when it is
  asked for, so the order of calls changes nothing but the time they take.
  """

  def __init__(
    self,
    clients: protocols.Clients,
    cohort_fn: Callable[[int], Sequence[str]],
    last_round: int,
  ):
    """Starts nothing yet.

    Args:
      clients: The clients.
      cohort_fn: From the number of a round (1, 2, ...) to its clients.
      last_round: No round after it is prepared.
    """
    self._clients = clients
    self._cohort_fn = cohort_fn
    self._last_round = last_round if clients.prepared_ahead else 0
    self._expected: Optional[int] = None
    # With the cohort, which is drawn in the thread too: who answers in time may
    # depend on how many examples clients have.
    self._found: concurrent.futures.Future[tuple[list[str], data.CohortData]]

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data.CohortData:
    """Returns the cohort's batches; begins to prepare the next round's.

    Raises:
      RunError: If no client's data can be read.
    """
    expected, self._expected = self._expected, None
    found = None
    if expected == round_number:
      prepared, data_of_prepared = waiting.result_of(self._found)
      if prepared == list(cohort):
        found = data_of_prepared
    elif expected is not None:  # The clients take one caller at a time.
      concurrent.futures.wait([self._found])
    if found is None:
      found = self._clients.for_round(round_number, cohort)
    if round_number < self._last_round:
      self._begin(round_number + 1)
    return found

  def _begin(self, round_number: int) -> None:
    self._expected = round_number
    found: concurrent.futures.Future[tuple[list[str], data.CohortData]] = (
      concurrent.futures.Future()
    )
    self._found = found

    def prepare() -> None:
      try:
        cohort = list(self._cohort_fn(round_number))
        batches = self._clients.for_round(round_number, cohort)
        found.set_result((cohort, batches))
      except BaseException as e:  # pylint: disable=broad-exception-caught
        found.set_exception(e)

    # A daemon: data that hang must not keep a stopped program from ending.
    threading.Thread(
      target=prepare, name=f'data of round {round_number}', daemon=True
    ).start()
