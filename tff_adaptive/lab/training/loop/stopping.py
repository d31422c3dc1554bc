"""Graceful shutdown on signals, without losing completed rounds."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Optional


class Stopped(BaseException):
  """Raised to save and end a run, after a signal or by a hook.

  Not an `Exception`, so that no handler takes it for an error of a round.

  Attributes:
    signal_number: Number of the signal; that of SIGTERM unless given.
  """

  def __init__(self, signal_number: int = signal.SIGTERM):
    super().__init__(signal.Signals(signal_number).name)
    self.signal_number = signal_number


class Signals:
  """A handler that converts SIGINT, SIGTERM and SIGHUP into `Stopped`.

  SIGHUP is left alone if the program was started with it ignored, as by
  `nohup`. Within `interruptible`, `Stopped` is raised immediately: a round may
  take minutes, and its result can be discarded. Elsewhere it is deferred to the
  next `check`, so that no file is half written and no state half updated.
  """

  def __init__(self) -> None:
    self.requested: Optional[int] = None
    self._raise = False

  @contextlib.contextmanager
  def handled(self) -> Iterator['Signals']:
    """Handles the signals inside the block.

    Does nothing outside the main thread, as Python allows no handlers there.
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
    """Raises `Stopped` at any point of the block, when a signal arrives."""
    self.check()
    self._raise = True
    try:
      yield
    except Exception:
      # TensorFlow's C++ code may replace what a handler raises inside it.
      if not self._raise:
        self.check()
      raise
    finally:
      self._raise = False

  def check(self) -> None:
    """Raises `Stopped` if a signal has arrived."""
    if self.requested is not None:
      raise Stopped(self.requested)

  def _handle(self, signal_number: int, frame: Any) -> None:
    self.requested = signal_number
    if self._raise:
      self._raise = False
      raise Stopped(signal_number)
