"""Contexts for TFF programs: `tff.program`, `tff.learning.programs`."""

import tensorflow_federated as tff


class ProgramContext(tff.program.NativeFederatedContext):
  """An asynchronous context in the form that TFF's programs ask for.

  Computations return references at once, inside a running event loop; what
  materializes them (`tff.program.materialize_value`, release managers, state
  managers) waits for the values.

  Attributes:
    asynchronous: The context that runs the computations.
  """

  def __init__(self, asynchronous: tff.framework.AsyncContext):
    super().__init__(asynchronous)
    self.asynchronous = asynchronous

  def close(self) -> None:
    """Ends threads or worker; the context cannot be used afterwards."""
    self.asynchronous.close()
