"""Landmarks of Google Landmarks v2, one client per photographer.

The 23,080 images, 203 classes and 233 clients of TFF's gld23k. Lee et al.
(FedAda2) fine-tune a vision transformer of size S on them.
"""

from __future__ import annotations

import pathlib
from typing import Any, Literal, Optional

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.formats import data_files
from tasks.images import cifar
from tasks.lazy import builders
from tasks.lazy import client_data
from tasks.lazy import preprocessing
from tasks.lazy import vit
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

NUM_CLASSES = 203
# Size of the shuffle buffer. Clients have fewer images than gld160k's 3,500.
_BUFFER = 1000


@registry.task(
  'gld23k',
  summary='Tell the landmark on a photograph, one client per photographer.',
  model='ViT-S/16, 21,743,819 weights',
  clients='233 photographers, 23,080 images',
  files=('gld23k/train/*', 'gld23k/test.tfRecord'),
  small_options=dict(image_size=28, patch_size=14, blocks=1, width=64),
)
class Gld23k(shared.Options):
  """Images [batch, 224, 224, 3] in [-1, 1], labels 0 to 202."""

  image_size: parameters.Count = 224
  """Height and width of the model's input in pixels."""

  patch_size: parameters.Count = 16
  """Height and width of a patch; it must divide `image_size`."""

  blocks: parameters.Count = 12
  """Blocks of the transformer."""

  width: parameters.Count = 384
  """Width of the transformer, a multiple of 64."""

  framing: Literal['crop', 'whole'] = 'crop'
  """With 'crop', images are resized so that their shorter side is a seventh
  longer than `image_size` and cropped to a square, of which training uses a
  random crop with random flips and testing the central crop. With 'whole', both
  sides are resized to `image_size`, as in the code of Lee et al.
  """

  pixels: Literal['centered', 'imagenet'] = 'centered'
  """'centered' for pixels from -1 to 1, or 'imagenet' for pixels standardised
  by ImageNet's mean and deviation of each channel."""

  weights_dir: Optional[str] = None
  """Folder with the transformer's weights, one .npz file. Without it the model
  is trained from scratch."""

  fine_tune: Literal['all', 'head'] = 'all'
  """Whether to train 'all' weights or only the new classifier, the 'head', on
  the features of pretrained weights.
  """

  def create(self) -> tff.simulation.baselines.BaselineTask:
    builders.check_fine_tuning(self.fine_tune, self.weights_dir, self.data)
    if self.image_size % self.patch_size:
      raise parameters.ParameterError(
        'patch_size',
        '{} must divide {image_size}, {size}; got {given}.',
        size=self.image_size,
        given=self.patch_size,
      )
    if self.width % 64:
      raise parameters.ParameterError(
        'width',
        '{} must be a multiple of 64, the width of an attention head, got '
        '{given}.',
        given=self.width,
      )
    crops = self.framing == 'crop'
    stored_size = self.image_size * 8 // 7 if crops else self.image_size
    if self.data == 'synthetic':
      train, test = _synthetic(stored_size, self.seed)
    else:
      folder = data_files.cache_folder(self.cache_dir)
      train, test = _load(folder, stored_size, keep_shape=crops)
    size = vit.Size(self.blocks, self.width, self.width // 64, 4 * self.width)

    train_map, test_map = cifar.build_maps(
      self.image_size, crops, self.pixels, stored_size=stored_size
    )
    return builders.task(
      train_data=train,
      test_data=test,
      train_preprocess_fn=preprocessing.build_train(
        batch_size=self.batch_size or 32,
        shuffle_buffer=_BUFFER,
        epochs=self.epochs,
        max_elements=self.max_elements,
        augment_fn=train_map,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=64, map_fn=test_map
      ),
      build_model=lambda: vit.build(
        num_classes=NUM_CLASSES,
        image_size=self.image_size,
        patch_size=self.patch_size,
        size=size,
        weights_dir=self.weights_dir,
      ),
      head_only=self.fine_tune == 'head',
      may_fail=self.weights_dir is not None,
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def _load(folder: pathlib.Path, stored_size: int, keep_shape: bool) -> Any:
  place = folder / 'gld23k'
  get = (
    f'On a machine with a network, tff.simulation.datasets.gldv2.load_data('
    f'gld23k=True, cache_dir=...) builds the folder gld23k; put it into '
    f'{folder}.'
  )
  train, test = place / 'train', place / 'test.tfRecord'
  if not train.is_dir() or not any(train.iterdir()):
    raise data_files.DataError(
      f'There is no folder {train} with a file for each client. {get}'
    )
  if not test.is_file():
    raise data_files.DataError(f'There is no file {test}. {get}')
  files = sorted(train.iterdir())
  for path in [*files, test]:
    check_records(path, get)

  def read(path: Any) -> Any:
    return tf.data.TFRecordDataset(path).map(
      lambda record: _parse(record, stored_size, keep_shape),
      num_parallel_calls=tf.data.AUTOTUNE,
    )

  def of_client(client_id: Any) -> Any:
    return read(tf.strings.join([str(train), client_id], separator='/'))

  clients = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
    [path.name for path in files], of_client
  )
  return (
    client_data.ListedClientData(
      clients, source=str(train), num_classes=NUM_CLASSES
    ),
    client_data.check_labels(read(str(test)), NUM_CLASSES, str(test)),
  )


def check_records(path: pathlib.Path, get: str) -> None:
  """Checks that a TFRecord file's first record is a landmark.

  Raises:
    DataError: If the check fails.
  """
  what = f'TFRecord file of image/encoded_jpeg and class, below {NUM_CLASSES}'
  with data_files.reading(path, what, get):
    records = tf.data.TFRecordDataset(str(path)).take(1)
    for record in records.as_numpy_iterator():
      feature = tf.train.Example.FromString(record).features.feature
      jpeg = feature['image/encoded_jpeg'].bytes_list.value[0]
      preprocessing.decode_jpeg(jpeg)
      label = feature['class'].int64_list.value[0]
      if not 0 <= label < NUM_CLASSES:
        raise ValueError(f'class {label}')
      return
    raise ValueError('no record')


def _parse(record: Any, stored_size: int, keep_shape: bool) -> Any:
  example = tf.io.parse_single_example(
    record,
    {
      'image/encoded_jpeg': tf.io.FixedLenFeature([], tf.string),
      'class': tf.io.FixedLenFeature([], tf.int64),
    },
  )
  image = preprocessing.decode_jpeg(example['image/encoded_jpeg'])
  shape = tf.fill([2], stored_size)
  if keep_shape:
    sides = tf.cast(tf.shape(image)[:2], tf.float32)
    sides = tf.math.ceil(sides * stored_size / tf.reduce_min(sides))
    shape = tf.cast(sides, tf.int32)
  image = tf.image.resize(image, shape)
  image = preprocessing.central_crop(image[tf.newaxis], stored_size)[0]
  image = tf.ensure_shape(image, [stored_size, stored_size, 3])
  return dict(image=tf.cast(tf.round(image), tf.uint8), label=example['class'])


def _synthetic(stored_size: int, seed: int) -> Any:
  shape = (stored_size, stored_size, 3)
  images, labels = synthetic.images(100, shape, 4, seed=seed)
  images, labels = (255 * images).astype(np.uint8), labels.astype(np.int64)
  split = partition.lda(labels[:80], alpha=1.0, sizes=[8] * 10, seed=seed)
  return (
    client_data.ArrayClientData(
      dict(image=images[:80], label=labels[:80]), split
    ),
    tf.data.Dataset.from_tensor_slices(
      dict(image=images[80:], label=labels[80:])
    ),
  )
