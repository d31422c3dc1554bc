"""CIFAR files in every format, whole and damaged; preprocessing."""

import struct

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tasks.formats import data_files
from tasks.images import cifar

_IMAGES = np.random.default_rng(0).integers(0, 256, [6, 32, 32, 3], np.uint8)
_LABELS = np.uint8([3, 9, 0, 1, 3, 7])


def write_binary(path, images, *labels):
  """Writes records of labels and pixels, channel after channel."""
  planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
  np.concatenate(
    [*(column[:, np.newaxis] for column in labels), planes], axis=1
  ).tofile(path)


def write_jpegs(path, images, labels):
  """Writes JPEG files end to end."""
  files = [tf.io.encode_jpeg(image, quality=95).numpy() for image in images]
  path.write_bytes(
    b'CIF10JPG'
    + struct.pack('<I', len(files))
    + bytes(labels)
    + struct.pack(f'<{len(files)}I', *map(len, files))
    + b''.join(files)
  )


def _read_binary(path, *num_classes):
  return cifar.read_binary(
    [path], num_classes=num_classes or (10,), get='Get it.'
  )


def _read_jpegs(path):
  return cifar.read_jpegs(path, num_classes=10, get='Get it.')


def test_binary_records_are_read(tmp_path):
  path = tmp_path / 'a.bin'
  write_binary(path, _IMAGES, _LABELS)
  images, labels = _read_binary(path)
  np.testing.assert_array_equal(images, _IMAGES)
  np.testing.assert_array_equal(labels[:, 0], _LABELS)
  write_binary(path, _IMAGES, _LABELS, _LABELS + 50)
  images, labels = _read_binary(path, 20, 100)
  np.testing.assert_array_equal(images, _IMAGES)
  np.testing.assert_array_equal(labels, np.stack([_LABELS, _LABELS + 50], 1))


def test_damaged_binary_files_are_named(tmp_path):
  path = tmp_path / 'a.bin'
  with pytest.raises(data_files.DataError, match=r'no file.*a.bin. Get it.'):
    _read_binary(path)
  write_binary(path, _IMAGES, _LABELS)
  whole = path.read_bytes()
  for content in (whole[:-1], b'', b'hello'):
    path.write_bytes(content)
    with pytest.raises(
      data_files.DataError, match=f'3073 bytes, but has {len(content)}'
    ):
      _read_binary(path)
  path.write_bytes(whole)
  with pytest.raises(
    data_files.DataError, match=r'record 1: a label below 9.*got 9'
  ):
    _read_binary(path, 9)
  write_binary(path, _IMAGES, _LABELS + 12, _LABELS)
  with pytest.raises(
    data_files.DataError, match=r'record 1: a label below 20.*got 21'
  ):
    _read_binary(path, 20, 100)
  with pytest.raises(data_files.DataError, match='no whole file'):
    _read_binary(tmp_path)


def test_jpegs_are_read(tmp_path):
  smooth = np.full([6, 32, 32, 3], 128, np.uint8)
  smooth[:, 8:24] = 40
  path = tmp_path / 'a.jpegs'
  write_jpegs(path, smooth, _LABELS)
  images, labels = _read_jpegs(path)
  assert np.abs(images.astype(int) - smooth).max() < 10  # JPEG is lossy.
  np.testing.assert_array_equal(labels, _LABELS)


def test_either_form_of_a_file_is_enough(tmp_path):
  with pytest.raises(
    tasks.DataError, match=r'batches-bin/\*.bin or cifar10/tr'
  ):
    tasks.check_data('cifar10_image', cache_dir=str(tmp_path))
  (tmp_path / 'cifar10').mkdir()
  (tmp_path / 'cifar10' / 'train.jpegs').touch()
  assert tasks.check_data('cifar10_image', cache_dir=str(tmp_path)) == 500
  with pytest.raises(tasks.DataError, match=r'cifar100\.sqlite or cifar-100-b'):
    tasks.check_data('cifar100_image', cache_dir=str(tmp_path))


def test_the_network_of_pfl_research():
  # Granqvist et al., arXiv 2404.06430: updates of 6.5 MB.
  model = cifar.build_model(10, {'model': 'cnn', 'crop_size': 32})
  assert model.count_params() == 896 + 18_496 + 12_544 * 128 + 128 + 1_290


