"""Residual networks."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.models import resnet


def _build(**changes):
  options = dict(depth=18, num_classes=10, image_size=24, stem='large')
  return resnet.build(**dict(options, **changes))


@pytest.mark.parametrize(
  'changes, weights',
  [
    # As many as TFF's own networks have.
    (dict(), 11_181_642),
    (dict(num_classes=100), 11_227_812),
    pytest.param(
      dict(depth=50, num_classes=100, image_size=32),
      23_712_932,
      marks=pytest.mark.exhaustive,
    ),
    (dict(depth=8, stem='small', image_size=32), 78_042),
    # A 3 x 3 stem saves 64 x 3 x 40 weights.
    (dict(stem='small', image_size=32), 11_181_642 - 7680),
  ],
)
def test_weights(changes, weights):
  with tf.Graph().as_default():
    model = _build(**changes)
  assert model.count_params() == weights
  assert not model.non_trainable_variables


def test_groups_are_two():
  with tf.Graph().as_default():
    layers = _build().layers
  norms = [
    layer
    for layer in layers
    if isinstance(layer, tf.keras.layers.GroupNormalization)
  ]
  assert len(norms) == 20 and all(layer.groups == 2 for layer in norms)


@pytest.mark.parametrize(
  'stem, sizes', [('large', [6, 6, 6, 6]), ('small', [24, 12, 6, 3])]
)
def test_where_strides_are(stem, sizes):
  with tf.Graph().as_default():
    layers = _build(stem=stem).layers
  adds = [layer for layer in layers if isinstance(layer, tf.keras.layers.Add)]
  assert [layer.output_shape[1] for layer in adds] == list(np.repeat(sizes, 2))


def test_one_image_does_not_depend_on_the_others():
  tf.keras.utils.set_random_seed(0)
  model = _build(depth=8)
  images = np.random.default_rng(0).normal(size=[3, 24, 24, 3])
  np.testing.assert_allclose(
    model(images)[:1], model(images[:1]), rtol=1e-4, atol=1e-6
  )
  # Logits: the loss has the softmax.
  assert model.layers[-1].activation is tf.keras.activations.linear


@pytest.mark.exhaustive
def test_weight_decay_is_of_squared_kernels():
  with tf.Graph().as_default():
    assert not _build(weight_decay=0.0).losses
    assert len(_build().losses) == 22  # 20 convolutions; kernel, bias of dense.
