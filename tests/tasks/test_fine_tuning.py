"""Models of which some variables are frozen."""

import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import builders
from tff_adaptive import models
from tff_adaptive import tff_internals

_NAMES = [
  f'{layer}/{part}'
  for layer in ('conv2d', 'conv2d_1', 'dense', 'dense_1')
  for part in ('kernel', 'bias')
]


def digits():
  return tasks.create('digits', data='synthetic')


def test_names_do_not_depend_on_models_built_before():
  task = digits()
  for _ in range(2):
    task.model_fn()
    assert models.variable_names(task.model_fn) == _NAMES


def test_frozen_variables_are_not_trained_and_nothing_else_changes():
  task = digits()
  frozen_fn = builders.freeze(
    task.model_fn, lambda name: name.startswith('conv2d')
  )
  assert models.variable_names(frozen_fn) == _NAMES[4:]
  with tf.Graph().as_default():
    weights = tff.learning.models.ModelWeights.from_model(frozen_fn())
    assert len(weights.trainable) == 4 and len(weights.non_trainable) == 4
  model = frozen_fn()
  inner = model.unfrozen
  assert model.input_spec == inner.input_spec
  assert tff_internals.keras_model_of(model).count_params() == 13_706
  batch = next(
    iter(task.datasets.eval_preprocess_fn(task.datasets.test_data.take(8)))
  )
  with tf.GradientTape() as tape:
    output = model.forward_pass(batch)
  gradients = tape.gradient(output.loss, model.trainable_variables)
  assert all(g is not None for g in gradients) and len(gradients) == 4
  names = list(model.metric_finalizers())
  assert list(model.report_local_unfinalized_metrics()) == names
  assert model.predict_on_batch(batch[0]).shape == [8, 10]
  model.reset_metrics()
  assert model.local_variables[0].numpy() == 0


def test_what_is_frozen_twice():
  first = builders.freeze(digits().model_fn, lambda n: n == 'dense/bias')
  both = builders.freeze(first, lambda name: name == 'conv2d/kernel')
  assert len(both().non_trainable_variables) == 2
  assert models.variable_names(both) == [
    n for n in _NAMES if n not in ('dense/bias', 'conv2d/kernel')
  ]
  assert tff_internals.keras_model_of(both()) is not None


def test_nothing_frozen_is_the_model_itself():
  model_fn = digits().model_fn
  assert builders.freeze(model_fn, lambda _: False) is model_fn
