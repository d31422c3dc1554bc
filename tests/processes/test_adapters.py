"""Low-rank adapters, against transcriptions of the papers to NumPy."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import distilbert
from tests import tiers
from tff_adaptive import adapters
from tff_adaptive import algorithms
from tff_adaptive import models
from tff_adaptive.lab.training import traffic as communication

pytestmark = pytest.mark.usefixtures('in_process_context')

_INPUTS, _OUTPUTS, _RANK, _ALPHA, _RATE = 4, 3, 2, 3.0, 0.2
_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, _INPUTS], tf.float32),
  y=tf.TensorSpec([None, _OUTPUTS], tf.float32),
)


def client(seed, sizes):
  rng = np.random.default_rng(seed)
  return [
    (
      rng.normal(size=[n, _INPUTS]).astype(np.float32),
      rng.normal(size=[n, _OUTPUTS]).astype(np.float32) + seed,
    )
    for n in sizes
  ]


_CLIENTS = [client(1, [4, 4, 4]), client(2, [2, 2])]


def dense(kind):
  keras = tf.keras if kind == 'keras_2' else pytest.importorskip('keras')
  layers = keras.layers
  return keras.Sequential(
    [layers.InputLayer((_INPUTS,)), layers.Dense(_OUTPUTS, name='only')]
  )


def model_fn(kind, **options):
  made = models.model_fn(
    lambda: dense(kind),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=_SPEC,
  )
  return adapters.adapt(made, _RANK, alpha=_ALPHA, **options)


def trained(w0, bias, a, b, batches, rule):
  """A client's A and B; LoRA's W0 x + (alpha / r) B A x, transposed."""
  scale = _ALPHA / _RANK
  for x, y in batches:
    w = w0 + scale * a @ b
    gradient = x.T @ (2 * (x @ w + bias - y)) / y.size
    of_a, of_b = scale * gradient @ b.T, scale * a.T @ gradient
    if rule != 'ffa':
      a = a - _RATE * of_a
    b = b - _RATE * of_b
  return a, b


def rounds(w0, bias, a, b, rule, count):
  """Rounds of the papers, each over both clients, weighted by examples."""
  sizes = [sum(len(x) for x, _ in c) for c in _CLIENTS]
  share = np.array(sizes) / sum(sizes)
  for _ in range(count):
    ends = [trained(w0, bias, a, b, c, rule) for c in _CLIENTS]
    ideal = w0 + _ALPHA / _RANK * sum(
      p * a_i @ b_i for p, (a_i, b_i) in zip(share, ends)
    )
    a = sum(p * a_i for p, (a_i, _) in zip(share, ends))
    b = sum(p * b_i for p, (_, b_i) in zip(share, ends))
    if rule == 'fedex':
      rest = sum(p * a_i @ b_i for p, (a_i, b_i) in zip(share, ends)) - a @ b
      w0 = w0 + _ALPHA / _RANK * rest
  return w0, a, b, ideal


def dataset(batches):
  x, y = (np.stack(part) for part in zip(*batches))
  spec = tf.nest.map_structure(lambda s: s.shape, _SPEC)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=x, y=y)
  ).map(
    lambda e: collections.OrderedDict(
      (k, tf.ensure_shape(tf.reshape(v, tf.shape(v)), spec[k]))
      for k, v in e.items()
    )
  )


@pytest.mark.parametrize('kind', ['keras_2', 'keras_3'])
def test_a_regularizer_is_one_of_the_adapted_kernel(kind):
  keras = tf.keras if kind == 'keras_2' else pytest.importorskip('keras')
  layer = keras.layers.Dense(
    _OUTPUTS, kernel_regularizer=keras.regularizers.L2(0.5)
  )
  layers = [keras.layers.InputLayer((_INPUTS,)), layer]
  made = models.model_fn(
    lambda: keras.Sequential(
      [type(k).from_config(k.get_config()) for k in layers]
    ),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=_SPEC,
  )
  process = algorithms.build(
    'fedavg', adapters.adapt(made, _RANK), client_learning_rate=_RATE
  )
  state = process.initialize()
  start = process.get_model_weights(state)
  [a, b], [w0, bias] = start.trainable, start.non_trainable
  [(x, y)] = batches = _CLIENTS[0][:1]
  end = process.next(state, [dataset(batches)]).state
  # B starts at 0, and the regularizer's gradient is W itself.
  gradient = x.T @ (2 * (x @ w0 + bias - y)) / y.size + w0
  np.testing.assert_allclose(
    process.get_model_weights(end).trainable[1],
    b - _RATE * a.T @ gradient,
    rtol=1e-4,
  )


@pytest.mark.parametrize(
  'rule, kind',
  tiers.exhaustive_but(
    [('ffa', 'keras_3'), ('fedex', 'keras_2')],
    [
      (rule, kind)
      for rule in ('lora', 'ffa', 'fedex')
      for kind in ('keras_2', 'keras_3')
    ],
  ),
)
def test_follows_the_papers(rule, kind):
  process = algorithms.build(
    'fedavg', model_fn(kind, rule=rule), client_learning_rate=_RATE
  )
  state = process.initialize()
  start = process.get_model_weights(state)
  if rule == 'ffa':
    [b], [w0, bias, a] = start.trainable, start.non_trainable
  else:
    [a, b], [w0, bias] = start.trainable, start.non_trainable
  assert a.shape == (_INPUTS, _RANK) and b.shape == (_RANK, _OUTPUTS)
  assert not b.any() and 0 < np.abs(a).max() <= _INPUTS**-0.5
  for _ in range(3):
    output = process.next(state, [dataset(c) for c in _CLIENTS])
    state = output.state
  end = process.get_model_weights(state)
  expected_w0, expected_a, expected_b, ideal = rounds(
    w0.astype(np.float64), bias, a, b, rule, 3
  )
  expected = [expected_b] if rule == 'ffa' else [expected_a, expected_b]
  for found, wanted in zip(end.trainable, expected, strict=True):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(end.non_trainable[0], expected_w0, rtol=1e-4)
  # Only with these two is the model the mean of the clients' models.
  model = expected_w0 + _ALPHA / _RANK * expected_a @ expected_b
  error = np.abs(model - ideal).max()
  assert error < 1e-9 if rule != 'lora' else error > 1e-3
  # Three rounds tell the rules apart.
  assert np.abs(expected_a - a).max() > 1e-2 or rule == 'ffa'
  down, up = 4 * b.size, 4 * b.size
  if rule != 'ffa':
    down, up = down + 4 * a.size, up + 4 * a.size
  if rule == 'fedex':  # The correction.
    down += 4 * w0.size
  # Beside it a rate, the round and the seed; a weight, counts and metrics.
  assert communication.of_process(process) == communication.Traffic(
    down + 3 * 4, up + 7 * 4 + 2 * 4 + 2 * 8
  )


_SIZE = distilbert.Size(blocks=1, width=8, heads=2, hidden=12)


def encoder():
  return distilbert.build(
    num_classes=4, vocab_size=20, max_length=6, size=_SIZE
  )


_TOKENS = (tf.TensorSpec([None, 6], tf.int32), tf.TensorSpec([None], tf.int32))


def encoder_fn():
  return models.model_fn(
    encoder,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=_TOKENS,
  )


@pytest.mark.exhaustive
def test_on_the_text_encoder():
  """Attention's kernels are matrices from width to heads and back."""
  adapted = adapters.adapt(
    encoder_fn(), 2, alpha=4, trains=lambda name: name.startswith('head/')
  )
  model = adapted()
  names = models.names_in(model)
  # Queries, keys, values, outputs and two dense layers; two at the end.
  kernels = [n.removesuffix('/b') for n in names if n.endswith('/b')]
  assert len(kernels) == 6 + 2
  assert names[-1] == 'head/bias' and len(names) == 2 * len(kernels) + 1
  tokens = np.random.default_rng(0).integers(1, 20, [3, 6]).astype(np.int32)
  inner = model.unfrozen
  before = model.predict_on_batch(tokens, training=False)
  batch = (tokens, np.array([0, 1, 2], np.int32))
  with tf.GradientTape() as tape:
    loss = model.forward_pass(batch, training=True).loss
  gradients = dict(zip(names, tape.gradient(loss, model.trainable_variables)))
  query = next(n for n in kernels if 'query' in n)
  assert np.abs(gradients[f'{query}/b']).max() > 0  # And B is zero:
  assert not np.abs(gradients[f'{query}/a']).any()
  variables = dict(zip(names, model.trainable_variables))
  all_names = models.names_in(inner)
  kernel = dict(zip(all_names, inner.trainable_variables))[query]
  first = kernel.numpy()
  rng = np.random.default_rng(1)
  for name in names:
    if name.endswith('/b'):
      b = variables[name]
      b.assign(rng.normal(size=b.shape).astype(np.float32))
  after = model.predict_on_batch(tokens, training=False)
  assert np.abs(after - before).max() > 1e-2
  np.testing.assert_array_equal(kernel.numpy(), first)
  merged = model.merge()
  assert merged is inner
  low = variables[f'{query}/a'].numpy() @ variables[f'{query}/b'].numpy()
  np.testing.assert_allclose(
    kernel.numpy(), first + 2 * low.reshape(first.shape), rtol=1e-5, atol=1e-6
  )
  again = encoder()
  again.set_weights(tff_weights(merged))
  np.testing.assert_allclose(
    again(tokens, training=False), after, rtol=1e-4, atol=1e-5
  )


