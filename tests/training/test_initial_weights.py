"""Where a run's model starts."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording.checkpoints import folder as checkpoints
from tff_adaptive.lab.training import initial_weights


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


def test_a_run_whose_weights_are_of_another_dtype(tmp_path):
  shapes = [(helpers.FEATURES, 2), (2,)]
  for dtype in (np.float32, np.float64):
    folder = files.RunFolder(tmp_path / np.dtype(dtype).name)
    folder.path.mkdir()
    folder.write_hparams({'settings': {}})
    weights = collections.OrderedDict(
      trainable=[np.ones(shape, dtype) for shape in shapes], non_trainable=[]
    )
    state = collections.OrderedDict(global_model_weights=weights)
    checkpoints.Checkpoints(folder.checkpoints).save(state, 1)
  model_fn = helpers.task().model_fn
  loaded = initial_weights.load(model_fn, tmp_path / 'float32')
  assert loaded.trainable[1].tolist() == [1, 1]
  with pytest.raises(errors.SettingsError, match='of the dtype float64, and'):
    initial_weights.load(model_fn, tmp_path / 'float64')
