"""Tasks on CIFAR-10 and CIFAR-100: Reddi et al., arXiv 2003.00295, Appendix F.

cifar10_image has clients by label skew; Kim et al., arXiv 2306.11201, have 100
of 500 examples, whole images and no weight decay. For cifar100_image TFF's
SQLite file has the clients of the paper; Lee et al. (FedAda2) fine-tune a
vision transformer on 1,000 clients with Dirichlet label skew 0.001.

Files are Krizhevsky's binary versions, concatenated JPEG files (see
`read_jpegs`) or, for CIFAR-100, TFF's SQLite file.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable, Mapping
from typing import Any, Literal, Optional

import numpy as np

from tasks import partition as partition_lib
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.formats import data_files
from tasks.lazy import builders
from tasks.lazy import client_data
from tasks.lazy import preprocessing
from tasks.lazy import resnet
from tasks.lazy import sqlite_files
from tasks.lazy import vit
from tasks.partitioners import splits
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_PIXELS = 32 * 32 * 3
# Patch size in pixels of a transformer that is trained from scratch.
_PATCH = 4
_JPEGS_MAGIC = b'CIF10JPG'
# As in Kim et al.'s code, arXiv 2306.11201.
CIFAR_10: preprocessing.Channels = (
  (0.4914, 0.4822, 0.4465),
  (0.2023, 0.1994, 0.2010),
)
# Those of the training images themselves.
_MEASURED: preprocessing.Channels = CIFAR_10[0], (0.2470, 0.2435, 0.2616)
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
      raise data_files.DataError(
        f'{path} must hold whole records of {record} bytes, but has '
        f'{len(content)} bytes. {get}'
      )
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    for column, classes in zip(rows.T, num_classes, strict=False):
      data_files.check_labels(path, column, classes, get)
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
    raise data_files.DataError(
      f'{path} must begin with {_JPEGS_MAGIC!r}, but begins with '
      f'{content[:8]!r}. {get}'
    )
  (count,) = struct.unpack_from('<I', content.ljust(12, b'\0'), 8)
  begin = 12 + 5 * count
  if len(content) < begin:
    raise data_files.DataError(
      f'{path} is cut short: the list of its {count} images needs {begin} '
      f'bytes, it has {len(content)}. {get}'
    )
  labels = np.frombuffer(content, np.uint8, count, 12)
  data_files.check_labels(path, labels, num_classes, get)
  lengths = np.frombuffer(content, '<u4', count, 12 + count).astype(np.int64)
  ends = begin + np.cumsum(lengths)
  if not count or len(content) != ends[-1]:
    raise data_files.DataError(
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
  stored_size: int = 32,
) -> tuple[preprocessing.MapFn, Callable]:
  """Builds the map of training batches (with a seed) and that of test batches.

  Training images are randomly cropped and flipped, test images are
  center-cropped. For crops of the full size, training images are padded by 4
  pixels first.

  Args:
    crop_size: Height and width of the crops in pixels.
    distort: Whether to crop and flip training images randomly.
    pixels: 'per_image' standardizes by each image's mean and standard deviation
      (Reddi et al., arXiv 2003.00295, Section C.1), 'per_channel' and
      'standardized' by those in `channels`, 'imagenet' by ImageNet's;
      'centered' scales to [-1, 1], as for published transformers.
    channels: Means and standard deviations of the data set's channels.
    stored_size: Height and width of the images.
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
      batch['image'],
      crop_size,
      seed,
      padding=4 if crop_size == stored_size else 0,
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
  """Builds 'resnet8', 'resnet18', 'resnet50', 'cnn' or 'vit_s', with logits.

  Args:
    num_classes: Number of classes.
    options: A task's options, of which `model`, `crop_size`, `stem`,
      `weight_decay` and, for 'vit_s', `weights_dir` are used.
  """
  size = options['crop_size']
  if options['model'] == 'cnn':
    return builders.build_cnn(num_classes, (size, size, 3))
  if options['model'] != 'vit_s':
    return resnet.build(
      depth=int(options['model'].removeprefix('resnet')),
      num_classes=num_classes,
      image_size=size,
      stem=options['stem'],
      weight_decay=options['weight_decay'],
    )
  pretrained = options['weights_dir'] is not None
  return vit.build(
    num_classes=num_classes,
    image_size=size,
    patch_size=16 if pretrained else _PATCH,
    resize_to=vit.PRETRAINED_SIZE if pretrained else None,
    weights_dir=options['weights_dir'],
  )


