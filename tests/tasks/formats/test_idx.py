"""IDX files, whole and damaged, plain and compressed."""

import gzip

import numpy as np
import pytest

from tasks.formats import data_files
from tasks.images import mnist


def write_idx(path, array):
  """Writes unsigned bytes as an IDX file, compressed if the name says so."""
  content = bytes([0, 0, 8, array.ndim])
  content += np.array(array.shape, '>u4').tobytes() + array.tobytes()
  path.write_bytes(gzip.compress(content) if path.suffix == '.gz' else content)


def write_pair(folder, prefix, count, seed=0):
  """Writes images and labels of one split; returns them."""
  rng = np.random.default_rng(seed)
  images = rng.integers(0, 256, [count, 28, 28], np.uint8)
  labels = (np.arange(count) % 10).astype(np.uint8)
  write_idx(folder / f'{prefix}-images-idx3-ubyte.gz', images)
  write_idx(folder / f'{prefix}-labels-idx1-ubyte', labels)
  return images, labels


def _read_pair(folder, num_classes=10):
  return mnist.read_pair(
    folder, 'train', num_classes=num_classes, get='Get it.'
  )


def test_plain_and_compressed_files_are_read(tmp_path):
  images, labels = write_pair(tmp_path, 'train', 30)
  found_images, found_labels = _read_pair(tmp_path)
  np.testing.assert_array_equal(found_images, images)
  np.testing.assert_array_equal(found_labels, labels)
  assert found_labels.dtype == np.int32


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(
    data_files.DataError, match=r'no file .*train-images-idx3-ubyte\[.gz\]. Get'
  ):
    _read_pair(tmp_path)


@pytest.mark.parametrize(
  'damage, message',
  [
    (lambda c: c[:-1], 'have 38 bytes .* has 37'),
    (lambda c: c + b'x', 'has more'),
    (lambda c: b'', 'begins with nothing'),
    (lambda c: b'\x89PNG' + c[4:], 'begins with 89 50 4e 47'),
    (lambda c: c[:3] + b'\x03' + c[4:], 'begins with 00 00 08 03'),
    (lambda c: c[:6], 'has 6'),
    (lambda c: c[:4] + bytes(4), 'has 8'),
    (lambda c: c[:-1] + b'\x0a', 'record 29: a label below 10.*got 10'),
  ],
)
def test_damaged_files_are_named(tmp_path, damage, message):
  write_pair(tmp_path, 'train', 30)
  path = tmp_path / 'train-labels-idx1-ubyte'
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(data_files.DataError, match=message):
    _read_pair(tmp_path)


def test_damaged_compression_is_named(tmp_path):
  write_pair(tmp_path, 'train', 30)
  path = tmp_path / 'train-images-idx3-ubyte.gz'
  whole = path.read_bytes()
  for content in (
    whole[: len(whole) // 2],
    b'no gzip',
    b'',
    whole[:-900] + b'x' * 900,
  ):
    path.write_bytes(content)
    with pytest.raises(
      data_files.DataError, match=r'no whole IDX file|nothing'
    ):
      _read_pair(tmp_path)


def test_images_and_labels_must_go_together(tmp_path):
  write_pair(tmp_path, 'train', 30)
  write_idx(tmp_path / 'train-labels-idx1-ubyte', np.zeros(29, np.uint8))
  with pytest.raises(
    data_files.DataError, match=r'30 images, but .* 29 labels'
  ):
    _read_pair(tmp_path)
  write_idx(
    tmp_path / 'train-images-idx3-ubyte.gz', np.zeros([30, 8, 9], np.uint8)
  )
  with pytest.raises(data_files.DataError, match='28 x 28, got 8 x 9'):
    _read_pair(tmp_path)
