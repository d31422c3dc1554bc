"""Errors raised by execution contexts."""


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
