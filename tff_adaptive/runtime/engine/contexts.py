"""TFF execution contexts on the in-process engine, or on a cluster."""

import asyncio
import concurrent.futures
import functools
from typing import Any

import tensorflow_federated as tff

from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime.engine import engine as engine_lib
from tff_adaptive.runtime.engine import values

_MAX_INVOCATIONS = 8


class InProcessContext(tff.framework.SyncContext):
  """Synchronous context; see `tff_adaptive.runtime.set_in_process_context`.

  Attributes:
    engine: Runs computations in this process.
    runner: Runs all computations: the engine, or a cluster, which uses it.
    is_closed: Whether the context was closed.
  """

  def __init__(self, engine: engine_lib.Engine, runner: Any = None):
    self.engine = engine
    self.runner = runner or engine
    self.is_closed = False

  def invoke(
    self,
    comp: tff.framework.ConcreteComputation,
    arg: values.PythonValue,
  ) -> values.PythonValue:
    return self.runner.run(comp, arg)

  def close(self) -> None:
    """Ends what runs clients; the context cannot be used afterwards."""
    self.is_closed = True
    self.runner.close()


class InProcessAsyncContext(tff.framework.AsyncContext):
  """Asynchronous context: the event loop stays free during a computation.

  Attributes:
    engine, runner: As those of `InProcessContext`.
  """

  def __init__(self, engine: engine_lib.Engine, runner: Any = None):
    self.engine = engine
    self.runner = runner or engine
    # Invocations wait for clients; in the same pool they could occupy all
    # threads that the clients need.
    self._invocations = concurrent.futures.ThreadPoolExecutor(
      _MAX_INVOCATIONS, thread_name_prefix='tff_invocation'
    )

  async def invoke(
    self,
    comp: tff.framework.ConcreteComputation,
    arg: values.PythonValue,
  ) -> values.PythonValue:
    if asyncio.iscoroutine(arg):
      arg = await arg
    cancellation = tff_functions.Cancellation()
    run = functools.partial(
      self.runner.run, comp, arg, cancellation=cancellation
    )
    try:
      return await asyncio.get_running_loop().run_in_executor(
        self._invocations, run
      )
    except asyncio.CancelledError:
      cancellation.cancel()
      raise

  def close(self) -> None:
    """Ends the threads; the context cannot be used afterwards."""
    self._invocations.shutdown(wait=False, cancel_futures=True)
    self.runner.close()


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
