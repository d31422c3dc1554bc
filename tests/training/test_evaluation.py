"""Evaluation agrees with figures computed by hand."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive.training import data
from tff_adaptive.training import evaluation
from tff_adaptive.training import initial_weights


def weights(seed):
  rng = np.random.default_rng(seed)
  return tff.learning.models.ModelWeights(
    [
      rng.normal(size=(helpers.FEATURES, 2)).astype(np.float32),
      rng.normal(size=2).astype(np.float32),
    ],
    [],
  )


def by_hand(model, points):
  kernel, bias = model.trainable
  logits = points['x'] @ kernel + bias
  p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
  right = logits.argmax(axis=1) == points['y']
  loss = -np.log(p[np.arange(len(right)), points['y']]).mean()
  return loss, right.mean()


def test_agrees_with_numpy_for_one_set_of_weights_after_another():
  evaluator = evaluation.Evaluator(helpers.task().model_fn)
  points = helpers.examples(3, 10)  # Batches of 4, 4 and 2.
  dataset = helpers.batch(tf.data.Dataset.from_tensor_slices(points))
  for seed, batches in enumerate([dataset, list(dataset), dataset]):
    metrics = evaluator.evaluate(weights(seed), batches)
    loss, accuracy = by_hand(weights(seed), points)
    np.testing.assert_allclose(metrics['loss'], loss, rtol=1e-5)
    np.testing.assert_allclose(
      metrics['sparse_categorical_accuracy'], accuracy, rtol=1e-6
    )
    assert metrics['num_examples'] == 10
    assert 'num_batches' not in metrics


@pytest.mark.parametrize('cache_bytes', [0, 2**20])
def test_not_traced_for_every_evaluation(cache_bytes):
  task = helpers.task()
  traces = []

  def model_fn():
    model = task.model_fn()
    forward_pass = model.forward_pass

    def counted(batch, training):
      traces.append(batch)
      return forward_pass(batch, training)

    model.forward_pass = counted
    return model

  evaluator = evaluation.Evaluator(model_fn)
  for examples in (5, 10, 7, None, 3):
    batches = data.test_split(
      task.datasets, num_examples=examples, cache_bytes=cache_bytes
    )
    evaluator.evaluate(weights(0), batches)
  assert len(traces) <= 3


def test_initial_weights_are_decided_by_the_seed():
  task = helpers.task()

  def initial(seed):
    return initial_weights.draw(task.model_fn, seed).trainable[0]

  np.testing.assert_array_equal(initial(1), initial(1))
  assert np.abs(initial(1) - initial(2)).max() > 1e-3


@pytest.mark.parametrize('cache_bytes', [0, 2**20])
def test_layers_know_that_this_is_no_training(cache_bytes):
  task = helpers.task()

  def model_fn():
    layers = tf.keras.layers
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          layers.InputLayer((helpers.FEATURES,)),
          layers.Dropout(0.9),
          layers.Dense(2),
        ]
      ),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=task.datasets.element_type_structure,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )

  batches = data.test_split(task.datasets, cache_bytes=cache_bytes)
  plain = evaluation.Evaluator(task.model_fn).evaluate(weights(0), batches)
  dropout = evaluation.Evaluator(model_fn).evaluate(weights(0), batches)
  assert dropout['loss'] == plain['loss']
