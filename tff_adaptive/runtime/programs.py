"""Contexts for TFF programs: `tff.program`, `tff.learning.programs`."""

import tensorflow_federated as tff


class ProgramContext(tff.program.NativeFederatedContext):
  """An asynchronous context wrapped for TFF's programs.

  Computations return references at once, inside a running event loop;
  `tff.program.materialize_value`, release managers and state managers wait for
  the values.

  Attributes:
    asynchronous: The context that runs the computations.
  """

  def __init__(self, asynchronous: tff.framework.AsyncContext):
    super().__init__(asynchronous)
    self.asynchronous = asynchronous

  def close(self) -> None:
    """Closes the wrapped context, which cannot be used afterwards."""
    self.asynchronous.close()
