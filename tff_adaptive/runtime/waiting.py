"""Waiting for futures, interruptible by signals."""

import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar('_Result')

# Seconds after which a missed signal is handled.
_LONGEST_WAIT = 0.2


def result_of(
  future: concurrent.futures.Future[_Result],
  check: Callable[[], None] = lambda: None,
) -> _Result:
  """Waits for a future's result.

  Python handles signals between its instructions. One that arrives when the
  main thread is about to wait for a lock is handled after the wait, which may
  never end; so each wait here is short.

  Args:
    future: The future.
    check: Called between waits; may raise an exception to end them.

  Raises:
    BaseException: The exception of the future, of `check` or of a signal's
      handler.
  """
  while True:
    try:
      return future.result(_LONGEST_WAIT)
    except TimeoutError:
      if future.done():
        return future.result()  # The timeout error may be the future's own.
      check()
