"""The benchmarks' models in Keras, with their losses and metrics."""

import tensorflow as tf
import workload

from tasks.models import lstm
from tasks.models import text as text_models


def lstm_layer() -> tf.keras.layers.Layer:
  """Builds this project's recurrent layer."""
  return lstm.build(256)


def network(options, recurrent=lstm_layer) -> tf.keras.Model:
  """Builds a model.

  Args:
    options: With `model`, and `width` for models of dense layers.
    recurrent: Builds a recurrent layer.
  """
  layers = tf.keras.layers
  if options.model == 'cnn':
    # The EMNIST CNN of Reddi et al. without its dropout, so that losses can be
    # compared.
    parts = [
      layers.InputLayer([28, 28, 1]),
      layers.Conv2D(32, 3, activation='relu'),
      layers.Conv2D(64, 3, activation='relu'),
      layers.MaxPool2D(2),
      layers.Flatten(),
      layers.Dense(128, activation='relu'),
      layers.Dense(workload.CLASSES),
    ]
  elif options.model == 'cifar':
    # pfl-research's benchmark of CIFAR-10.
    parts = [
      layers.InputLayer([32, 32, 3]),
      layers.Conv2D(32, 3, activation='relu'),
      layers.Conv2D(64, 3, activation='relu'),
      layers.MaxPool2D(2),
      layers.Dropout(0.25),
      layers.Flatten(),
      layers.Dense(128, activation='relu'),
      layers.Dropout(0.5),
      layers.Dense(workload.DIGITS),
    ]
  elif options.model == 'lstm':
    parts = [
      layers.InputLayer([workload.STEPS]),
      layers.Embedding(workload.CHARACTERS, 8),
      recurrent(),
      recurrent(),
      layers.Dense(workload.CHARACTERS),
    ]
  elif options.model == 'digits':
    parts = [
      layers.InputLayer([8, 8, 1]),
      layers.Conv2D(16, 3, activation='relu', padding='same'),
      layers.MaxPool2D(),
      layers.Conv2D(32, 3, activation='relu', padding='same'),
      layers.MaxPool2D(),
      layers.Flatten(),
      layers.Dense(64, activation='relu'),
      layers.Dense(workload.DIGITS),
    ]
  elif options.model == 'autoencoder':
    inputs, *widths = workload.AUTOENCODER
    parts = [layers.InputLayer([inputs])]
    parts += [
      layers.Dense(w, 'linear' if w == min(widths) else 'sigmoid')
      for w in widths
    ]
  elif options.model == 'tag':
    parts = [
      layers.InputLayer([options.width]),
      text_models.BagOfWordsDense(workload.TAGS),
    ]
  else:
    parts = [layers.InputLayer([options.width]), layers.Dense(workload.CLASSES)]
  return tf.keras.Sequential(parts)


def loss(options) -> tf.keras.losses.Loss:
  """Builds the loss of a model."""
  if options.model == 'tag':
    return tf.keras.losses.BinaryCrossentropy(from_logits=True)
  if options.model == 'autoencoder':
    return tf.keras.losses.MeanSquaredError()
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def metric(options) -> tf.keras.metrics.Metric:
  """Builds the accuracy of a model."""
  if options.model == 'tag':
    return tf.keras.metrics.BinaryAccuracy()
  if options.model == 'autoencoder':
    return tf.keras.metrics.MeanSquaredError()
  return tf.keras.metrics.SparseCategoricalAccuracy()
