"""Errors that the execution contexts raise."""

import os


class RuntimeFailure(RuntimeError):
  """The failure of a runtime, with a message that says what to do.

  Raised instead of the underlying TensorFlow or gRPC error, which stays
  attached as `__cause__`.
  """


class WorkerFailure(RuntimeFailure):
  """The failure of workers that died, were not reached or stopped answering.

  Attributes:
    address: `host:port` of the worker or of the Ray cluster, or `None` where it
      has none yet.
  """

  def __init__(self, message: str, address: str | None = None):
    super().__init__(message)
    self.address = address


class ClientFailure(RuntimeFailure):
  """The failure of a client's TensorFlow graph.

  Attributes:
    client_index: Position of the client in the cohort.
  """

  def __init__(self, message: str, client_index: int):
    super().__init__(message)
    self.client_index = client_index

  def __reduce__(self) -> tuple[type, tuple[str, int]]:
    return type(self), (str(self), self.client_index)


class UnsupportedComputationError(NotImplementedError):
  """A computation uses something that the in-process runtime cannot run."""


class Owner:
  """The process that something may be used in, which is not copied by a fork.

  A forked process has none of the threads that TensorFlow and gRPC started
  before the fork, and would wait for them for ever.
  """

  def __init__(self) -> None:
    self._pid = os.getpid()

  def check(self) -> None:
    """Raises `RuntimeFailure` in a process that was forked from the owner."""
    if os.getpid() != self._pid:
      raise RuntimeFailure(
        'This process was forked from one that had used TensorFlow, which then'
        ' hangs: start it anew, as with multiprocessing\'s "spawn", and create'
        ' a context there.'
      )
