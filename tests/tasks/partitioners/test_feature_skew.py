"""Feature skew: what is done to whom, and how much."""

import numpy as np
import pytest

from tasks import partition
from tasks.formats import data_files
from tasks.partitioners import feature_skew

_SPLIT = partition.by_group(np.arange(400) // 100)
_RNG = np.random.default_rng(0)
_IMAGES = _RNG.random([400, 9, 9, 3], np.float32)
_ROWS = _RNG.normal(size=[400, 6]).astype(np.float32)


def _apply(features, kind, strength=None, seed=0):
  arrays = dict(label=np.zeros(400), x=features)
  found = feature_skew.apply(arrays, _SPLIT, kind, strength, seed=seed)
  assert found['label'] is arrays['label']
  assert found['x'].shape == features.shape
  assert found['x'].dtype == features.dtype
  return found['x'].reshape(4, 100, *features.shape[1:])


def test_noise_grows_with_the_client_as_in_niid_bench():
  """Its deviation is sigma i / N for the i-th of N clients, from 1."""
  for features in (_ROWS, _IMAGES):
    noise = _apply(features, 'noise', 0.4) - features.reshape(
      4, 100, *features.shape[1:]
    )
    deviations = noise.reshape(4, -1).std(axis=1)
    np.testing.assert_allclose(deviations, [0.1, 0.2, 0.3, 0.4], rtol=0.1)
    assert abs(noise.mean()) < 0.02


def test_rotation_turns_images():
  found = _apply(_IMAGES, 'rotation', 360.0)
  clients = _IMAGES.reshape(4, 100, 9, 9, 3)
  for i, client in enumerate(clients):
    expected = np.rot90(client, i + 1, axes=(1, 2))
    np.testing.assert_allclose(found[i], expected, atol=1e-4)


def test_noisy_rotation_turns_images_and_adds_noise():
  noise = _apply(_IMAGES, 'noisy_rotation', 60.0) - _apply(
    _IMAGES, 'rotation', 60.0
  )
  deviations = noise.reshape(4, -1).std(axis=1)
  np.testing.assert_allclose(deviations, [0.05, 0.1, 0.15, 0.2], rtol=0.05)
  assert abs(noise.mean()) < 0.01


def test_what_has_no_such_features():
  labels = dict(label=np.zeros([400, 2]), tokens=np.zeros([400, 5], np.int32))
  with pytest.raises(data_files.PartitionError, match='label, tokens'):
    feature_skew.apply(labels, _SPLIT, 'noise')
  for kind in ('rotation', 'noisy_rotation'):
    with pytest.raises(data_files.PartitionError, match='a vector of 6'):
      _apply(_ROWS, kind)
  assert feature_skew.apply(labels, _SPLIT, None) == labels


def test_bytes_stay_bytes():
  images = (255 * _IMAGES[..., 0]).astype(np.uint8)
  noise = _apply(images, 'noise', 0.04)[3] - images[300:].astype(float)
  inner = (images[300:] > 60) & (images[300:] < 195)
  assert noise[inner].std() == pytest.approx(0.04 * 255, rel=0.05)


def test_the_seed_decides_draws():
  first, again, other = (_apply(_ROWS, 'noise', seed=s) for s in (1, 1, 2))
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()
