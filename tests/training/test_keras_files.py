"""Files of weights that Keras did not write."""

import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from tff_adaptive import errors
from tff_adaptive.lab.training import initial_weights

_KERNEL = 'dense/dense/kernel:0'


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


def test_arrays_put_together_from_other_files(weights, tmp_path):
  path, kernel = weights
  with h5py.File(tmp_path / 'other.h5', 'w') as other:
    other['secret'] = np.ones((helpers.FEATURES, 2), 'f4')
  layout = h5py.VirtualLayout((helpers.FEATURES, 2), 'f4')
  layout[:] = h5py.VirtualSource(
    tmp_path / 'other.h5', 'secret', (helpers.FEATURES, 2)
  )
  with h5py.File(path, 'a') as file:
    del file[kernel]
    file.create_virtual_dataset(kernel, layout)
  assert 'is stored in other files' in refused(path)


@pytest.mark.parametrize('inside', [True, False])
def test_links(weights, tmp_path, inside):
  path, kernel = weights
  with h5py.File(tmp_path / 'other.h5', 'w') as other:
    other['secret'] = np.ones((helpers.FEATURES, 2), 'f4')
  with h5py.File(path, 'a') as file:
    file['kept'] = file[kernel][()]
    del file[kernel]
    file[kernel] = (
      h5py.SoftLink('/kept')
      if inside
      else h5py.ExternalLink(str(tmp_path / 'other.h5'), 'secret')
    )
  assert 'is a link' in refused(path)


def test_a_small_file_that_claims_to_be_large(weights):
  path, kernel = weights
  with h5py.File(path, 'a') as file:
    del file[kernel]
    file.create_dataset(kernel, (2**40, 2**10), 'f4', chunks=(1024, 1024))
  assert path.stat().st_size < 1e6
  assert 'no weight of the model is so large' in refused(path)


def test_an_array_that_is_listed_often(weights):
  path, kernel = weights
  layer, name = kernel.split('/', 1)
  with h5py.File(path, 'a') as file:
    file[layer].attrs['weight_names'] = [name.encode()] * 1000
  assert 'lists 1,000 arrays' in refused(path)


def test_a_group_that_holds_itself(weights):
  path, _ = weights
  with h5py.File(path, 'a') as file:
    file['again'] = file['/']
  initial_weights.load(helpers.task().model_fn, path)


def test_weights_in_an_archive(weights, tmp_path):
  path, _ = weights
  model = _keras_model()
  model.save(tmp_path / 'model.keras')
  loaded = initial_weights.load(
    helpers.task().model_fn, tmp_path / 'model.keras'
  )
  np.testing.assert_array_equal(loaded.trainable[0], model.get_weights()[0])
  with zipfile.ZipFile(tmp_path / 'none.keras', 'w') as archive:
    archive.writestr('config.json', '{}')
  assert 'model.weights.h5' in refused(tmp_path / 'none.keras')
  (tmp_path / 'words.keras').write_text('words')
  assert 'not a Keras file' in refused(tmp_path / 'words.keras')
  del path


def test_a_checkpoint_of_tensorflow_is_no_such_file(tmp_path):
  place = tmp_path / 'checkpoint'
  _keras_model().save_weights(place)
  place.write_text('')
  assert 'not a Keras file' in refused(place)
