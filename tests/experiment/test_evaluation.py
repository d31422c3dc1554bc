"""Evaluation agrees with figures computed by hand."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.experiment import data
from tff_adaptive.experiment import evaluation

from . import helpers


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
  for seed in range(3):
    metrics = evaluator.evaluate(weights(seed), dataset)
    loss, accuracy = by_hand(weights(seed), points)
    np.testing.assert_allclose(metrics['loss'], loss, rtol=1e-5)
    np.testing.assert_allclose(
        metrics['sparse_categorical_accuracy'], accuracy, rtol=1e-6
    )
    assert metrics['num_examples'] == 10
    assert 'num_batches' not in metrics


def test_traced_once():
  task = helpers.task()
  evaluator = evaluation.Evaluator(task.model_fn)
  for examples in (5, 10, None):
    evaluator.evaluate(
        weights(0), data.test_split(task.datasets, num_examples=examples)
    )
  assert evaluator._walk.experimental_get_tracing_count() == 1  # pylint: disable=protected-access


def test_initial_weights_are_decided_by_the_seed():
  task = helpers.task()

  def initial(seed):
    tf.keras.utils.set_random_seed(seed)
    return evaluation.Evaluator(task.model_fn).weights.trainable[0]

  np.testing.assert_array_equal(initial(1), initial(1))
  assert np.abs(initial(1) - initial(2)).max() > 1e-3
