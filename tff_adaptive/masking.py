"""Passes of Keras models over batches whose examples count differently.

Examples may have weights, as in Keras' `fit`. And clients that train together
need batches of one size: the last batch of each is filled up, and a mask says
which examples are its own. Loss and metrics are then those of these alone.
"""

import copy
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive import tff_internals

# Packages whose metrics weigh each example by `sample_weight`, and whose layers
# and losses compute of each example by itself, with few exceptions.
_KNOWN = ('keras', 'tf_keras', 'tasks', 'tff_adaptive')


class MaskError(TypeError):
  """Raised for a model that cannot be masked; its text gives the reason."""


def check(model: tff.learning.models.VariableModel) -> None:
  """Checks that a model's loss and metrics can be masked.

  Raises:
    MaskError: If they cannot.
  """
  inner = tff_internals.unwrapped(model)
  keras_model: Any = tff_internals.keras_model_of(inner)
  if keras_model is None:
    raise MaskError(
      f'{type(inner).__name__} is no Keras model, so its loss on part of a '
      'batch is unknown'
    )
  for layer in tff_internals.layers_of(keras_model):
    kind = type(layer).__name__
    if 'BatchNormalization' in kind:
      raise MaskError('batch normalization mixes the examples of a batch')
    if getattr(layer, 'activity_regularizer', None) is not None:
      raise MaskError(f'the activity regularizer of {kind} needs whole batches')
  for metric in tff_internals.metric_objects(inner):
    given = type(metric)
    takes = inspect.signature(given.update_state).parameters
    known = _is_known(metric) or given.__module__.startswith(
      'tensorflow_federated.'
    )
    if not known or 'sample_weight' not in takes:
      raise MaskError(f'the metric {given.__name__} may ignore sample weights')


def may_mix(model: tff.learning.models.VariableModel) -> bool:
  """Returns whether examples of a batch might affect each other's losses.

  Somebody's own layer or loss may, and operations of a functional model.
  """
  inner = tff_internals.unwrapped(model)
  keras_model: Any = tff_internals.keras_model_of(inner)
  layers = [keras_model, *tff_internals.layers_of(keras_model)]
  operations = [o for layer in layers for o in getattr(layer, 'operations', ())]
  functions = [
    getattr(part, name)
    for part in (*layers, *inner._loss_fns)
    for name in ('activation', 'fn')
    if getattr(part, name, None) is not None
  ]
  parts = [*layers, *operations, *inner._loss_fns, *functions]
  return not all(map(_is_known, parts)) or any(
    getattr(layer, 'axis', None) == 0 for layer in layers
  )


def _is_known(part: Any) -> bool:
  """Returns whether a layer, a loss or a metric is of a known package."""
  kind = part if inspect.isfunction(part) else type(part)
  package, _, rest = kind.__module__.partition('.')
  # `Lambda` layers and operations are a user's functions.
  of_user = ('.ops.', 'lambda_layer', 'op_layer')
  return package in _KNOWN and not any(word in f'.{rest}.' for word in of_user)


def parts_of(batch: Any) -> tuple[Any, Any, Any]:
  """Returns inputs, labels and sample weights of a batch, or of its specs.

  Weights are `None` if the batch has none.
  """
  if isinstance(batch, Mapping):
    return batch['x'], batch['y'], batch.get('sample_weight')
  x, y, *weights = batch
  return x, y, weights[0] if weights else None