def _read(path: pathlib.Path, get: str) -> bytes:
  with data_files.reading(path, 'file', get):
    return path.read_bytes()


def _decode(path: pathlib.Path, files: list[bytes], get: str) -> np.ndarray:
  # Accepts any small size, so that errors can name it.
  decode = lambda file: preprocessing.decode_jpeg(file, max_pixels=1 << 20)
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
      raise data_files.DataError(f'{path}, image {i} is damaged. {get}') from e
    if (height, width) != (32, 32):
      raise data_files.DataError(
        f'{path}, image {i}: 32 x 32 pixels were expected, got {height} x '
        f'{width}. {get}'
      )
  raise AssertionError('All images are whole, but could not be put together.')


_CIFAR_10_CLASSES = 10


@registry.task(
  'cifar10_image',
  summary='Classify the images of CIFAR-10, split by label skew.',
  model='ResNet-18 with group normalisation, 11,181,642 weights',
  clients='500 of 100 images (--cifar10_image_num_clients)',
  files=('cifar-10-batches-bin/*.bin or cifar10/train.jpegs',),
  published=registry.Published('Reddi et al., arXiv 2003.00295', 4000, 10, 20),
  small_options=dict(model='resnet8', crop_size=8, batch_size=8),
)
class Cifar10Image(shared.Divided):
  """Images [batch, crop_size, crop_size, 3], labels 0 to 9."""

  num_clients: parameters.Count = 500

  crop_size: parameters.Count = 24
  """Edge length of the image crops, at most 32."""

  distort: bool = True
  """Whether to crop and flip training images at random."""

  pixels: Literal['per_image', 'per_channel', 'standardized'] = 'per_image'
  """Whether images are standardised by the mean and deviation of each image, or
  of the data set's channels: 'per_channel' with the deviations of much
  published code, 0.2, 'standardized' with those of the images, 0.25."""

  model: Literal['resnet8', 'resnet18', 'resnet50', 'cnn'] = 'resnet18'
  """A residual network, or the CNN with dropout of EMNIST."""

  stem: Literal['large', 'small'] = 'large'
  """Stem of a residual network, 'large' as in TFF's baseline or 'small', which
  suits whole images.
  """

  weight_decay: parameters.NonNegative = 1e-4
  """L2 penalty of a residual network's kernels in the training loss."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    check_crop(self.crop_size, self.model)
    if self.data == 'synthetic':
      images, labels, test_images, test_labels = synthetic_arrays(
        _CIFAR_10_CLASSES, self.seed
      )
    else:
      (images, labels), (test_images, test_labels) = _load_cifar_10(
        self.cache_dir, self.seed
      )
    channels = _MEASURED if self.pixels == 'standardized' else CIFAR_10
    train_map, test_map = build_maps(
      self.crop_size, self.distort, self.pixels, channels
    )
    return builders.partitioned_task(
      train=dict(image=images, label=labels),
      test=dict(image=test_images, label=test_labels),
      split=splits.build(labels, options),
      options=options,
      batch_size=20,
      eval_batch_size=100,
      to_model=test_map,
      augment=train_map if self.distort else None,
      build_model=lambda: build_model(_CIFAR_10_CLASSES, options),
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def _load_cifar_10(cache_dir: str | None, seed: int) -> Any:
  folder = data_files.cache_folder(cache_dir)
  binary, jpegs = folder / 'cifar-10-batches-bin', folder / 'cifar10'
  get = (
    f'Unpack "CIFAR-10 binary version" of the CIFAR-10 home page into {folder},'
    f' or put train.jpegs and test.jpegs into {jpegs}.'
  )
  if not (jpegs / 'train.jpegs').exists():
    names = [f'data_batch_{i}.bin' for i in range(1, 6)], ['test_batch.bin']
    parts = [
      read_binary(
        [binary / n for n in group], num_classes=(_CIFAR_10_CLASSES,), get=get
      )
      for group in names
    ]
    return [to_arrays(x, y[:, 0], seed) for x, y in parts]
  return [
    to_arrays(
      *read_jpegs(
        jpegs / f'{name}.jpegs', num_classes=_CIFAR_10_CLASSES, get=get
      ),
      seed,
    )
    for name in ('train', 'test')
  ]


_CIFAR_100_CLASSES = 100
_NUM_COARSE = 20
# Clients of TFF's file have 100 examples; larger sizes may be requested.
_BUFFER = 500
_FILE = 'cifar100.sqlite'


@registry.task(
  'cifar100_image',
  summary='Classify the images of CIFAR-100, split by Pachinko allocation.',
  model='ResNet-18 with group normalisation, 11,227,812 weights',
  clients='500 of 100 images',
  files=('cifar100.sqlite or cifar-100-binary/train.bin',),
  published=registry.Published('Reddi et al., arXiv 2003.00295', 4000, 10, 20),
  small_options=dict(model='resnet8', crop_size=8, batch_size=8),
)
class Cifar100Image(shared.Divided):
  """Images [batch, crop_size, crop_size, 3], labels 0 to 99."""

  partition: Literal['native', 'pam', shared.Rule] = 'native'  # type: ignore[assignment]
  """'native' for the 500 clients of TFF's file, or a partition made here: 'pam'
  for Pachinko allocation, 'lda' for Dirichlet label skew, 'iid', 'classes' for
  a fixed number of labels a client, or another one (docs/tasks.md)."""

  num_clients: parameters.Count = 500
  """Number of clients, unless the partition is 'native'."""

  alpha: parameters.Positive = 0.1
  """Concentration of 'lda', or over coarse labels of 'pam'."""

  beta: parameters.Positive = 10.0
  """Concentration over the fine labels of a coarse one of 'pam'."""

  crop_size: parameters.Count = 24
  """Edge length of the image crops, at most 32."""

  distort: bool = True
  """Whether to crop and flip training images at random."""

  pixels: Optional[
    Literal['per_image', 'per_channel', 'imagenet', 'centered']
  ] = None
  """Whether images are standardised by the mean and deviation of each image, of
  the data set's channels or of ImageNet's; or 'centered', scaled to [-1, 1]. By
  default 'per_image' for a residual network and 'centered' for the transformer.
  """

  model: Literal['resnet8', 'resnet18', 'resnet50', 'vit_s'] = 'resnet18'
  """The residual network, or a vision transformer of size S."""

  stem: Literal['large', 'small'] = 'large'
  """Stem of a residual network, 'large' as in TFF's baseline or 'small', which
  suits whole images.
  """

  weight_decay: parameters.NonNegative = 1e-4
  """L2 penalty of a residual network's kernels in training."""

  weights_dir: Optional[str] = None
  """Folder with the transformer's weights, one .npz file; images are then
  scaled to 224 pixels. Without it, it is trained from scratch."""

  fine_tune: Literal['all', 'head'] = 'all'
  """Whether to train 'all' of the transformer or only its new classifier, the
  'head', on the features of `weights_dir`.
  """

  def check(self) -> None:
    super().check()
    if self.partition == 'native' and self.feature_skew is not None:
      raise parameters.ParameterError(
        'feature_skew',
        '{}={given} needs a partition of the pooled examples, and {partition} '
        'is native.',
        given=self.feature_skew,
      )
    usual = parameters.parameters_of(Cifar100Image)['beta'].default
    if self.partition != 'pam' and self.beta != usual:
      raise parameters.ParameterError(
        'beta',
        '{}={given} would be ignored: it needs {partition}=pam.',
        given=self.beta,
      )

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    check_crop(self.crop_size, self.model)
    if self.weights_dir is not None and self.model != 'vit_s':
      raise parameters.ParameterError(
        'weights_dir',
        "{} needs {model} to be 'vit_s', got {given!r}.",
        given=self.model,
      )
    if self.fine_tune == 'head' and self.model != 'vit_s':
      raise parameters.ParameterError(
        'fine_tune',
        "{}=head needs {model} to be 'vit_s', got {given!r}.",
        given=self.model,
      )
    builders.check_fine_tuning(self.fine_tune, self.weights_dir, self.data)
    train_map, test_map = build_maps(
      self.crop_size,
      self.distort,
      self.pixels or ('centered' if self.model == 'vit_s' else 'per_image'),
      CIFAR_100,
    )
    if self.data == 'synthetic':
      train, test = _synthetic(options)
    elif self.partition == 'native':
      train, test = _load_native(self.cache_dir, self.seed)
    else:
      arrays, test = _load_pooled(self.cache_dir, self.seed)
      train = builders.divided(arrays, _split(arrays, options), options)
    return builders.task(
      train_data=train,
      test_data=test,
      train_preprocess_fn=preprocessing.build_train(
        batch_size=self.batch_size or 20,
        shuffle_buffer=_BUFFER,
        epochs=self.epochs,
        max_elements=self.max_elements,
        augment_fn=train_map,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=64, map_fn=test_map
      ),
      build_model=lambda: build_model(_CIFAR_100_CLASSES, options),
      may_fail=self.weights_dir is not None,
      head_only=self.fine_tune == 'head',
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def _split(arrays: Any, options: Any) -> Any:
  if options['partition'] != 'pam':
    return splits.build(arrays['label'], options)
  most = len(arrays['label']) // options['num_clients']
  size = options['examples_per_client'] or most
  return partition_lib.pam(
    arrays['coarse_label'],
    arrays['label'],
    alpha=options['alpha'],
    beta=options['beta'],
    sizes=[size] * options['num_clients'],
    seed=options['seed'],
  )


def _synthetic(options: Any) -> Any:
  images, labels, test_images, test_labels = synthetic_arrays(
    _CIFAR_100_CLASSES, options['seed']
  )
  arrays = _arrays(images, labels // 5, labels)
  if options['partition'] in ('native', 'pam'):
    # Replaces the clients of TFF's file, which are by Pachinko allocation.
    options = dict(
      options, partition='pam', num_clients=20, examples_per_client=20
    )
  return (
    builders.divided(arrays, _split(arrays, options), options),
    tf.data.Dataset.from_tensor_slices(
      _arrays(test_images, test_labels // 5, test_labels)
    ),
  )


def _arrays(images: tf.Tensor, coarse: Any, fine: Any) -> Any:
  # Elements as in TFF's data set.
  return dict(coarse_label=coarse, image=images, label=fine)


def _load_native(cache_dir: str | None, seed: int) -> Any:
  path = sqlite_files.find(
    cache_dir,
    _FILE,
    splits=['train', 'test'],
    features=['coarse_label', 'image', 'label'],
    loader='cifar100',
  )
  splits = tff.simulation.datasets.cifar100.load_data(
    cache_dir=str(path.parent)
  )
  train, test = (
    client_data.SqliteClientData(
      clients, path, name, num_classes=_CIFAR_100_CLASSES
    )
    for clients, name in zip(splits, ('train', 'test'), strict=True)
  )
  return train, builders.centralized(test, seed)


def _load_pooled(cache_dir: str | None, seed: int) -> Any:
  """Loads all training examples as arrays from either file format."""
  folder = data_files.cache_folder(cache_dir)
  binary = folder / 'cifar-100-binary'
  if binary.is_dir() and not (folder / _FILE).exists():
    get = f'Unpack "CIFAR-100 binary version" of its home page into {folder}.'
    parts = []
    for name in ('train.bin', 'test.bin'):
      images, labels = read_binary(
        [binary / name], num_classes=(_NUM_COARSE, _CIFAR_100_CLASSES), get=get
      )
      images, labels = to_arrays(images, labels, seed)
      parts.append(_arrays(images, labels[:, 0], labels[:, 1]))
    return parts[0], tf.data.Dataset.from_tensor_slices(parts[1])
  train, test = _load_native(cache_dir, seed)
  pooled = train.create_tf_dataset_from_all_clients(seed=seed).batch(1000)
  try:
    batches = list(pooled.as_numpy_iterator())
  except tf.errors.OpError as e:
    raise data_files.DataError(
      f'{train.source} cannot be read: {e.message.splitlines()[0]}'
    ) from e
  arrays = {
    name: np.concatenate([b[name] for b in batches]) for name in batches[0]
  }
  return arrays, test
