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


def test_brightness_and_contrast():
  clients = _ROWS.reshape(4, 100, 6)
  steps = np.array([0.25, 0.5, 0.75, 1])[:, np.newaxis, np.newaxis]
  shifted = _apply(_ROWS, 'shift', 2.0)
  np.testing.assert_allclose(shifted, clients + 2 * steps, rtol=1e-5)
  scaled = _apply(_ROWS, 'scale', 1.0)
  mean = clients.mean(axis=1, keepdims=True)
  expected = mean + (clients - mean) * (1 + steps)
  np.testing.assert_allclose(scaled, expected, atol=1e-5)


def test_bytes_stay_bytes():
  images = (255 * _IMAGES[..., 0]).astype(np.uint8)
  clients = images.reshape(4, 100, 9, 9).astype(int)
  shifted = _apply(images, 'shift', 0.4)
  for i, client in enumerate(clients):
    expected = np.minimum(client + 255 * 0.1 * (i + 1), 255)
    np.testing.assert_allclose(shifted[i], expected, atol=0.51)


def test_a_permutation_is_the_same_for_all_examples_of_a_client():
  found = _apply(_ROWS, 'permutation')
  clients = _ROWS.reshape(4, 100, 6)
  for before, after in zip(clients, found, strict=True):
    order = [
      int(np.flatnonzero((before == column[:, np.newaxis]).all(axis=0))[0])
      for column in after.T
    ]
    assert sorted(order) == list(range(6))
  assert (found[3] != clients[3]).any()
  # Of images pixels change places, and keep their colours.
  pixels = _apply(_IMAGES, 'permutation')[3].reshape(100, 81, 3)
  known = {tuple(pixel) for pixel in _IMAGES[300].reshape(81, 3)}
  assert {tuple(pixel) for pixel in pixels[0]} == known


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


def test_blur_smooths_pixels_and_not_colours():
  found = _apply(_IMAGES, 'blur', 2.0)
  roughness = [np.abs(np.diff(c, axis=2)).mean() for c in found]
  assert roughness == sorted(roughness, reverse=True)
  assert roughness[3] < 0.2 * np.abs(np.diff(_IMAGES, axis=2)).mean()
  flat = np.tile(np.float32([0.1, 0.5, 0.9]), [400, 5, 5, 1])
  blurred = _apply(flat, 'blur')
  np.testing.assert_allclose(blurred[3, 0], flat[0], atol=1e-6)


def test_what_has_no_such_features():
  labels = dict(label=np.zeros([400, 2]), tokens=np.zeros([400, 5], np.int32))
  with pytest.raises(data_files.PartitionError, match='label, tokens'):
    feature_skew.apply(labels, _SPLIT, 'noise')
  for kind in ('rotation', 'noisy_rotation', 'blur'):
    with pytest.raises(data_files.PartitionError, match='a vector of 6'):
      _apply(_ROWS, kind)
  assert feature_skew.apply(labels, _SPLIT, None) == labels


def test_the_seed_decides_draws():
  for kind in ('noise', 'permutation'):
    first, again, other = (_apply(_ROWS, kind, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
