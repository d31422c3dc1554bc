"""Where a run's model starts."""

import numpy as np
import tensorflow as tf

from tests import helpers
from tff_adaptive.training import initial_weights


def kernel(seed):
  return initial_weights.draw(helpers.task().model_fn, seed).trainable[0]


def test_the_seed_decides_and_nothing_else():
  first = kernel(3)
  tf.random.uniform([5])
  np.random.default_rng().normal()
  np.testing.assert_array_equal(kernel(3), first)
  assert not np.array_equal(kernel(4), first)


def test_they_are_drawn_as_keras_draws_them():
  weights = initial_weights.draw(helpers.task().model_fn, 3)
  spread = np.sqrt(6 / (helpers.FEATURES + 2))  # Glorot's, for a dense layer.
  assert 0 < np.abs(weights.trainable[0]).max() <= spread
  assert not weights.trainable[1].any() and not weights.non_trainable