def tff_weights(model):
  return [v.numpy() for v in model._keras_model.weights]


def test_attention_of_keras_3():
  keras = pytest.importorskip('keras')
  inputs = keras.Input((6, 8))
  attention = keras.layers.MultiHeadAttention(2, 4, name='attention')
  model = models.from_keras_model(
    keras.Model(inputs, attention(inputs, inputs)),
    loss='mse',
    input_spec=(tf.TensorSpec([None, 6, 8]), tf.TensorSpec([None, 6, 8])),
  )
  found = adapters.kernels_of(model)
  shapes = [(m.shape, m.rows, m.columns) for _, m in found.values()]
  assert shapes == [((8, 2, 4), 8, 8)] * 3 + [((2, 4, 8), 8, 8)]


def test_kernels_of_any_equation():
  layers = tf.keras.layers
  for equation, shape, matrix in (
    ('...i,oi->...o', (3, 2), (2, 3)),
    ('bi,ohi->boh', (3, 4, 2), (2, 12)),
    ('bti,tio->bto', (5, 2, 3), None),
  ):
    layer = layers.EinsumDense(equation, shape[:1])
    found = adapters._matrix_of(layer, shape)
    assert (found and (found.rows, found.columns)) == matrix
    if found:
      rng = np.random.default_rng(0)
      x, w = rng.normal(size=[7, found.rows]), rng.normal(size=matrix)
      kernel = found.kernel(w).numpy()
      assert kernel.shape == shape
      expected = (x @ w).reshape([7, *shape[:-1]])
      np.testing.assert_allclose(
        np.einsum(equation.replace('...', 'b'), x, kernel), expected
      )


