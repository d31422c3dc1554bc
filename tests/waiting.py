"""Waiting for what other threads and processes do."""

import time


def wait_until(condition, timeout, interval=0.05):
  """Polls for up to `timeout` seconds; returns whether the condition held."""
  end = time.monotonic() + timeout
  while not condition():
    if time.monotonic() >= end:
      return False
    time.sleep(interval)
  return True
