"""Passes of Keras models over batches of which only some examples count.

Clients that train together need batches of one size: the last batch of each is
filled up, and a mask says which examples are its own. Loss and metrics are then
those of the masked examples alone.
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive import tff_internals

# Modules whose metrics weigh each example by `sample_weight`.
_WEIGHING = ('keras', 'tf_keras', 'tasks', 'tff_adaptive')


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
  for layer in _layers(keras_model):
    kind = type(layer).__name__
    if 'BatchNormalization' in kind:
      raise MaskError('batch normalization mixes the examples of a batch')
    if getattr(layer, 'activity_regularizer', None) is not None:
      raise MaskError(f'the activity regularizer of {kind} needs whole batches')
  for metric in tff_internals.metric_objects(inner):
    given = type(metric)
    takes = inspect.signature(given.update_state).parameters
    known = given.__module__.split('.')[0] in _WEIGHING
    if not (known or _is_of_tff(metric)) or 'sample_weight' not in takes:
      raise MaskError(f'the metric {given.__name__} may ignore sample weights')


def _layers(keras_model: Any) -> Sequence[Any]:
  if models.kind_of(keras_model) == 'keras_3':
    return tff_internals.layers_of(keras_model)
  return [
    part
    for part in keras_model.submodules
    if isinstance(part, tf.keras.layers.Layer)
  ]


def _is_of_tff(metric: Any) -> bool:
  return type(metric).__module__.startswith('tensorflow_federated.')


def forward(
  model: tff.learning.models.VariableModel,
  batch: structures.Examples,
  mask: tf.Tensor,
) -> tf.Tensor:
  """Computes the training loss of a batch, and updates the metrics.

  Args:
    model: A model for which `check` passes.
    batch: The batch.
    mask: Whether each of its examples counts, bool [batch].

  Returns:
    The mean loss of the masked examples, plus the layers' losses; scalar.
  """
  inner = tff_internals.unwrapped(model)
  x, y = models.pair(batch)
  predictions, added = _call(inner, x)
  counted = tf.cast(mask, tf.float32)
  losses = inner._loss_fns
  if len(losses) == 1:
    mean = _mean(losses[0], y, predictions, counted)
  else:
    mean = tf.add_n(
      [
        weight * _mean(loss, own, predicted, counted)
        for weight, loss, own, predicted in zip(
          inner._loss_weights, losses, y, predictions, strict=True
        )
      ]
    )
  _update_metrics(inner, y, predictions, mean, counted)
  return tf.add_n([mean, *(tf.cast(loss, tf.float32) for loss in added)])


def _call(
  inner: tff.learning.models.VariableModel, x: Any
) -> tuple[Any, Sequence[tf.Tensor]]:
  """Applies the model in training mode; returns its layers' losses too."""
  if isinstance(inner, models.Keras3Model):
    return inner.call(tff_internals.keras_model_of(inner), x, True)
  keras_model: Any = tff_internals.keras_model_of(inner)
  return keras_model(x, training=True), keras_model.losses


def _mean(
  loss: Any, labels: Any, predictions: Any, counted: tf.Tensor
) -> tf.Tensor:
  """Computes a loss of the counted examples, as the loss reduces it."""
  if any(hasattr(p, '_keras_mask') for p in tf.nest.flatten(predictions)):
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
    raise MaskError('its loss is one number for a batch')
  rest = values.shape.rank - 1
  weights = tf.reshape(counted, [-1] + [1] * rest)
  # Where no example counts there may be anything, but it must not spread.
  total = tf.reduce_sum(tf.where(weights > 0, values, 0.0))
  if reduction == 'sum':
    return total
  per_example = tf.cast(tf.reduce_prod(tf.shape(values)[1:]), tf.float32)
  return tf.math.divide_no_nan(total, tf.reduce_sum(counted) * per_example)


def _update_metrics(
  inner: Any,
  labels: Any,
  predictions: Any,
  loss: tf.Tensor,
  counted: tf.Tensor,
) -> None:
  examples = tf.reduce_sum(counted)
  for computed, update in models.metrics_of(inner):
    if isinstance(computed, tff.learning.metrics.NumExamplesCounter):
      tf.keras.metrics.Sum.update_state(computed, examples)
    elif isinstance(computed, tff.learning.metrics.NumBatchesCounter):
      tf.keras.metrics.Sum.update_state(computed, 1)
    elif computed.name == 'loss' and isinstance(
      computed, tf.keras.metrics.Mean
    ):
      tf.keras.metrics.Mean.update_state(computed, loss, examples)
    else:
      update(labels, predictions, counted)