@pytest.mark.exhaustive
def test_what_cannot_have_adapters():
  with pytest.raises(adapters.AdapterError, match='at least 1, got 0'):
    adapters.adapt(model_fn, 0)
  made = models.model_fn(
    lambda: dense('keras_2'),
    input_spec=_SPEC,
    loss=tf.keras.losses.MeanSquaredError(),
  )
  with pytest.raises(adapters.AdapterError, match='the model has only/kernel'):
    adapters.adapt(made, 1, adapts=lambda name: False)

  def flat():
    return tf.keras.Sequential(
      [tf.keras.layers.BatchNormalization(input_shape=(4,))]
    )

  none = models.model_fn(
    flat, input_spec=_SPEC, loss=tf.keras.losses.MeanSquaredError()
  )
  with pytest.raises(
    adapters.AdapterError, match='dense or attention layer with'
  ):
    adapters.adapt(none, 1)
  fedex = model_fn('keras_2', rule='fedex')
  for name, more in (
    ('fednova', {}),
    ('fedavg', {'model_aggregator': tff.learning.robust_aggregator()}),
    ('fedavg', {'aggregator': 'secure'}),
    ('fedavg', {'aggregator': 'compression'}),
  ):
    with pytest.raises(adapters.AdapterError, match='Use the rule lora'):
      algorithms.build(name, fedex, **more)
