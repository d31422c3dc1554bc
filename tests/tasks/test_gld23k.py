"""Landmarks, on files generated as TFF's loader leaves them."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests.tasks import helpers

_SMALL = dict(image_size=28, patch_size=14, blocks=1, width=64)


def _example(height, width, label, value):
  image = np.full([height, width, 3], value, np.uint8)
  features = {
    'image/encoded_jpeg': tf.train.Feature(
      bytes_list=tf.train.BytesList(value=[tf.io.encode_jpeg(image).numpy()])
    ),
    'class': tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
  }
  return tf.train.Example(
    features=tf.train.Features(feature=features)
  ).SerializeToString()


def _write(path, examples):
  with tf.io.TFRecordWriter(str(path)) as writer:
    for example in examples:
      writer.write(example)


@pytest.fixture(name='folder')
def _folder(tmp_path):
  train = tmp_path / 'gld23k' / 'train'
  train.mkdir(parents=True)
  for client in range(3):
    examples = [
      _example(60 + 10 * i, 90 - 10 * i, 10 * client + i, 60 * client + 20)
      for i in range(4)
    ]
    _write(train / str(client), examples)
  _write(
    tmp_path / 'gld23k' / 'test.tfRecord',
    [_example(50, 70, i, 100) for i in range(5)],
  )
  return tmp_path


def test_images_of_all_sizes_become_squares(folder):
  task = tasks.create('gld23k', cache_dir=str(folder), **_SMALL)
  assert task.datasets.train_data.client_ids == ['0', '1', '2']
  ((images, labels),) = helpers.client_batches(task, '1')
  assert images.shape == (4, 28, 28, 3)
  assert sorted(labels) == [10, 11, 12, 13]
  np.testing.assert_allclose(images, 80 / 127.5 - 1, atol=0.03)
  ((images, labels),) = helpers.test_batches(task)
  assert images.shape == (5, 28, 28, 3) and labels.tolist() == [0, 1, 2, 3, 4]


def test_whole_images_are_neither_cut_nor_mirrored(folder):
  """Left half black, right half white, whatever the image's shape."""
  image = np.zeros([60, 90, 3], np.uint8)
  image[:, 45:] = 255
  record = _example(1, 1, 3, 0)
  example = tf.train.Example.FromString(record)
  example.features.feature['image/encoded_jpeg'].bytes_list.value[0] = (
    tf.io.encode_jpeg(image, quality=100).numpy()
  )
  _write(folder / 'gld23k' / 'train' / '1', [example.SerializeToString()] * 4)
  task = tasks.create(
    'gld23k',
    cache_dir=str(folder),
    framing='whole',
    pixels='imagenet',
    **_SMALL,
  )
  ((images, _),) = helpers.client_batches(task, '1')
  assert images.shape == (4, 28, 28, 3)
  mean, deviation = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
  for column, value in ((2, 0.0), (25, 1.0)):
    expected = np.broadcast_to((value - mean) / deviation, [4, 28, 3])
    np.testing.assert_allclose(images[:, :, column], expected, atol=0.1)


def test_missing_files_are_named(tmp_path):
  with pytest.raises(tasks.DataError, match=r'no folder .*gld23k/train'):
    tasks.create('gld23k', cache_dir=str(tmp_path))
  (tmp_path / 'gld23k' / 'train').mkdir(parents=True)
  with pytest.raises(tasks.DataError, match='no folder'):
    tasks.create('gld23k', cache_dir=str(tmp_path))
  _write(tmp_path / 'gld23k' / 'train' / '0', [_example(50, 50, 0, 0)])
  with pytest.raises(tasks.DataError, match=r'no file .*test.tfRecord'):
    tasks.create('gld23k', cache_dir=str(tmp_path))


def test_damaged_files_are_named(folder):
  path = folder / 'gld23k' / 'train' / '1'
  whole = path.read_bytes()
  for content, message in (
    (b'', 'train/1 is no whole TFRecord file.*no record'),
    (whole[:5], 'train/1 is no whole TFRecord file'),
    (
      b'<html>' + whole[6:],
      'train/1 is no whole TFRecord file.*corrupted record',
    ),
  ):
    path.write_bytes(content)
    with pytest.raises(tasks.DataError, match=message):
      tasks.create('gld23k', cache_dir=str(folder), **_SMALL)
  for examples, message in (
    ([b'something else'], 'image/encoded_jpeg and class'),
    ([_example(50, 50, 203, 0)], 'below 203: class 203'),
  ):
    _write(path, examples)
    with pytest.raises(tasks.DataError, match=message):
      tasks.create('gld23k', cache_dir=str(folder), **_SMALL)


def test_a_wrong_record_is_found_when_it_is_read(folder):
  for path in (
    folder / 'gld23k' / 'train' / '1',
    folder / 'gld23k' / 'test.tfRecord',
  ):
    _write(path, [_example(50, 50, 3, 0), _example(50, 50, 203, 0)])
  task = tasks.create('gld23k', cache_dir=str(folder), **_SMALL)
  message = 'example 1: a label from 0 to 202 was expected, got 203'
  with pytest.raises(tf.errors.InvalidArgumentError, match=f'train, {message}'):
    helpers.client_batches(task, '1')
  with pytest.raises(tf.errors.InvalidArgumentError, match=f'cord, {message}'):
    helpers.test_batches(task)


def test_the_model_is_vit_s():
  task = tasks.create('gld23k', data='synthetic', blocks=1)
  # ViT-S/16 has 22,050,664 weights with its twelve blocks and 1,000 classes.
  one_block = 4 * (384 * 384 + 384) + 2 * 384 * 1536 + 1536 + 384 + 4 * 384
  found = helpers.weights(task) + 11 * one_block
  assert found == 22_050_664 - 385 * (1000 - 203)
  assert tasks.parameters_of('gld23k')['blocks'].default == 12
  spec = task.datasets.element_type_structure[0]
  assert spec.shape.as_list() == [None, 224, 224, 3]


@pytest.mark.parametrize(
  'options, message',
  [
    (dict(patch_size=15), 'must divide `image_size`, 224; got 15'),
    (dict(width=100), 'multiple of 64'),
  ],
)
def test_sizes_must_fit(options, message):
  with pytest.raises(ValueError, match=message):
    tasks.create('gld23k', data='synthetic', **options)
