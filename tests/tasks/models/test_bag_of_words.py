"""A dense layer for bags of words against a dense layer, and NumPy."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tasks.models import text as text_models

WORDS, TAGS = 12, 3


def _kernel(rng):
  kernel = rng.standard_normal((WORDS, TAGS)).astype(np.float32)
  return kernel, rng.standard_normal(TAGS).astype(np.float32)


def _posts(rng):
  """Four posts with words 1, 4, 9 and 11; the third post has none."""
  posts = np.zeros((4, WORDS), np.float32)
  posts[0, [1, 4]] = [0.25, 0.75]
  posts[1, [4, 11]] = rng.random(2)
  posts[3, [9, 1]] = rng.random(2)
  return posts


def _layer(rng, **options):
  layer = text_models.BagOfWordsDense(TAGS, **options)
  layer.build((None, WORDS))
  kernel, bias = _kernel(rng)
  layer.set_weights([kernel, bias][: len(layer.weights)])
  return layer, kernel, bias


def _evaluate(layer, posts, pull):
  with tf.GradientTape() as tape:
    outputs = layer(posts)
    loss = tf.reduce_sum(outputs * pull)
  gradients = tape.gradient(loss, layer.trainable_variables)
  return outputs, [tf.convert_to_tensor(g) for g in gradients]


@pytest.mark.parametrize('compiled', [False, True])
def test_outputs_and_gradients_are_those_of_the_formula(compiled):
  rng = np.random.default_rng(0)
  layer, kernel, bias = _layer(rng)
  posts, pull = _posts(rng), rng.standard_normal((4, TAGS)).astype(np.float32)
  evaluate = functools.partial(_evaluate, layer)
  if compiled:
    spec = (tf.TensorSpec((None, WORDS)), tf.TensorSpec((None, TAGS)))
    evaluate = tf.function(evaluate, input_signature=spec)
  outputs, (of_kernel, of_bias) = evaluate(tf.constant(posts), pull)
  wide = posts.astype(np.float64)
  np.testing.assert_allclose(outputs, wide @ kernel + bias, rtol=1e-5)
  np.testing.assert_allclose(of_kernel, wide.T @ pull, rtol=1e-5, atol=1e-7)
  np.testing.assert_allclose(of_bias, pull.sum(axis=0), rtol=1e-5)
  unused = np.setdiff1d(np.arange(WORDS), [1, 4, 9, 11])
  assert not of_kernel.numpy()[unused].any()


def test_it_is_keras_dense_layer_with_its_options():
  rng = np.random.default_rng(1)
  posts, pull = _posts(rng), rng.standard_normal((4, TAGS)).astype(np.float32)
  for options in ({}, {'use_bias': False}, {'activation': 'tanh'}):
    layer, kernel, bias = _layer(rng, **options)
    theirs = tf.keras.layers.Dense(TAGS, **options)
    theirs.build((None, WORDS))
    theirs.set_weights([kernel, bias][: len(theirs.weights)])
    found, expected = (_evaluate(some, posts, pull) for some in (layer, theirs))
    for ours, dense in zip(
      (found[0], *found[1]), (expected[0], *expected[1]), strict=True
    ):
      np.testing.assert_allclose(ours, dense, rtol=1e-5, atol=1e-6)


def test_posts_without_a_known_word_have_the_bias():
  rng = np.random.default_rng(2)
  layer, _, bias = _layer(rng)
  for count in (3, 0):
    nothing = np.zeros((count, WORDS), np.float32)
    outputs, (of_kernel, of_bias) = _evaluate(
      layer, nothing, np.ones((count, TAGS), np.float32)
    )
    np.testing.assert_array_equal(outputs, np.tile(bias, (count, 1)))
    assert of_kernel.shape == (WORDS, TAGS)
    assert not of_kernel.numpy().any()
    np.testing.assert_array_equal(of_bias, np.full(TAGS, count, np.float32))


def test_words_that_do_not_occur_are_not_multiplied():
  """Where a dense layer has 0 times infinity, which is not a number."""
  rng = np.random.default_rng(3)
  layer, kernel, bias = _layer(rng)
  kernel[0] = np.inf
  layer.set_weights([kernel, bias])
  posts = _posts(rng)
  with np.errstate(invalid='ignore'):
    assert np.isnan(posts @ kernel).all()
  assert np.isfinite(layer(posts)).all()
