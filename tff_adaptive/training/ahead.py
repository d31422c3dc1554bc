"""The next cohort's data, prepared while this one trains."""

import concurrent.futures
import threading
from collections.abc import Callable
from collections.abc import Sequence
from typing import Optional

from tff_adaptive.runtime import waiting
from tff_adaptive.training import data


class Ahead:
  """Training clients whose next round is prepared in a thread.

  One round is prepared ahead, no more: so there are never more than two
  cohorts' batches in memory. What goes wrong in the thread is raised in the
  round that it belongs to. A round that was not foreseen is prepared when it is
  asked for, so the order of calls changes nothing but the time they take.
  """

  def __init__(
    self,
    clients: data.ClientDatasets,
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
    self._expected: Optional[tuple[int, Sequence[str]]] = None
    self._found: concurrent.futures.Future[data.CohortData]

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data.CohortData:
    """Returns the cohort's batches; begins to prepare the next round's.

    Raises:
      RunError: If no client's data can be read.
    """
    expected, self._expected = self._expected, None
    if expected == (round_number, list(cohort)):
      found = waiting.result_of(self._found)
    else:
      if expected is not None:  # The clients take one caller at a time.
        concurrent.futures.wait([self._found])
      found = self._clients.for_round(round_number, cohort)
    if round_number < self._last_round:
      self._begin(round_number + 1)
    return found

  def _begin(self, round_number: int) -> None:
    cohort = list(self._cohort_fn(round_number))
    self._expected = (round_number, cohort)
    found: concurrent.futures.Future[data.CohortData] = (
      concurrent.futures.Future()
    )
    self._found = found

    def prepare() -> None:
      try:
        found.set_result(self._clients.for_round(round_number, cohort))
      except BaseException as e:  # pylint: disable=broad-exception-caught
        found.set_exception(e)

    # A daemon: data that hang must not keep a stopped program from ending.
    threading.Thread(
      target=prepare, name=f'data of round {round_number}', daemon=True
    ).start()
