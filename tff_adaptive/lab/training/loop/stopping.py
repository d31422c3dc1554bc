"""Graceful shutdown on SIGINT and SIGTERM, without losing finished rounds."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any
from typing import Optional


class Stopped(BaseException):
  """The end of a run that a signal asked for.

  Not an `Exception`: nothing on the way up may take it for an error of a round.

  Attributes:
    signal_number: Which signal.
  """

  def __init__(self, signal_number: int):
    super().__init__(signal.Signals(signal_number).name)
    self.signal_number = signal_number


class Signals:
  """The signals Ctrl-C, SIGTERM and hangup, turned into `Stopped`.

  They are SIGINT, SIGTERM and SIGHUP; the last one is left alone if the program
  was started with it ignored, as `nohup` does.

  Within `interruptible` the signal is raised at once: a round may take minutes
  and its result is not needed. Elsewhere it waits for the next `check`, so that
  no file is left half written and no state half updated.
  """

  def __init__(self) -> None:
    self.requested: Optional[int] = None
    self._raise = False

  @contextlib.contextmanager
  def handled(self) -> Iterator['Signals']:
    """Handles the signals inside the block.

    Only the main thread may; elsewhere the signals are left to it.
    """
    if threading.current_thread() is not threading.main_thread():
      yield self
      return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
      numbers.append(signal.SIGHUP)
    previous = {n: signal.signal(n, self._handle) for n in numbers}
    try:
      yield self
    finally:
      for number, handler in previous.items():
        signal.signal(number, handler)

  @contextlib.contextmanager
  def interruptible(self) -> Iterator[None]:
    """Lets a signal leave the block at any point."""
    self.check()
    self._raise = True
    try:
      yield
    finally:
      self._raise = False

  def check(self) -> None:
    """Raises `Stopped` if a signal came."""
    if self.requested is not None:
      raise Stopped(self.requested)

  def _handle(self, signal_number: int, frame: Any) -> None:
    del frame
    self.requested = signal_number
    if self._raise:
      self._raise = False
      raise Stopped(signal_number)
