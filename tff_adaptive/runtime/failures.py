"""Errors raised by execution contexts."""

import os


class RuntimeFailure(RuntimeError):
  """Raised if a runtime fails; the message says what to do.

  The underlying TensorFlow or gRPC error is its `__cause__`.
  """


class WorkerFailure(RuntimeFailure):
  """Raised if workers die, cannot be reached or do not start."""


class ClientFailure(RuntimeFailure):
  """Raised if a client's TensorFlow graph fails.

  Attributes:
    client_index: Position of the client in the cohort.
  """

  def __init__(self, message: str, client_index: int):
    super().__init__(message)
    self.client_index = client_index

  def __reduce__(self) -> tuple[type, tuple[str, int]]:
    return type(self), (str(self), self.client_index)


class CannotVectorize(Exception):
  """Raised where clients must train one at a time; its text is the reason."""


class UnsupportedComputationError(NotImplementedError):
  """Raised for computations that the in-process runtime cannot run."""


class Owner:
  """The process that created an object; guards against use after a fork.

  A forked process lacks the threads that TensorFlow and gRPC started before the
  fork, and would wait for them for ever.
  """

  def __init__(self) -> None:
    self._pid = os.getpid()

  def check(self) -> None:
    """Raises `RuntimeFailure` in a process that was forked from the owner."""
    if os.getpid() != self._pid:
      raise RuntimeFailure(
        'This process was forked from one that had used TensorFlow, in which '
        'TensorFlow hangs: start a new process instead, as with '
        'multiprocessing\'s "spawn", and create a context there.'
      )
