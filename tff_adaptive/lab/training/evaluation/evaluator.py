"""Centralized evaluation of model weights."""

import collections
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import Any, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive import tff_internals
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.runtime import machine
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime import waiting

# Number of parts that batches are distributed over. Parts are summed in a fixed
# order, so that sums do not depend on the machine's number of cores.
_PARTS = 16
# Maximum number of queued batches per part.
_WAITING = 2


class Evaluator:
  """An evaluator of weights, with a model that is built and traced once.

  Metrics are those of the model (TFF adds `loss`, `num_examples` and
  `num_batches`). Batches are evaluated on all cores: each part of the data has
  metric variables of its own, which are summed like those of clients.

  After processes were composed, which builds models in graphs, an evaluator
  that was built before needs `leave_graph_mode`.
  """

  def __init__(self, model_fn: Callable[[], tff.learning.models.VariableModel]):
    """Builds the model.

    Args:
      model_fn: Returns a `tff.learning.models.VariableModel`.
    """
    self._model_fn = model_fn
    self._model = model_fn()
    self._metrics = tff_internals.eager_metrics(self._model)
    self._begin = tff_functions.DirectFunction(
      self._assign_and_reset, autograph=False
    )
    self._step = tff_functions.DirectFunction(
      self._one_batch, reduce_retracing=True
    )
    self._sums = list(self._model.local_variables)
    self._parts: list[_Part] = []
    self._trace_parts()
    # Metrics whose states are no sums over batches, and so not over clients.
    self.not_sums = self._not_sums()
    # Names of the metrics that `evaluate` returns, and of the model's weights.
    self.names = list(self._values())
    self.weight_names = models.weight_names(self._model)
    self._threads = [
      concurrent.futures.ThreadPoolExecutor(1)
      for _ in range(min(_PARTS, len(machine.cores())))
    ]
    # Runs in one Python process may share the evaluator, and its model.
    self._lock = threading.Lock()

  @property
  def directions(self) -> dict[str, bool]:
    """Whether higher is better, for metrics whose direction is known."""
    of_class = {
      metric.name: higher
      for metric in tff_internals.metric_objects(self._model)
      if (higher := metric_names.direction_of_class(metric)) is not None
    }
    return {
      name: higher
      for name in self.names
      if (higher := metric_names.higher_is_better(name, of_class)) is not None
    }

  def leave_graph_mode(self) -> None:
    """Undoes what models that were built in graphs did to this one."""
    if tff_internals.is_in_graph_mode(self._model):
      self._model_fn()  # Puts Keras' classes back.

  def _assign_and_reset(
    self, weights: tff.learning.models.ModelWeights
  ) -> None:
    weights.assign_weights_to(self._model)
    self._model.reset_metrics()

  def _one_batch(self, batch: structures.Examples) -> None:
    self._model.forward_pass(batch, training=False)

  def evaluate(
    self,
    weights: tff.learning.models.ModelWeights,
    batches: Union[tf.data.Dataset, Sequence[structures.Examples]],
  ) -> collections.OrderedDict[str, Any]:
    """Computes the metrics of `weights` on `batches`.

    Args:
      weights: The weights, as returned by a process' `get_model_weights`.
      batches: Batches in the model's input format.

    Returns:
      Metrics by name, in the model's order, without `num_batches`, which
      depends on the batch size.
    """
    with self._lock:
      self._begin(weights)
      self._add_up(batches)
      return self._values()

  def _values(self) -> collections.OrderedDict[str, Any]:
    """Returns the metrics' values, without the number of batches."""
    values = metric_names.scalars(self._metrics())
    values.pop('num_batches', None)
    return collections.OrderedDict(values)

  def _not_sums(self) -> Sequence[str]:
    """Finds the metrics whose states do not add up over batches.

    A metric that keeps the largest error, for example. Compares the state after
    two batches with the sum of the states after each, on random numbers, with
    the weights that the model has. Positive ones, of length 8 where it is free,
    follow where the first are not accepted or give NaN. A metric that is NaN
    with both is none that adds up.
    """
    rng = np.random.default_rng(0)

    def states(*batches: structures.Examples) -> dict[str, list[np.ndarray]]:
      self._model.reset_metrics()
      for batch in batches:
        self._step(batch)
      found = self._model.report_local_unfinalized_metrics()
      return {
        n: [np.asarray(v, np.float64) for v in tf.nest.flatten(values)]
        for n, values in found.items()
      }

    # TFF adds up all metrics; those found or not known to be sums are named.
    found: set[str] = set()
    unknown: set[str] = set()
    # Models of logarithms need positive numbers, and kernels longer series.
    for draw, length in ((rng.normal, 1), (rng.random, 8)):
      one, other = (
        tf.nest.map_structure(
          lambda spec: _example(draw, spec, count, length),
          self._model.input_spec,
        )
        for count in (2, 3)
      )
      try:
        both, first, second = states(one, other), states(one), states(other)
      except (tf.errors.OpError, ValueError):
        continue  # The model does not accept these numbers.
      finally:
        self._model.reset_metrics()
      unknown = set()
      for name, sums in both.items():
        for value, a, b in zip(sums, first[name], second[name], strict=True):
          if np.isnan(value).any():
            unknown.add(name)
          elif not np.allclose(value, a + b, rtol=1e-3, atol=1e-6):
            found.add(name)
      if not unknown:
        break
    # The loss is a mean.
    return sorted(found | unknown - {'loss'})

  def _add_up(
    self, batches: Union[tf.data.Dataset, Sequence[structures.Examples]]
  ) -> None:
    """Adds all batches to the model's metric variables, which were reset."""
    # A single batch is the sum, and needs no thread.
    alone = isinstance(batches, Sequence) and len(batches) == 1
    if alone or self.not_sums:
      for batch in batches:
        self._step(batch)
      return
    self._clear_parts()
    under_way: collections.deque[concurrent.futures.Future[None]] = (
      collections.deque()
    )
    try:
      for index, batch in enumerate(batches):
        place = index % _PARTS
        if place == len(self._parts):
          self._parts.append(_Part(self._sums))
          self._trace_parts()
        part = self._parts[place]
        step, tensors = self._step.traced(batch)
        # One thread per part, so that its batches are added in order.
        thread = self._threads[place % len(self._threads)]
        under_way.append(thread.submit(part.add, step, tensors))
        if len(under_way) > _WAITING * _PARTS:
          waiting.result_of(under_way.popleft())
      while under_way:
        waiting.result_of(under_way.popleft())
    finally:
      # After an error or Ctrl-C, nothing may be added to the next sums.
      concurrent.futures.wait(under_way)
    self._merge_parts()

  def _trace_parts(self) -> None:
    """Builds the functions of all parts, traced at their next call.

    A call costs less than an operation per variable.
    """
    traced = tff_functions.DirectFunction
    self._clear_parts = traced(self._zero, autograph=False)
    self._merge_parts = traced(self._merge, autograph=False)

  def _zero(self) -> None:
    """Sets the parts' sums to zero."""
    for part in self._parts:
      for variable in part.sums:
        variable.assign(tf.zeros_like(variable))

  def _merge(self) -> None:
    """Adds the parts' sums, in order, to the model's variables."""
    for place, variable in enumerate(self._sums):
      for part in self._parts:
        variable.assign_add(part.sums[place])


