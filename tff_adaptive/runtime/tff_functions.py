"""Calls of TensorFlow functions beyond its public API.

As explained in `tff_names.py`, private names are imported there, here and in
`tff_datasets.py` alone.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import cancellation
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager import core as eager_core

from tff_adaptive.runtime import failures


def disable_dataset_function_optimization() -> None:
  """Disables Grappler for functions inside datasets.

  Grappler would optimize them for every iterator, which takes longer than a
  client's few batches. Other functions are still optimized. Has no effect after
  TensorFlow's first operation in this process.
  """
  option = 'disable_meta_optimizer'
  before = tf.config.optimizer.get_experimental_options().get(option, False)
  # Iterators use the option's value at initialization, function calls its
  # current value.
  tf.config.optimizer.set_experimental_options({option: True})
  eager_context.context().ensure_initialized()
  tf.config.optimizer.set_experimental_options({option: before})


class Cancellation:
  """Cancels running and future function calls.

  TensorFlow checks between the ops of a function and between the elements of a
  dataset, so a running op is not interrupted.
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._cancelled = False
    # One per call: TensorFlow cancels the manager of a call that fails.
    self._managers: set[Any] = set()

  def check(self) -> None:
    """Raises `RuntimeFailure` if `cancel` was called."""
    if self._cancelled:
      raise failures.RuntimeFailure('The computation was cancelled.')

  def cancel(self) -> None:
    """Makes the calls raise `tf.errors.CancelledError`."""
    with self._lock:
      self._cancelled = True
      managers = list(self._managers)
    for manager in managers:
      manager.start_cancel()

  @contextlib.contextmanager
  def manager(self) -> Iterator[Any]:
    """Creates TensorFlow's cancellation manager for one call."""
    manager = cancellation.CancellationManager()
    with self._lock:
      self._managers.add(manager)
      cancelled = self._cancelled
    if cancelled:
      manager.start_cancel()
    try:
      yield manager
    finally:
      with self._lock:
        self._managers.remove(manager)


class FastFunction:
  """A concrete function without TensorFlow's Python overhead per call.

  Its checks and conversions take longer than a small function runs, and the
  engine's arguments already are tensors of the right types.
  """

  def __init__(self, concrete: tf.types.experimental.ConcreteFunction) -> None:
    """Wraps a function without captures."""
    if concrete.captured_inputs:
      raise ValueError('Functions that capture tensors are not supported here.')
    self._concrete = concrete  # Keeps the function registered.
    self._name = concrete.name
    self._num_outputs = len(concrete.outputs)
    self._context = eager_context.context()
    self._context.ensure_initialized()
    config = tf.compat.v1.ConfigProto.FromString(
      self._context.function_call_options.config_proto_serialized
    )
    options = config.graph_options.rewrite_options
    # See `tff_names._optimizations`.
    options.memory_optimization = options.NO_MEM_OPT
    self._attributes = (
      'executor_type',
      '',
      'config_proto',
      config.SerializeToString(),
    )

  @property
  def is_pure(self) -> bool:
    """Whether its results follow from its arguments alone."""
    operations = self._concrete.graph.get_operations()
    return not any(op.op_def.is_stateful for op in operations)

  def __call__(
    self,
    arguments: list[tf.Tensor],
    device: str,
    cancellation: Cancellation,
  ) -> list[tf.Tensor]:
    """Calls the function on `device` (full name; '' for TensorFlow's choice).

    Raises:
      tf.errors.OpError: If the function fails.
    """
    try:
      with cancellation.manager() as manager:
        return pywrap_tfe.TFE_Py_ExecuteCancelable(
          self._context._handle,
          device,
          self._name,
          arguments,
          self._attributes,
          manager._impl,
          self._num_outputs,
        )
    except eager_core._NotOkStatusException as e:
      raise eager_core._status_to_exception(e) from None


class DirectFunction:
  """A `tf.function` whose traces are found by shapes and types alone.

  TensorFlow's search takes longer than a small function runs. All calls must
  have arguments of one structure, of tensors and arrays.
  """

  def __init__(self, function: Callable[..., Any], **options: Any):
    """Traces nothing yet.

    Args:
      function: The Python function.
      **options: Arguments of `tf.function`.
    """
    self._function = tf.function(function, **options)
    self._traced: dict[Any, tf.types.experimental.ConcreteFunction] = {}

  def traced(
    self, *arguments: Any
  ) -> tuple[tf.types.experimental.ConcreteFunction, list[tf.Tensor]]:
    """Returns the function for these arguments, and their tensors."""
    flat = [
      tf.convert_to_tensor(x)
      for x in tf.nest.flatten(arguments, expand_composites=True)
    ]
    key = tuple((x.dtype, tuple(x.shape)) for x in flat)
    if key not in self._traced:
      self._traced[key] = self._function.get_concrete_function(*arguments)
    return self._traced[key], flat

  def __call__(self, *arguments: Any) -> Any:
    """Calls the function."""
    concrete, flat = self.traced(*arguments)
    return call_with_captures(concrete, flat, concrete.captured_inputs)


def call_with_captures(
  concrete: tf.types.experimental.ConcreteFunction,
  arguments: Sequence[tf.Tensor],
  captured: Sequence[tf.Tensor],
) -> Any:
  """Calls a function with these tensors in place of those that it captured.

  Args:
    concrete: The function.
    arguments: Its flattened arguments.
    captured: Replacements of its `captured_inputs`.
  """
  return concrete._call_flat(list(arguments), list(captured))
