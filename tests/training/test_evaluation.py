"""Evaluation agrees with figures computed by hand."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import helpers
from tests import tiers
from tff_adaptive import tff_internals
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.evaluation import evaluator as evaluation


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


def test_models_in_graphs_do_not_spoil_an_evaluator_that_is_used_again():
  task = helpers.task()
  evaluator = evaluation.Evaluator(task.model_fn)
  initial_weights.draw(task.model_fn, 0, 'a key')
  with tf.Graph().as_default():
    task.model_fn()
  weights = initial_weights.draw(task.model_fn, 0, 'a key')
  batches = data.test_split(task.datasets, num_examples=5, cache_bytes=2**20)
  assert evaluator.evaluate(weights, batches)['num_examples'] == 5


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


def model_with_order():
  task = helpers.task()
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer((helpers.FEATURES,)),
        tf.keras.layers.Dense(2),
      ]
    ),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=task.datasets.element_type_structure,
    metrics=[lambda: Order(1.0)],
  )


class Order(tf.keras.metrics.Metric):
  """No sum: every batch doubles what there is and adds one."""

  def __init__(self, first=0.0, name='order', **more):
    super().__init__(name=name, **more)
    self.first = first
    self.value = self.add_weight('value', initializer='zeros')
    self.reset_state()

  def reset_state(self):
    self.value.assign(self.first)

  def update_state(self, y_true, y_pred, sample_weight=None):
    del y_true, y_pred, sample_weight
    self.value.assign(2 * self.value + 1)

  def result(self):
    return self.value


def many_batches(count):
  points = helpers.examples(3, 4 * count)
  return points, list(helpers.batch(tf.data.Dataset.from_tensor_slices(points)))


@pytest.mark.parametrize('cores', [1, 3])
@pytest.mark.parametrize(
  'count', tiers.exhaustive_but([1, 17], [1, 15, 16, 17, 50])
)
def test_every_batch_counts_once_on_any_number_of_cores(
  monkeypatch, cores, count
):
  monkeypatch.setattr('os.sched_getaffinity', lambda _: set(range(cores)))
  evaluator = evaluation.Evaluator(helpers.task().model_fn)
  points, batches = many_batches(count)
  for seed in (0, 1):  # A second time, with sums that were used before.
    metrics = evaluator.evaluate(weights(seed), batches)
    loss, accuracy = by_hand(weights(seed), points)
    np.testing.assert_allclose(metrics['loss'], loss, rtol=1e-5)
    np.testing.assert_allclose(
      metrics['sparse_categorical_accuracy'], accuracy, rtol=1e-6
    )
    assert metrics['num_examples'] == 4 * count


def test_the_number_of_cores_changes_no_bit(monkeypatch):
  _, batches = many_batches(40)
  found = []
  for cores in (1, 2, 5, 64):
    monkeypatch.setattr('os.sched_getaffinity', lambda _, n=cores: range(n))
    evaluator = evaluation.Evaluator(helpers.task().model_fn)
    found.append(dict(evaluator.evaluate(weights(0), batches)))
  assert all(values == found[0] for values in found)


def test_a_metric_that_starts_above_zero_sees_one_batch_after_another():
  _, batches = many_batches(5)
  evaluator = evaluation.Evaluator(model_with_order)
  assert evaluator.evaluate(weights(0), batches)['order'] == 2**6 - 1


def small_model(layers, shape):
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.layers.InputLayer(shape), *layers]),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=(
      tf.TensorSpec([None, *shape], tf.float32),
      tf.TensorSpec([None], tf.int32),
    ),
    metrics=[Largest()],
  )


class Largest(tf.keras.metrics.Metric):
  """The largest output so far."""

  def __init__(self):
    super().__init__(name='largest')
    self.value = self.add_weight('value', initializer='zeros')

  def update_state(self, y_true, y_pred, sample_weight=None):
    del y_true, sample_weight
    self.value.assign(tf.maximum(self.value, tf.reduce_max(tf.abs(y_pred))))

  def result(self):
    return self.value


def test_models_that_random_numbers_do_not_suit():
  layers = tf.keras.layers
  # Undefined below -1, and too short for a kernel of 3.
  logarithm = [layers.Lambda(tf.math.log1p), layers.Dense(2)]
  lengths = [
    layers.Conv1D(4, 3),
    layers.GlobalAveragePooling1D(),
    layers.Dense(2),
  ]
  for model, shape in ((logarithm, [8]), (lengths, [None, 8])):
    evaluator = evaluation.Evaluator(lambda m=model, s=shape: small_model(m, s))
    assert evaluator.not_sums == ['largest']


def test_an_error_in_a_batch_is_raised():
  _, batches = many_batches(20)
  wrong = {**batches[3], 'x': batches[3]['x'][:, :1]}
  evaluator = evaluation.Evaluator(helpers.task().model_fn)
  with pytest.raises((ValueError, tf.errors.OpError)):
    evaluator.evaluate(weights(0), [*batches[:3], wrong, *batches[4:]])


def test_models_that_are_built_in_graphs_do_not_spoil_it():
  model_fn = helpers.task().model_fn
  evaluator = evaluation.Evaluator(model_fn)
  with tf.Graph().as_default():
    model_fn()
  evaluator.leave_graph_mode()
  points = helpers.examples(3, 7)  # A batch that it has not been traced for.
  metrics = evaluator.evaluate(weights(0), [(points['x'], points['y'])])
  loss, _ = by_hand(weights(0), points)
  np.testing.assert_allclose(metrics['loss'], loss, rtol=1e-5)
  assert not tff_internals.is_in_graph_mode(evaluator._model)
