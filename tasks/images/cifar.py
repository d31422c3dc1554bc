"""Shared parts of the CIFAR tasks: files, preprocessing and models.

Files are Krizhevsky's binary versions, concatenated JPEG files (see
`read_jpegs`) or, for CIFAR-100, TFF's SQLite file.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks import synthetic
from tasks.formats import data_errors
from tasks.formats import data_files
from tasks.lazy import jpeg
from tasks.lazy import preprocessing
from tasks.lazy import resnet
from tasks.lazy import vit
from tff_adaptive import parameters
from tff_adaptive.lazy import tf

_PIXELS = 32 * 32 * 3
# Patch size in pixels of a transformer that is trained from scratch.
_PATCH = 4
_JPEGS_MAGIC = b'CIF10JPG'
# As in Kim et al.'s code, arXiv 2306.11201.
CIFAR_10: preprocessing.Channels = (
  (0.4914, 0.4822, 0.4465),
  (0.2023, 0.1994, 0.2010),
)
CIFAR_100: preprocessing.Channels = (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)


def read_binary(
  paths: list[pathlib.Path], *, num_classes: tuple[int, ...], get: str
) -> tuple[np.ndarray, np.ndarray]:
  """Reads records of labels and 3,072 pixels, channels first.

  Args:
    paths: The files, in order.
    num_classes: Number of classes of each label in a record: one label, or two
      for CIFAR-100 (coarse, fine).
    get: Advice for the error message how to get the files.

  Returns:
    Images uint8 [examples, 32, 32, 3] and labels uint8 [examples, labels].

  Raises:
    DataError: If a file is missing, or has a truncated record or a label out of
      range.
  """
  label_bytes = len(num_classes)
  record = label_bytes + _PIXELS
  images, labels = [], []
  for path in paths:
    content = _read(path, get)
    if not content or len(content) % record:
      raise data_errors.DataError(
        f'{path} must hold whole records of {record} bytes, but has '
        f'{len(content)} bytes. {get}'
      )
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    for column, classes in zip(rows.T, num_classes, strict=False):
      _check_labels(path, column, classes)
    labels.append(rows[:, :label_bytes])
    planes = rows[:, label_bytes:].reshape(-1, 3, 32, 32)
    images.append(planes.transpose(0, 2, 3, 1))
  return np.concatenate(images), np.concatenate(labels)


def read_jpegs(
  path: pathlib.Path, *, num_classes: int, get: str
) -> tuple[np.ndarray, np.ndarray]:
  """Reads JPEG files that are concatenated in one file.

  Layout, little endian: b'CIF10JPG', n as uint32, n labels as uint8, n lengths
  as uint32, then the n JPEG files.

  Args:
    path: The file.
    num_classes: Upper bound of labels, exclusive.
    get: Advice for the error message how to get the file.

  Returns:
    Images uint8 [examples, 32, 32, 3] and labels uint8 [examples].

  Raises:
    DataError: If the file is missing, truncated or of another format, or an
      image is damaged or of another size.
  """
  content = _read(path, get)
  if content[:8] != _JPEGS_MAGIC:
    raise data_errors.DataError(
      f'{path} must begin with {_JPEGS_MAGIC!r}, but begins with '
      f'{content[:8]!r}. {get}'
    )
  (count,) = struct.unpack_from('<I', content.ljust(12, b'\0'), 8)
  begin = 12 + 5 * count
  if len(content) < begin:
    raise data_errors.DataError(
      f'{path} is cut short: the list of its {count} images needs {begin} '
      f'bytes, it has {len(content)}. {get}'
    )
  labels = np.frombuffer(content, np.uint8, count, 12)
  _check_labels(path, labels, num_classes)
  lengths = np.frombuffer(content, '<u4', count, 12 + count).astype(np.int64)
  ends = begin + np.cumsum(lengths)
  if not count or len(content) != ends[-1]:
    raise data_errors.DataError(
      f'{path} should have {ends[-1] if count else "some"} bytes for '
      f'{count} images, but has {len(content)}. {get}'
    )
  files = [content[e - n : e] for e, n in zip(ends, lengths, strict=True)]
  return _decode(path, files, get), labels


def to_arrays(
  images: np.ndarray, labels: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """Shuffles examples (files are sorted by class) and casts labels to int64."""
  order = np.random.default_rng([seed, 0xC1FA]).permutation(len(labels))
  return images[order], labels[order].astype(np.int64)


def synthetic_arrays(
  num_classes: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Generates training images and labels, and test images and labels."""
  images, labels = synthetic.images(500, (32, 32, 3), num_classes, seed=seed)
  images = (255 * images).astype(np.uint8)
  labels = labels.astype(np.int64)
  return images[:400], labels[:400], images[400:], labels[400:]


