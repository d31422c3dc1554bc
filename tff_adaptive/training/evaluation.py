"""Centralized evaluation of model weights."""

import collections
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures


class Evaluator:
  """An evaluator of weights, with a model that is built once.

  Nothing is traced for every evaluation anew. Metrics are those of the model
  (TFF adds `loss`, `num_examples` and `num_batches`).

  Make it after the learning process: TFF builds that one's models inside graphs
  of their own, and Keras then takes models built eagerly before for unusable.
  """

  def __init__(self, model_fn: Callable[[], tff.learning.models.VariableModel]):
    """Builds the model.

    Args:
      model_fn: Returns a `tff.learning.models.VariableModel`.
    """
    self._model = model_fn()
    # TFF's finalizers make a metric each time they are traced, which
    # `tf.function` forbids outside TFF's own graphs; run eagerly they may.
    self._finalizers = collections.OrderedDict(
      (name, getattr(finalizer, 'python_function', finalizer))
      for name, finalizer in self._model.metric_finalizers().items()
    )
    self._step = tf.function(self._one_batch, reduce_retracing=True)

  @property
  def names(self) -> list[str]:
    """Names of what `evaluate` returns."""
    return [name for name in self._finalizers if name != 'num_batches']

  def _one_batch(self, batch: structures.Examples) -> None:
    self._model.forward_pass(batch, training=False)

  def evaluate(
    self,
    weights: tff.learning.models.ModelWeights,
    batches: Union[tf.data.Dataset, Sequence[structures.Examples]],
  ) -> collections.OrderedDict[str, Any]:
    """Computes the metrics of `weights` on `batches`.

    Args:
      weights: As a process's `get_model_weights` returns them.
      batches: As the model takes them.

    Returns:
      Values by name, in the model's order, `num_batches` left out: it tells
      how the data were cut, not how good the model is.
    """
    weights.assign_weights_to(self._model)
    self._model.reset_metrics()
    for batch in batches:
      self._step(batch)
    unfinalized = self._model.report_local_unfinalized_metrics()
    return collections.OrderedDict(
      (name, self._finalizers[name](unfinalized[name]).numpy())
      for name in self.names
    )
