"""Weights of examples in a batch, as Keras' `fit` takes them."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import algorithms
from tff_adaptive import models
from tff_adaptive import runtime

_X = np.array([[1.0], [2.0], [-1.0], [0.5], [3.0]], np.float32)
_Y = np.array([[2.0], [1.0], [0.0], [1.5], [-1.0]], np.float32)
# Their sum is not the number of examples.
_W = np.array([1.0, 0.0, 2.5, 0.5, 0.25], np.float32)
_START, _RATE = 0.5, 0.1
_FIXED = tf.TensorSpec([None, 1], tf.float32)
_WEIGHT = tf.TensorSpec([None], tf.float32)


def _library(version):
  if version == 2:
    return tf.keras
  import keras  # pylint: disable=g-import-not-at-top

  return keras


def _model_fn(version, spec, **given):
  keras = _library(version)

  def build():
    first = keras.initializers.Constant(_START)
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer=first)
    entrance = (
      keras.layers.InputLayer((1,)) if version == 2 else keras.Input((1,))
    )
    return keras.Sequential([entrance, dense])

  given.setdefault('loss', keras.losses.MeanSquaredError())
  given.setdefault(
    'metrics', [lambda: keras.metrics.MeanAbsoluteError(name='mae')]
  )
  return models.model_fn(build, input_spec=spec, **given)


def _batch(form, weights, rows=slice(None)):
  x, y, w = _X[rows], _Y[rows], weights[rows]
  if form == 'tuple':
    return x, y, w
  return collections.OrderedDict(x=x, y=y, sample_weight=w)


def _spec(form):
  if form == 'tuple':
    return _FIXED, _FIXED, _WEIGHT
  return collections.OrderedDict(x=_FIXED, y=_FIXED, sample_weight=_WEIGHT)


def _transcribed(weights):
  """Two steps of a client, by Keras' documentation of `sample_weight`."""
  x = _START
  losses, errors, sizes = [], [], []
  for rows in (slice(0, 3), slice(3, 5)):
    a, b, w = _X[rows, 0], _Y[rows, 0], weights[rows]
    e = a * x - b
    losses.append(np.sum(w * e**2) / len(w))
    errors.append((np.sum(w * np.abs(e)), np.sum(w)))
    sizes.append(len(w))
    x -= _RATE * np.sum(w * 2 * e * a) / len(w)
  mae = sum(e for e, _ in errors) / sum(w for _, w in errors)
  return x, np.average(losses, weights=sizes), mae


def _round(version, form, weights, vectorize, **given):
  runtime.set_in_process_context(vectorize_clients=vectorize)
  process = algorithms.build(
    'fedavg',
    _model_fn(version, _spec(form), **given),
    client_learning_rate=_RATE,
  )
  client = [_batch(form, weights, rows) for rows in (slice(0, 3), slice(3, 5))]
  client = [tf.nest.map_structure(tf.constant, batch) for batch in client]
  output = process.next(process.initialize(), [client])
  (trained,) = process.get_model_weights(output.state).trainable
  train = output.metrics['client_work']['train']
  assert train['num_examples'] == 5
  return float(np.squeeze(trained)), train['loss'], train['mae']


@pytest.mark.parametrize('vectorize', ['true', 'false'])
@pytest.mark.parametrize('version, form', [(2, 'dict'), (3, 'tuple')])
def test_loss_and_metrics_are_weighted_as_in_keras(version, form, vectorize):
  found = _round(version, form, _W, vectorize)
  np.testing.assert_allclose(found, _transcribed(_W), rtol=1e-5)
  # The neighbour: a mean over the weights' sum, or no weights at all.
  assert abs(found[0] - _transcribed(np.ones(5))[0]) > 0.01


@pytest.mark.parametrize('vectorize', ['true', 'false'])
def test_a_loss_may_divide_by_the_sum_of_weights(vectorize):
  keras = _library(3)
  loss = keras.losses.MeanSquaredError(reduction='mean_with_sample_weight')
  found, train_loss, _ = _round(3, 'tuple', _W, vectorize, loss=loss)
  x, losses = _START, []
  for rows in (slice(0, 3), slice(3, 5)):
    a, b, w = _X[rows, 0], _Y[rows, 0], _W[rows]
    losses.append(np.sum(w * (a * x - b) ** 2) / w.sum())
    x -= _RATE * np.sum(w * 2 * (a * x - b) * a) / w.sum()
  np.testing.assert_allclose(found, x, rtol=1e-5)
  np.testing.assert_allclose(train_loss, np.average(losses, weights=[3, 2]))


def test_the_evaluated_loss_is_weighted_too():
  model = _model_fn(2, _spec('dict'))()
  output = model.forward_pass(_batch('dict', _W), training=False)
  e = _X[:, 0] * _START - _Y[:, 0]
  np.testing.assert_allclose(output.loss, np.sum(_W * e**2) / 5, rtol=1e-6)
  assert int(output.num_examples) == 5


def test_a_loss_that_takes_no_weights_is_named():
  model = _model_fn(
    3, _spec('dict'), loss=lambda y, p: tf.reduce_mean(tf.square(y - p))
  )
  # AutoGraph wraps errors in the model's code.
  with pytest.raises(Exception, match='one number for a batch'):
    model().forward_pass(_batch('dict', _W))


@pytest.mark.parametrize(
  'version, kind',
  [(2, 'MeanAbsoluteError'), (3, 'MeanAbsoluteError'), (2, 'wrapper')],
)
def test_a_metric_may_be_an_object(version, kind):
  keras = _library(version)
  metric = keras.metrics.MeanAbsoluteError(name='mae')
  if kind == 'wrapper':
    metric = keras.metrics.MeanMetricWrapper(
      keras.metrics.mean_absolute_error, name='mae'
    )
  found = _round(version, 'tuple', _W, 'false', metrics=[metric])
  np.testing.assert_allclose(found, _transcribed(_W), rtol=1e-5)


class _Largest(tf.keras.metrics.Mean):
  def update_state(self, y_true, y_pred):
    return super().update_state(tf.reduce_max(y_pred - y_true))


def test_a_metric_that_takes_no_weights_is_named():
  model = _model_fn(2, _spec('tuple'), metrics=[_Largest])
  with pytest.raises(TypeError, match='_Largest may ignore sample weights'):
    model()