def test_damaged_jpegs_are_named(tmp_path):
  path = tmp_path / 'a.jpegs'
  with pytest.raises(data_files.DataError, match='no file'):
    _read_jpegs(path)
  write_jpegs(path, _IMAGES, _LABELS)
  whole = path.read_bytes()
  for content, message in (
    (b'', 'must begin with'),
    (b'\x89PNG' + whole[4:], 'must begin with.*PNG'),
    (whole[:10], 'cut short|should have'),
    (whole[:30], 'cut short'),
    (whole[:-5], 'should have .* bytes for 6 images'),
    (whole[:12] + b'\x0b' + whole[13:], 'record 0: a label below 10.*got 11'),
    (whole[:-900] + b'\xff' * 900, 'image [45] is damaged'),
  ):
    path.write_bytes(content)
    with pytest.raises(data_files.DataError, match=message):
      _read_jpegs(path)
  write_jpegs(path, _IMAGES[:, :16], _LABELS)
  with pytest.raises(
    data_files.DataError, match=r'image 0: 32 x 32.*got 16 x 32'
  ):
    _read_jpegs(path)


def test_training_images_are_pieces_and_mirrored_pieces():
  train, test = cifar.build_maps(24, distort=True)
  batch = dict(
    image=tf.repeat(_IMAGES[:1], 300, axis=0), label=tf.zeros([300], tf.int64)
  )
  images, _ = train(batch, tf.constant([1, 2], tf.int64))
  assert images.shape == (300, 24, 24, 3)
  # Each is standardised ...
  np.testing.assert_allclose(tf.reduce_mean(images, [1, 2, 3]), 0, atol=1e-5)
  np.testing.assert_allclose(
    tf.math.reduce_std(images, [1, 2, 3]), 1, rtol=1e-5
  )
  # ... and there are about as many different ones as places and mirrorings.
  different = {image.tobytes() for image in images.numpy()}
  assert 120 < len(different) <= 9 * 9 * 2
  middle, _ = test(batch)
  expected = _IMAGES[0, 4:28, 4:28].astype(float)
  expected = (expected - expected.mean()) / expected.std()
  np.testing.assert_allclose(middle[0], expected, rtol=1e-4, atol=1e-5)
  plain, _ = cifar.build_maps(24, distort=False)[0](batch, None)
  np.testing.assert_array_equal(plain, middle)
  scaled, _ = cifar.build_maps(24, False, 'centered')[1](batch)
  np.testing.assert_allclose(
    scaled[0], _IMAGES[0, 4:28, 4:28] / 127.5 - 1, rtol=1e-6, atol=1e-6
  )


@pytest.mark.parametrize(
  'pixels, channels, mean, deviation',
  [
    # As printed in the papers' programs, so that a slip in either shows.
    ('per_channel', cifar.CIFAR_10, [0.4914, 0.4822, 0.4465], 0.2023),
    ('standardized', cifar._MEASURED, [0.4914, 0.4822, 0.4465], 0.247),
    ('per_channel', cifar.CIFAR_100, [0.507, 0.487, 0.441], 0.267),
    ('imagenet', cifar.CIFAR_100, [0.485, 0.456, 0.406], 0.229),
  ],
)
def test_pixels_are_standardized_by_channel(pixels, channels, mean, deviation):
  batch = dict(image=tf.constant(_IMAGES), label=tf.constant(_LABELS))
  train, test = cifar.build_maps(32, False, pixels, channels)
  for found, _ in (train(batch, None), test(batch)):
    red = (_IMAGES[..., 0] / 255 - mean[0]) / deviation
    np.testing.assert_allclose(found[..., 0], red, rtol=1e-4, atol=1e-5)
  black = dict(image=tf.zeros([1, 32, 32, 3], tf.uint8), label=[0])
  values = test(black)[0].numpy()[0, 0, 0]
  np.testing.assert_allclose(values[0], -mean[0] / deviation, rtol=1e-5)
  assert np.all(values < 0)


def test_whole_images_are_shifted_over_a_border():
  train, test = cifar.build_maps(32, distort=True)
  batch = dict(
    image=tf.repeat(_IMAGES[:1], 300, axis=0), label=tf.zeros([300], tf.int64)
  )
  images, _ = train(batch, tf.constant([1, 2], tf.int64))
  assert images.shape == (300, 32, 32, 3)
  assert len({image.tobytes() for image in images.numpy()}) > 80
  assert test(batch)[0].shape == (300, 32, 32, 3)