def forward(
  model: tff.learning.models.VariableModel,
  batch: structures.Examples,
  mask: Optional[tf.Tensor] = None,
  training: bool = True,
) -> tuple[tf.Tensor, Any]:
  """Computes the loss of a batch, and updates the metrics.

  As in Keras, the loss is the sum of the weighted losses divided by the number
  of examples (or the sum of their weights, with Keras 3's reduction
  'mean_with_sample_weight'), and a metric is a weighted mean.

  Args:
    model: A model for which `check` passes.
    batch: The batch.
    mask: Whether each of its examples counts, bool [batch]; all by default.
    training: Whether dropout is applied.

  Returns:
    The loss of the masked examples plus the layers' losses, scalar, and the
    predictions.

  Raises:
    MaskError: If the loss is not one of single examples.
  """
  inner = tff_internals.unwrapped(model)
  x, y, weights = parts_of(batch)
  predictions, added = _call(inner, x, training)
  if mask is None:
    mask = tf.ones([tf.shape(tf.nest.flatten(x)[0])[0]], tf.bool)
  counted = tf.cast(mask, tf.float32)
  examples = tf.reduce_sum(counted)
  if weights is not None:
    counted *= tf.reshape(tf.cast(weights, tf.float32), [-1])
  mean_of = functools.partial(
    _mean,
    mask=mask,
    counted=counted,
    examples=examples,
    has_weights=weights is not None,
  )
  losses = inner._loss_fns
  if len(losses) == 1:
    mean = mean_of(losses[0], y, predictions)
  else:
    mean = tf.add_n(
      [
        weight * mean_of(loss, own, predicted)
        for weight, loss, own, predicted in zip(
          inner._loss_weights, losses, y, predictions, strict=True
        )
      ]
    )
  _update_metrics(inner, y, predictions, mean, counted, examples)
  total = tf.add_n([mean, *(tf.cast(loss, tf.float32) for loss in added)])
  return total, predictions


def _call(
  inner: Any, x: Any, training: bool
) -> tuple[Any, Sequence[tf.Tensor]]:
  """Applies the model; returns its layers' losses too."""
  keras_model: Any = tff_internals.keras_model_of(inner)
  if hasattr(inner, 'metric_states'):
    return inner.call(keras_model, x, training)
  return keras_model(x, training=training), keras_model.losses


def _mean(
  loss: Any,
  labels: Any,
  predictions: Any,
  *,
  mask: tf.Tensor,
  counted: tf.Tensor,
  examples: tf.Tensor,
  has_weights: bool,
) -> tf.Tensor:
  """Computes a loss of the counted examples, as the loss reduces it."""
  outputs = tf.nest.flatten(predictions)
  if any(getattr(p, '_keras_mask', None) is not None for p in outputs):
    raise MaskError('its layers mask part of their inputs')
  each, reduction = loss, 'mean'
  if hasattr(loss, 'reduction'):
    reduction = str(loss.reduction or 'mean')
    if reduction == 'none' and isinstance(loss, tf.keras.losses.Loss):
      raise MaskError('its loss is not reduced to one number by Keras')
    each = copy.copy(loss)
    each.reduction = 'none'
  values = tf.cast(each(labels, predictions), tf.float32)
  if values.shape.rank == 0:
    raise MaskError('its loss is one number for a batch, not one an example')
  rest = values.shape.rank - 1
  shape = [-1] + [1] * rest
  # Of examples that do not count there may be anything: it must not spread.
  own = tf.where(tf.reshape(mask, shape), values, 0.0)
  total = tf.reduce_sum(own * tf.reshape(counted, shape))
  if reduction == 'sum':
    return total
  if reduction == 'mean_with_sample_weight' and has_weights:
    return tf.math.divide_no_nan(total, tf.reduce_sum(counted))
  per_example = tf.cast(tf.reduce_prod(tf.shape(values)[1:]), tf.float32)
  return tf.math.divide_no_nan(total, examples * per_example)


def _update_metrics(
  inner: Any,
  labels: Any,
  predictions: Any,
  loss: tf.Tensor,
  counted: tf.Tensor,
  examples: tf.Tensor,
) -> None:
  # Of a Keras 3 model, with variables of this graph.
  states = getattr(inner, 'metric_states', None)
  metrics = inner.get_metrics() if states is None else states
  for metric in metrics:
    computed = metric if states is None else metric.computed
    if isinstance(computed, tff.learning.metrics.NumExamplesCounter):
      tf.keras.metrics.Sum.update_state(computed, examples)
    elif isinstance(computed, tff.learning.metrics.NumBatchesCounter):
      tf.keras.metrics.Sum.update_state(computed, 1)
    elif computed.name == 'loss' and isinstance(
      computed, tf.keras.metrics.Mean
    ):
      tf.keras.metrics.Mean.update_state(computed, loss, examples)
    elif states is None:
      metric.update_state(labels, predictions, sample_weight=counted)
    else:
      metric.update(labels, predictions, counted)
