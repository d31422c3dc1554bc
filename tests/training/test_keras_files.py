"""Weights travel by the names of layers, in files of Keras and in runs."""

import collections
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import tff_internals
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.training import initial_weights


@pytest.fixture(name='weights')
def weights_fixture(tmp_path):
  """A file of weights that fit the task of `helpers`."""
  path = tmp_path / 'weights.h5'
  _keras_model().save_weights(path)
  with h5py.File(path, 'a') as file:
    [layer] = file.attrs['layer_names']
    [kernel, _] = file[layer].attrs['weight_names']
  return path, f'{layer}/{kernel}'


def _keras_model():
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [layers.InputLayer((helpers.FEATURES,)), layers.Dense(2)]
  )


def refused(path):
  with pytest.raises(errors.SettingsError) as error:
    initial_weights.load(helpers.task().model_fn, path)
  assert str(path) in str(error.value)
  return str(error.value)


def test_arrays_in_other_files(weights, tmp_path):
  path, kernel = weights
  secret = np.arange(helpers.FEATURES * 2, dtype=np.float32)
  (tmp_path / 'secret').write_bytes(secret.tobytes())
  with h5py.File(path, 'a') as file:
    del file[kernel]
    file.create_dataset(
      kernel,
      (helpers.FEATURES, 2),
      'f4',
      external=[(str(tmp_path / 'secret'), 0, secret.nbytes)],
    )
  assert 'is stored in other files' in refused(path)


def test_a_small_file_that_claims_to_be_large(weights):
  path, kernel = weights
  with h5py.File(path, 'a') as file:
    del file[kernel]
    file.create_dataset(kernel, (2**40, 2**10), 'f4', chunks=(1024, 1024))
  assert path.stat().st_size < 1e6
  assert 'has the shape [1099511627776, 1024] in it' in refused(path)


def test_weights_in_an_archive(tmp_path):
  model = _keras_model()
  model.save(tmp_path / 'model.keras')
  with pytest.warns(UserWarning, match='no names of layers'):
    loaded = initial_weights.load(
      helpers.task().model_fn, tmp_path / 'model.keras'
    )
  np.testing.assert_array_equal(loaded.trainable[0], model.get_weights()[0])
  with zipfile.ZipFile(tmp_path / 'none.keras', 'w') as archive:
    archive.writestr('config.json', '{}')
  assert 'model.weights.h5' in refused(tmp_path / 'none.keras')
  (tmp_path / 'words.keras').write_text('words')
  assert 'not a Keras file' in refused(tmp_path / 'words.keras')


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


def saved(model, where, kind):
  """Writes the weights of a model as an export, a file or a run has them."""
  if where.name != 'run':
    place = where / ('weights.h5' if kind is tf.keras else 'model.weights.h5')
    where.mkdir()
    tff_internals.keras_model_of(model).save_weights(str(place))
    return where
  folder = files.RunFolder(where)
  folder.path.mkdir()
  names = models.weight_names(model)
  folder.write_hparams({'settings': {}, 'weights': names})
  weights = tff.learning.models.ModelWeights.from_model(model)
  state = collections.OrderedDict(global_model_weights=weights)
  checkpoints.Checkpoints(folder.checkpoints).save(state, 1)
  return where


@pytest.fixture(name='kind', params=[tf.keras, keras], ids=['2', '3'])
def kind_fixture(request):
  return request.param


@pytest.mark.parametrize('where', ['export', 'run'])
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
  place = saved(before, tmp_path / where, kind)
  after = model_fn(kind, **options)
  made = after()
  initial_weights.load(after, place).assign_weights_to(made)
  x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
  np.testing.assert_array_equal(
    made.predict_on_batch(x, training=False),
    before.predict_on_batch(x, training=False),
  )


@pytest.mark.parametrize('where', ['export', 'run'])
def test_other_names_are_refused(tmp_path, kind, where):
  place = saved(model_fn(kind)(), tmp_path / where, kind)
  with pytest.raises(errors.SettingsError) as error:
    initial_weights.load(model_fn(kind, names=('one', 'three')), place)
  lacks, _, has = str(error.value).partition(', and has ')
  assert 'three/' in lacks and 'two/' in has


def test_default_names_are_compared_by_their_numbers(tmp_path, kind):
  for _ in range(3):
    kind.layers.Dense(1)
  before = nested(kind, names=(None, None))
  numbers = [layer.name for layer in before.layers[1].layers[1:]]
  assert 'dense' not in numbers
  name = 'own.h5' if kind is tf.keras else 'own.weights.h5'
  before.save_weights(str(tmp_path / name))
  for names in (None, None), ('dense', 'dense_1'):
    after = model_fn(kind, names=names)
    loaded = initial_weights.load(after, tmp_path / name)
    for found, wanted in zip(loaded.trainable, before.get_weights()):
      np.testing.assert_array_equal(found, wanted)


def test_files_without_names(tmp_path):
  place = tmp_path / 'model.keras'
  nested(tf.keras).save(place)
  with pytest.raises(errors.SettingsError, match='has no names of layers'):
    initial_weights.load(model_fn(tf.keras), place)


def test_a_run_without_names(tmp_path):
  place = saved(model_fn(tf.keras)(), tmp_path / 'run', tf.keras)
  files.RunFolder(place).write_hparams({'settings': {}})
  with pytest.raises(errors.SettingsError, match='export it'):
    initial_weights.load(model_fn(tf.keras), place)
