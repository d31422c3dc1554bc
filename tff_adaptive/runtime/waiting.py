"""Waiting that a signal always ends."""

import concurrent.futures
from typing import TypeVar

_Result = TypeVar('_Result')

# Seconds after which a signal that was missed is seen.
_LONGEST_WAIT = 0.2


def result_of(future: concurrent.futures.Future[_Result]) -> _Result:
  """Waits for a future's result.

  Python sees to signals between two of its instructions. One that comes when
  the main thread is about to wait for a lock is seen when the wait ends, which
  for a computation without an end is never; so no wait here is long.

  Raises:
    BaseException: What the future raises, or a signal's handler.
  """
  while True:
    try:
      return future.result(_LONGEST_WAIT)
    except TimeoutError:
      if future.done():
        return future.result()  # The error may be the future's own.
