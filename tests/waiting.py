"""Waiting for what other threads and processes do."""

import contextlib
import signal
import time


def wait_until(condition, timeout, interval=0.05):
  """Polls for up to `timeout` seconds; returns whether the condition held."""
  end = time.monotonic() + timeout
  while not condition():
    if time.monotonic() >= end:
      return False
    time.sleep(interval)
  return True


@contextlib.contextmanager
def no_hang(seconds=60):
  """Raises where the block takes longer, as one does that reads a pipe."""

  def ring(number, frame):
    del number, frame
    raise RuntimeError(f'more than {seconds} s')

  before = signal.signal(signal.SIGALRM, ring)
  signal.setitimer(signal.ITIMER_REAL, seconds)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