def _example(
  draw: Callable[..., np.ndarray], spec: tf.TensorSpec, count: int, length: int
) -> tf.Tensor:
  """Draws a tensor of a spec: numbers, zeros and ones, or words.

  Args:
    draw: Draws numbers of a size.
    spec: The spec, whose first dimension is the batch's.
    count: Size of the batch.
    length: Size of other dimensions that are not known.
  """
  shape = [count, *(length if d is None else d for d in spec.shape[1:])]
  if spec.dtype == tf.string:
    return tf.fill(shape, 'a')
  numbers = draw(size=shape)
  if not spec.dtype.is_floating:
    numbers = numbers > 0.5
  return tf.cast(numbers, spec.dtype)


class _Part:
  """A part of the evaluated data, with metric variables of its own.

  Attributes:
    sums: The metric variables, over the batches of this part.
  """

  def __init__(self, like: Sequence[tf.Variable]):
    """Creates zero variables like the model's metric variables."""
    self.sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in like]
    self._in_place_of = {
      id(theirs.handle): own.handle
      for theirs, own in zip(like, self.sums, strict=True)
    }

  def add(
    self,
    step: tf.types.experimental.ConcreteFunction,
    batch: Sequence[tf.Tensor],
  ) -> None:
    """Adds a batch, as the tensors that the step takes, to the sums."""
    captured = [
      self._in_place_of.get(id(tensor), tensor)
      for tensor in step.captured_inputs
    ]
    tff_functions.call_with_captures(step, batch, captured)
