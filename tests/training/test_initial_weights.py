"""Where a run's model starts."""

import collections
import random

import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import tff_internals
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training import seeds


def kernel(seed):
  return initial_weights.draw(helpers.task().model_fn, seed).trainable[0]


def test_the_seed_decides_and_nothing_else():
  first = kernel(3)
  tf.random.uniform([5])
  np.random.default_rng().normal()
  np.testing.assert_array_equal(kernel(3), first)
  assert not np.array_equal(kernel(4), first)


def test_random_operations_begin_anew_with_a_seed():
  model_fn = helpers.task().model_fn

  def drawn_by_an_operation():
    model = model_fn()
    kernel = model.trainable_variables[0]
    kernel.assign(tf.random.normal(kernel.shape))
    return model

  # Of a seed that no other test uses: when it is new, and when it is not.
  drawn = [
    initial_weights.draw(drawn_by_an_operation, 987).trainable[0]
    for _ in range(3)
  ]
  np.testing.assert_array_equal(drawn[1], drawn[0])
  np.testing.assert_array_equal(drawn[2], drawn[0])
  tf.keras.utils.set_random_seed(seeds.seed_32(987, 'initial weights'))
  as_in_keras = drawn_by_an_operation().trainable_variables[0]
  np.testing.assert_array_equal(as_in_keras, drawn[0])


def test_with_a_key_they_are_drawn_once_and_cannot_be_spoiled(monkeypatch):
  drawn = []
  model_fn = helpers.task().model_fn
  set_random_seed = tff_internals.set_random_seed

  def counted(seed, **options):
    set_random_seed(seed, **options)
    if not options:
      drawn.append(seed)

  monkeypatch.setattr(tff_internals, 'set_random_seed', counted)

  def draw(seed, key='a model'):
    weights = initial_weights.draw(model_fn, seed, key)
    return weights.trainable[0], np.random.normal(), random.random()

  first, *generators = draw(988)
  kept = first.copy()
  first += 1
  again, *same = draw(988)
  assert len(drawn) == 1
  np.testing.assert_array_equal(again, kept)
  assert same == generators
  other, *unlike = draw(989)
  assert unlike != generators and not np.array_equal(other, kept)
  draw(988, 'another model')
  assert len(drawn) == 3


def test_a_run_whose_weights_are_of_another_dtype(tmp_path):
  shapes = [(helpers.FEATURES, 2), (2,)]
  model = helpers.task().model_fn()
  for dtype in (np.float32, np.float64):
    folder = files.RunFolder(tmp_path / np.dtype(dtype).name)
    folder.path.mkdir()
    names = models.weight_names(model)
    folder.write_hparams({'settings': {}, 'weights': names})
    weights = collections.OrderedDict(
      trainable=[np.ones(shape, dtype) for shape in shapes], non_trainable=[]
    )
    state = collections.OrderedDict(global_model_weights=weights)
    checkpoints.Checkpoints(folder.checkpoints).save(state, 1)
  loaded = initial_weights.load(lambda: model, tmp_path / 'float32')
  assert loaded.trainable[1].tolist() == [1, 1]
  with pytest.raises(errors.SettingsError, match='and dtype float64, and'):
    initial_weights.load(lambda: model, tmp_path / 'float64')
