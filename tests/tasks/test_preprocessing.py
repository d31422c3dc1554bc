"""Seeded preprocessing: repeatable, complete, in the documented order."""

import numpy as np
import pytest
import tensorflow as tf

from tasks import preprocessing


def _seed(*pair):
  return tf.constant(pair, tf.int64)


def _numbers(preprocess, seed, count=100):
  dataset = preprocess(tf.data.Dataset.range(count), seed)
  return np.concatenate(list(dataset.as_numpy_iterator())).tolist()


def test_a_seed_fixes_the_order():
  preprocess = preprocessing.build_train(batch_size=8, shuffle_buffer=100)
  first = _numbers(preprocess, _seed(1, 2))
  assert first == _numbers(preprocess, _seed(1, 2))
  assert sorted(first) == list(range(100)) and first != list(range(100))
  for other in (_seed(1, 3), _seed(2, 2), _seed(0, 0)):
    assert first != _numbers(preprocess, other)
  assert _numbers(preprocess, _seed(0, 0)) == _numbers(preprocess, _seed(0, 0))


def test_every_epoch_is_complete_and_in_an_order_of_its_own():
  preprocess = preprocessing.build_train(
    batch_size=7, shuffle_buffer=100, epochs=3
  )
  for seed in (_seed(1, 2), None):
    numbers = _numbers(preprocess, seed, count=40)
    passes = [numbers[:40], numbers[40:80], numbers[80:]]
    assert all(sorted(p) == list(range(40)) for p in passes)
    assert passes[0] != passes[1] != passes[2]


def test_maximum_counts_over_all_epochs_and_the_last_batch_is_kept():
  preprocess = preprocessing.build_train(
    batch_size=8, shuffle_buffer=100, epochs=3, max_elements=50
  )
  dataset = preprocess(tf.data.Dataset.range(20), _seed(1, 1))
  sizes = [len(b) for b in dataset.as_numpy_iterator()]
  assert sizes == [8, 8, 8, 8, 8, 8, 2]


def test_a_buffer_of_one_keeps_the_order():
  preprocess = preprocessing.build_train(batch_size=8, shuffle_buffer=1)
  assert _numbers(preprocess, _seed(1, 2)) == list(range(100))
  assert _numbers(preprocess, None) == list(range(100))


def test_augmentation_has_a_seed_of_its_own_for_every_batch():
  preprocess = preprocessing.build_train(
    batch_size=5,
    shuffle_buffer=1,
    augment_fn=lambda batch, seed: tf.random.stateless_uniform([3], seed),
  )
  dataset = tf.data.Dataset.range(20)
  first = list(preprocess(dataset, _seed(1, 2)).as_numpy_iterator())
  again = list(preprocess(dataset, _seed(1, 2)).as_numpy_iterator())
  np.testing.assert_array_equal(first, again)
  assert len({tuple(b) for b in first}) == 4
  unseeded = list(preprocess(dataset, None).as_numpy_iterator())
  assert len({tuple(b) for b in unseeded + first}) == 8


def test_batches_that_are_tuples_are_mapped_alike_with_and_without_a_seed():
  preprocess = preprocessing.build_train(
    batch_size=4, shuffle_buffer=1, augment_fn=lambda batch, seed: batch
  )
  data = np.arange(8), np.arange(8) * 2
  for seed in (None, _seed(1, 2)):
    dataset = preprocess(tf.data.Dataset.from_tensor_slices(data), seed)
    for x, y in dataset.as_numpy_iterator():
      np.testing.assert_array_equal(2 * x, y)


def test_random_crops_are_pieces_of_the_image_at_every_place():
  # Each pixel tells its own place, so a crop tells where it was cut.
  place = tf.reshape(tf.range(36), [1, 6, 6, 1])
  images = tf.repeat(place, 400, axis=0)
  crops = preprocessing.random_crop(images, 4, _seed(3, 4)).numpy()
  assert crops.shape == (400, 4, 4, 1)
  tops, lefts = crops[:, 0, 0, 0] // 6, crops[:, 0, 0, 0] % 6
  for crop, top, left in zip(crops, tops, lefts, strict=True):
    np.testing.assert_array_equal(
      crop, place[0, top : top + 4, left : left + 4]
    )
  for t in range(3):
    for left in range(3):
      assert np.mean((tops == t) & (lefts == left)) == pytest.approx(
        1 / 9, abs=0.05
      )


def test_padding_is_of_zeros():
  images = tf.ones([200, 4, 4, 2])
  crops = preprocessing.random_crop(images, 4, _seed(1, 1), padding=2).numpy()
  assert crops.shape == (200, 4, 4, 2)
  assert crops.min() == 0 and crops.sum(axis=(1, 2, 3)).min() == 2 * 4
  assert crops.sum(axis=(1, 2, 3)).max() == 2 * 16


def test_flips_are_left_to_right_for_half_of_the_images():
  images = tf.repeat(tf.reshape(tf.range(12), [1, 2, 3, 2]), 600, axis=0)
  flipped = preprocessing.random_flip(images, _seed(1, 2)).numpy()
  original, mirrored = images[0].numpy(), images[0].numpy()[:, ::-1]
  are_mirrored = [(image == mirrored).all() for image in flipped]
  assert all(
    m or (image == original).all()
    for m, image in zip(are_mirrored, flipped, strict=True)
  )
  assert np.mean(are_mirrored) == pytest.approx(0.5, abs=0.07)


def test_the_central_crop_is_the_middle():
  images = tf.reshape(tf.range(36), [1, 6, 6, 1])
  middle = preprocessing.central_crop(images, 2)[0, :, :, 0].numpy()
  assert middle.tolist() == [[14, 15], [20, 21]]


def test_evaluation_keeps_order_and_every_example():
  preprocess = preprocessing.build_eval(batch_size=8, map_fn=lambda b: b + 1)
  batches = list(preprocess(tf.data.Dataset.range(20)).as_numpy_iterator())
  assert np.concatenate(batches).tolist() == list(range(1, 21))
