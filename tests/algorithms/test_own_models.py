"""Models that look words up, were adapted to data, or have two losses."""

import collections
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import tff_internals

_WORDS = np.array(['red', 'green', 'blue', 'black', 'red'])[:, None]
_NUMBERS = np.array([[3.0], [5.0], [9.0], [3.0], [4.0]], np.float32)
# Without, Keras 2 does not know the number of its outputs.
_PADDED = dict(max_tokens=3, pad_to_max_tokens=True)


def own_table(kind):
  class Lookup(kind.layers.Layer):
    def __init__(self):
      super().__init__()
      self.table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(['red', 'blue'], [1.0, 2.0]), 0.0
      )

    def call(self, x):
      return self.table.lookup(x)

  return Lookup()


def closure(kind):
  one = tf.constant(1.0)
  return kind.layers.Lambda(lambda x: x + one)


def adapted(make, kind, data=_WORDS):
  layer = make(kind)
  layer.adapt(data)
  return layer


# As the message about `adapt` advises with Keras 2.
_ADAPTED = adapted(lambda kind: kind.layers.Normalization(), tf.keras, _NUMBERS)
_SCALES = dict(
  mean=_ADAPTED.mean.numpy().ravel(), variance=_ADAPTED.variance.numpy().ravel()
)


def build(kind, make, x, **options):
  def model():
    inputs = kind.Input((1,), dtype='string' if x is _WORDS else 'float32')
    return kind.Model(inputs, kind.layers.Dense(1)(make(kind)(inputs)))

  return algorithms.build(
    'fedavg',
    model,
    loss=kind.losses.MeanSquaredError(),
    metrics=[],
    input_spec=(
      tf.TensorSpec([None, 1], tf.as_dtype(x.dtype.type)),
      tf.TensorSpec([None, 1], tf.float32),
    ),
    **options,
  )


def trained(kind, make, x):
  process = build(kind, make, x, client_learning_rate=0.1)
  state = process.initialize()
  start = process.get_model_weights(state)
  first = tff.learning.models.ModelWeights(
    [np.ones_like(w) for w in start.trainable], start.non_trainable
  )
  state = process.set_model_weights(state, first)
  data = tf.data.Dataset.from_tensor_slices((x, _NUMBERS)).batch(3)
  state = process.next(state, [data, data]).state
  return process.get_model_weights(state).trainable


@pytest.mark.parametrize(
  'make, x',
  [
    pytest.param(
      lambda kind: kind.layers.StringLookup(
        vocabulary=['red', 'blue'], output_mode='one_hot', **_PADDED
      ),
      _WORDS,
      marks=pytest.mark.exhaustive,
    ),
    (
      lambda kind: kind.layers.TextVectorization(
        vocabulary=['red', 'blue'], output_mode='multi_hot', **_PADDED
      ),
      _WORDS,
    ),
    pytest.param(
      lambda kind: kind.layers.IntegerLookup(
        vocabulary=[3, 5], output_mode='multi_hot', **_PADDED
      ),
      _NUMBERS.astype(np.int64),
      marks=pytest.mark.exhaustive,
    ),
    (own_table, _WORDS),
    pytest.param(
      lambda kind: kind.layers.Normalization(**_SCALES),
      _NUMBERS,
      marks=pytest.mark.exhaustive,
    ),
  ],
  ids=['words', 'texts', 'numbers', 'own table', 'normalization'],
)
def test_keras_3_trains_as_keras_2(in_process_context, make, x):
  first, second = (trained(kind, make, x) for kind in (tf.keras, keras))
  assert np.abs(first[0] - 1).max() > 0.01
  for weights, others in zip(first, second, strict=True):
    np.testing.assert_allclose(weights, others, rtol=1e-5)


def test_layers_adapted_in_the_function_of_a_model(in_process_context):
  make = functools.partial(
    adapted, lambda kind: kind.layers.StringLookup(output_mode='one_hot')
  )
  assert trained(keras, make, _WORDS)[0].shape == (5, 1)
  with pytest.raises(tff_internals.ModelError, match='adapt a layer outside'):
    build(tf.keras, make, _WORDS)


def test_an_unknown_number_of_outputs(in_process_context):
  def make(kind):
    return kind.layers.StringLookup(vocabulary=['red'], output_mode='one_hot')

  with pytest.raises(tff_internals.ModelError, match='pad_to_max_tokens=True'):
    build(tf.keras, make, _WORDS)


def test_tensors_from_outside_of_a_layer(in_process_context):
  with pytest.raises(tff_internals.ModelError, match="numbers as NumPy's"):
    build(keras, closure, _NUMBERS)


def test_labels_by_name_for_several_losses(in_process_context):
  def model():
    inputs = tf.keras.Input((1,))
    outputs = [tf.keras.layers.Dense(1)(inputs) for _ in range(2)]
    label = tf.TensorSpec([None, 1])
    return tff.learning.models.from_keras_model(
      tf.keras.Model(inputs, outputs),
      loss=[tf.keras.losses.MeanSquaredError() for _ in range(2)],
      input_spec=(label, collections.OrderedDict(a=label, b=label)),
    )

  with pytest.raises(tff_internals.ModelError, match='labels by name'):
    algorithms.build('fedavg', model)
