"""Where a run's model starts."""

import collections
import random

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tensorflow_federated as tff

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


def nested(kind, frozen=False, names=('one', 'two'), swapped=False):
  """Returns a model with two layers of equal shapes inside another."""
  inputs = kind.Input((4,))
  made = [kind.layers.Dense(4, name=name) for name in names]
  made[0].trainable = not frozen
  first, second = reversed(made) if swapped else made
  body = kind.Model(inputs, second(first(inputs)), name='body')
  outer = kind.Input((4,))
  return kind.Model(outer, kind.layers.Dense(3, name='top')(body(outer)))


def model_fn(kind, **options):
  return models.model_fn(
    lambda: nested(kind, **options),
    loss=kind.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[],
    input_spec=(
      tf.TensorSpec([None, 4], tf.float32),
      tf.TensorSpec([None], tf.int32),
    ),
  )


def saved(model, where, dtype=np.float32, names=None):
  """Writes the weights of a model as a file or a run has them."""
  names = names or models.weight_names(model)
  weights = tff.learning.models.ModelWeights.from_model(model)
  weights = tf.nest.map_structure(lambda w: w.numpy().astype(dtype), weights)
  if where.suffix:
    arrays = zip(names, [*weights.trainable, *weights.non_trainable])
    safetensors.numpy.save_file(dict(arrays), where)
    return where
  folder = files.RunFolder(where)
  folder.path.mkdir()
  folder.write_hparams({'settings': {}, 'weights': names})
  state = collections.OrderedDict(global_model_weights=weights)
  checkpoints.Checkpoints(folder.checkpoints).save(state, 1)
  return where


@pytest.mark.parametrize('kind', [tf.keras, keras], ids=['2', '3'])
@pytest.mark.parametrize('where', ['file.safetensors', 'run'])
@pytest.mark.parametrize(
  'options',
  [
    dict(frozen=False),
    dict(frozen=True),
    dict(names=('two', 'one'), swapped=True),
  ],
  ids=['another stage', 'the same stage', 'other order'],
)
def test_layers_of_equal_shapes(tmp_path, kind, where, options):
  before = model_fn(kind, frozen=True)()
  place = saved(before, tmp_path / where)
  after = model_fn(kind, **options)
  made = after()
  initial_weights.load(after, place).assign_weights_to(made)
  x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
  np.testing.assert_array_equal(
    made.predict_on_batch(x, training=False),
    before.predict_on_batch(x, training=False),
  )


def refused(model_fn, place):
  with pytest.raises(errors.SettingsError) as error:
    initial_weights.load(model_fn, place)
  assert f'--initial_weights={place} ' in str(error.value)
  return str(error.value)


@pytest.mark.parametrize('where', ['file.safetensors', 'run'])
def test_weights_of_another_model_are_refused(tmp_path, where):
  place = saved(model_fn(tf.keras)(), tmp_path / where, np.float64)
  assert 'has the shape [4, 4] and dtype float64' in refused(
    model_fn(tf.keras), place
  )
  text = refused(model_fn(tf.keras, names=('one', 'three')), place)
  lacks, _, has = text.partition(', and has ')
  assert 'three/' in lacks and 'two/' in has


def test_what_is_no_file_of_weights(tmp_path):
  (tmp_path / 'words.safetensors').write_text('words')
  for name in ('words.safetensors', 'none', '.'):
    assert 'cannot be loaded' in refused(model_fn(tf.keras), tmp_path / name)
  place = saved(model_fn(tf.keras)(), tmp_path / 'run', names=['one'])
  assert 'does not name its weights' in refused(model_fn(tf.keras), place)