def build_maps(
  crop_size: int,
  distort: bool,
  pixels: str = 'per_image',
  channels: preprocessing.Channels = CIFAR_10,
) -> tuple[preprocessing.MapFn, Callable]:
  """Builds the map of training batches (with a seed) and that of test batches.

  Training images are randomly cropped and flipped, test images are
  center-cropped. For crops of 32 pixels, the full size, training images are
  padded by 4 pixels first.

  Args:
    crop_size: Height and width of the crops in pixels.
    distort: Whether to crop and flip training images randomly.
    pixels: 'per_image' standardizes by each image's mean and standard deviation
      (Reddi et al., arXiv 2003.00295, Section C.1), 'per_channel' by those in
      `channels`, 'imagenet' by ImageNet's; 'centered' scales to [-1, 1], as for
      published transformers.
    channels: Means and standard deviations of the data set's channels.
  """

  def finish(images: tf.Tensor, batch: Any) -> Any:
    if pixels == 'per_image':
      images = tf.image.per_image_standardization(tf.cast(images, tf.float32))
    elif pixels == 'centered':
      images = preprocessing.center(images)
    else:
      images = preprocessing.standardize(
        images, preprocessing.IMAGENET if pixels == 'imagenet' else channels
      )
    return images, batch['label']

  def test(batch: Any) -> Any:
    return finish(preprocessing.central_crop(batch['image'], crop_size), batch)

  def train(batch: Any, seed: Any) -> Any:
    if not distort:
      return test(batch)
    images = preprocessing.random_crop(
      batch['image'], crop_size, seed, padding=4 if crop_size == 32 else 0
    )
    return finish(preprocessing.random_flip(images, seed), batch)

  return train, test


def check_crop(size: int, model: str) -> None:
  """Raises `ParameterError` if a model cannot take crops of this size."""
  if size > 32:
    raise parameters.ParameterError(
      'crop_size', '{} must be at most 32, got {size}.', size=size
    )
  if model == 'vit_s' and size % _PATCH:
    raise parameters.ParameterError(
      'crop_size',
      "{} must be a multiple of {patch} where {model} is 'vit_s', got {size}.",
      patch=_PATCH,
      size=size,
    )


def build_model(num_classes: int, options: Mapping[str, Any]) -> tf.keras.Model:
  """Builds 'resnet8', 'resnet18', 'resnet50' or 'vit_s', ending in logits.

  Args:
    num_classes: Number of classes.
    options: A task's options, of which `model`, `crop_size`, `stem`,
      `weight_decay` and, for 'vit_s', `weights_dir` are used.
  """
  if options['model'] != 'vit_s':
    return resnet.build(
      depth=int(options['model'].removeprefix('resnet')),
      num_classes=num_classes,
      image_size=options['crop_size'],
      stem=options['stem'],
      weight_decay=options['weight_decay'],
    )
  if options['weights_dir'] is None:
    return vit.build(
      num_classes=num_classes,
      image_size=options['crop_size'],
      patch_size=_PATCH,
    )
  return vit.build(
    num_classes=num_classes,
    image_size=options['crop_size'],
    patch_size=16,
    resize_to=vit.PRETRAINED_SIZE,
    weights_dir=options['weights_dir'],
  )


def _read(path: pathlib.Path, get: str) -> bytes:
  try:
    data_files.check(path, get)
    return path.read_bytes()
  except FileNotFoundError as e:
    raise data_errors.DataError(f'There is no file {path}. {get}') from e
  except OSError as e:
    raise data_errors.DataError(
      f'{path} cannot be read ({e.strerror}). {get}'
    ) from e


def _check_labels(
  path: pathlib.Path, labels: np.ndarray, num_classes: int
) -> None:
  wrong = np.flatnonzero(labels >= num_classes)
  if len(wrong):
    raise data_errors.DataError(
      f'{path}, record {wrong[0]}: a label below {num_classes} was expected, '
      f'got {labels[wrong[0]]}.'
    )


def _decode(path: pathlib.Path, files: list[bytes], get: str) -> np.ndarray:
  # Accepts any small size, so that errors can name it.
  decode = lambda file: jpeg.decode(file, max_pixels=1 << 20)
  dataset = tf.data.Dataset.from_tensor_slices(np.array(files, object))
  dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(500)
  try:
    images = np.concatenate(list(dataset.as_numpy_iterator()))
    if images.shape[1:] == (32, 32, 3):
      return images
  except tf.errors.InvalidArgumentError:
    pass  # The loop below finds the damaged image.
  for i, file in enumerate(files):
    try:
      height, width, _ = decode(file).shape
    except tf.errors.InvalidArgumentError as e:
      raise data_errors.DataError(f'{path}, image {i} is damaged. {get}') from e
    if (height, width) != (32, 32):
      raise data_errors.DataError(
        f'{path}, image {i}: 32 x 32 pixels were expected, got {height} x '
        f'{width}. {get}'
      )
  raise AssertionError('All images are whole, but could not be put together.')
