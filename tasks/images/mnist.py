"""Tasks on MNIST and Fashion-MNIST.

mnist_character   by label skew as in Kim et al., arXiv 2306.11201 (100 clients
                  of 500 examples), or one client for each of the 539 writers
fmnist            clothes, by label skew, with the same shallow network
mnist_lenet       two labels a client: Mukherjee et al., arXiv 2307.06306
mnist_logistic    a convex problem, of the same paper

Model inputs are float32 [batch, 28, 28, 1] in [0, 1], with bright ink (or
cloth) on a dark background.
"""

from __future__ import annotations

import gzip
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Optional

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.formats import data_files
from tasks.lazy import builders
from tasks.partitioners import splits
from tff_adaptive import parameters
from tff_adaptive.lazy import pandas
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

NUM_CLASSES = 10


def create(
  folder: str,
  build_model: Callable[[], tf.keras.Model],
  *,
  batch_size: int,
  options: Mapping[str, Any],
) -> tff.simulation.baselines.BaselineTask:
  """Creates a task on the four IDX files in a folder.

  Args:
    folder: Name of the folder in `cache_dir`.
    build_model: Builds the model.
    batch_size: Default number of examples in a batch.
    options: The task's options.

  Raises:
    DataError: If a file is missing or invalid.
    PartitionError: If the examples cannot satisfy the options.
  """
  seed = options['seed']
  if options['data'] == 'synthetic':
    images, labels = synthetic.images(600, (28, 28, 1), NUM_CLASSES, seed=seed)
    images = (255 * images[..., 0]).astype(np.uint8)
    images, test_images = images[:500], images[500:]
    labels, test_labels = labels[:500], labels[500:]
    read_groups = lambda: np.arange(500) // 25
  else:
    place = data_files.cache_folder(options['cache_dir']) / folder
    get = (
      f'Put the four files of the data set (train- and t10k-, images-idx3- '
      f'and labels-idx1-ubyte, with or without .gz) into {place}.'
    )
    images, labels = read_pair(place, 'train', num_classes=NUM_CLASSES, get=get)
    test_images, test_labels = read_pair(
      place, 't10k', num_classes=NUM_CLASSES, get=get
    )
    read_groups = lambda: read_writers(place / 'train-writers.csv', len(labels))
  if options['partition'] == 'writers':
    split = partition.grouped(
      partition.by_group(read_groups(), prefix='writer_'),
      options.get('group_size', 1),
    )
  else:
    split = splits.build(labels, options)
  # Shuffled: the first test images in the file are easier.
  order = np.random.default_rng([seed, 0x3157]).permutation(len(test_labels))
  return builders.partitioned_task(
    train=dict(label=labels, pixels=images),
    test=dict(label=test_labels[order], pixels=test_images[order]),
    split=split,
    options=options,
    batch_size=batch_size,
    eval_batch_size=250,
    to_model=_to_model(options.get('pixels', 'unit')),
    build_model=build_model,
    loss=builders.cross_entropy,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
  )


def read_writers(path: pathlib.Path, num_images: int) -> np.ndarray:
  """Reads the writer ids of images, int64 [images].

  The file is a CSV with the header index,hsf_series,writer_id (QMNIST's names)
  and one row per image, in the images' order.

  Raises:
    DataError: If the file is missing, or a row is invalid.
  """
  get = (
    'It lists index,hsf_series,writer_id of every training image, as QMNIST '
    'has them; or choose another partition.'
  )
  with data_files.reading(path, 'list of writers', get):
    rows = pandas.read_csv(path, usecols=['index', 'writer_id'], dtype='int64')
  if not np.array_equal(rows['index'], np.arange(num_images)):
    raise data_files.DataError(
      f'{path} must list the images 0 to {num_images - 1} in order, got '
      f'{len(rows)} rows. {get}'
    )
  return rows['writer_id'].to_numpy()


def build_cnn() -> tf.keras.Model:
  """Builds a CNN of two convolutions, two dense layers and dropout.

  The shallow network of Kim et al., arXiv 2306.11201; 21,840 weights.
  """
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer((28, 28, 1)),
      layers.Conv2D(10, 5),
      layers.MaxPool2D(),
      layers.ReLU(),
      layers.Conv2D(20, 5),
      layers.SpatialDropout2D(0.5),
      layers.MaxPool2D(),
      layers.ReLU(),
      layers.Flatten(),
      layers.Dense(50, activation='relu'),
      layers.Dropout(0.5),
      layers.Dense(NUM_CLASSES),
    ]
  )


def build_logistic() -> tf.keras.Model:
  """Builds multinomial logistic regression on 784 pixels; 7,850 weights."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((28, 28, 1)),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(NUM_CLASSES, kernel_initializer='zeros'),
    ]
  )


def build_lenet(units: str = 'tanh') -> tf.keras.Model:
  """Builds LeNet-5; 61,706 weights.

  Args:
    units: 'tanh' for tanh units and average pooling, as in LeCun et al. (1998)
      except for trained factors; 'relu' for ReLU units and max pooling.
  """
  layers = tf.keras.layers
  pool = layers.AveragePooling2D if units == 'tanh' else layers.MaxPool2D
  return tf.keras.Sequential(
    [
      layers.InputLayer((28, 28, 1)),
      layers.Conv2D(6, 5, padding='same', activation=units),
      pool(),
      layers.Conv2D(16, 5, activation=units),
      pool(),
      layers.Flatten(),
      layers.Dense(120, activation=units),
      layers.Dense(84, activation=units),
      layers.Dense(NUM_CLASSES),
    ]
  )


# Mean and standard deviation of MNIST's training pixels in [0, 1].
_MEAN, _DEVIATION = 0.1307, 0.3081


def _to_model(scale: str) -> Callable[[Any], Any]:
  """Builds the map from a batch to the model's input, scaling pixels."""

  def to_model(batch: Any) -> Any:
    pixels = tf.cast(batch['pixels'], tf.float32) / 255
    if scale == 'standardized':
      pixels = (pixels - _MEAN) / _DEVIATION
    return tf.expand_dims(pixels, -1), batch['label']

  return to_model


@registry.task(
  'mnist_character',
  summary='Recognise the digits of MNIST, by label skew or by writer.',
  model='CNN with dropout, 21,840 weights',
  clients='100 of 500 digits (--mnist_character_num_clients), or 539 writers',
  files=registry.idx_files('mnist'),
  published=registry.Published('Kim et al., arXiv 2306.11201', 500, 10, 64),
)
class MnistCharacter(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  later: ClassVar[frozenset[str]] = shared.Divided.later | {'group_size'}

  partition: Literal[shared.Rule, 'writers'] = 'lda'  # type: ignore[assignment]
  """'writers' for one client per writer, or a division of all digits: 'lda' for
  Dirichlet label skew, 'iid', 'classes' for a fixed number of labels a client,
  or another one (docs/tasks.md)."""

  group_size: parameters.Count = 1
  """Number of writers per client, with 'writers'."""

  num_clients: parameters.Count = 100
  """Number of clients, unless the partition is 'writers'."""

  examples_per_client: Optional[parameters.Count] = 500
  """Number of examples per client."""

  pixels: Literal['unit', 'standardized'] = 'unit'
  """'unit' for pixels from 0 to 1; 'standardized' for those less 0.1307,
  divided by 0.3081 (mean and deviation of MNIST), as in the paper's code."""

  def check(self) -> None:
    super().check()
    if self.group_size > 1 and self.partition != 'writers':
      raise parameters.ParameterError(
        'group_size',
        '{}={given} would be ignored: it needs {partition}=writers.',
        given=self.group_size,
      )

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create('mnist', build_cnn, batch_size=64, options=self.values)


@registry.task(
  'mnist_lenet',
  summary='LeNet on MNIST, two labels a client.',
  model='LeNet-5, 61,706 weights',
  clients='100 with two labels each (--mnist_lenet_num_clients)',
  files=registry.idx_files('mnist'),
  published=registry.Published(
    'Mukherjee et al., arXiv 2307.06306', 500, 10, 20
  ),
)
class MnistLenet(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  partition: shared.Rule = 'classes'

  num_clients: parameters.Count = 100

  units: Literal['tanh', 'relu'] = 'tanh'
  """'tanh' for LeNet's original tanh units and average pooling; 'relu' for ReLU
  and max pooling.
  """

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create(
      'mnist',
      lambda: build_lenet(self.units),
      batch_size=20,
      options=self.values,
    )


@registry.task(
  'mnist_logistic',
  summary='Logistic regression on MNIST, a convex problem.',
  model='logistic regression, 7,850 weights',
  clients='10 of 6,000 digits (--mnist_logistic_num_clients)',
  files=registry.idx_files('mnist'),
  published=registry.Published(
    'Mukherjee et al., arXiv 2307.06306', 500, 10, 20
  ),
)
class MnistLogistic(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  partition: shared.Rule = 'iid'

  num_clients: parameters.Count = 10

  pixels: Literal['unit', 'standardized'] = 'unit'
  """'unit' for pixels from 0 to 1; 'standardized' for those less their mean,
  divided by their deviation, as many PyTorch programs have them."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create('mnist', build_logistic, batch_size=20, options=self.values)


@registry.task(
  'fmnist',
  summary='Classify the clothes of Fashion-MNIST, split by label skew.',
  model='CNN with dropout, 21,840 weights',
  clients='100 of 500 images (--fmnist_num_clients)',
  files=registry.idx_files('fashion_mnist'),
  published=registry.Published('Kim et al., arXiv 2306.11201', 1000, 10, 64),
)
class FashionMnist(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  num_clients: parameters.Count = 100

  examples_per_client: Optional[parameters.Count] = 500
  """Number of examples per client."""

  pixels: Literal['unit', 'standardized'] = 'unit'
  """'unit' for pixels from 0 to 1; 'standardized' for those less 0.1307,
  divided by 0.3081 (mean and deviation of MNIST), as in the paper's code."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create(
      'fashion_mnist', build_cnn, batch_size=64, options=self.values
    )


_UNSIGNED_BYTE = 0x08


def find_idx(folder: pathlib.Path, name: str, get: str) -> pathlib.Path:
  """Returns the path of a file, or else that with .gz appended.

  Raises:
    DataError: If neither exists.
  """
  for path in (folder / name, folder / f'{name}.gz'):
    if path.is_file():
      return path
  raise data_files.DataError(f'There is no file {folder / name}[.gz]. {get}')


def read_idx(path: pathlib.Path, dimensions: int, get: str) -> np.ndarray:
  """Reads an array of unsigned bytes, decompressing .gz files.

  A file is two zero bytes, the type (8 for unsigned bytes), the number of
  dimensions, each dimension as a big-endian uint32, then the values.

  Args:
    path: The file.
    dimensions: Expected number of dimensions: 3 for images, 1 for labels.
    get: Advice for the error message how to get the file.

  Raises:
    DataError: If the file is damaged or of another kind.
  """
  magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
  begin = 4 + 4 * dimensions
  opened = gzip.open if path.suffix == '.gz' else open
  with data_files.reading(path, 'IDX file', get), opened(path, 'rb') as file:
    header = file.read(begin)
    shape = np.frombuffer(header[4:].ljust(begin - 4, b'\0'), '>u4').tolist()
    expected = math.prod(shape)
    data_files.check_size(path, expected, get)
    # At most one byte too many: a small file can decompress to a huge one.
    content = file.read(expected + 1)
  if header[:4] != magic or not expected or len(content) != expected:
    raise data_files.DataError(
      f'{path} should begin with the bytes {magic.hex(" ")} and have '
      f'{begin + expected} bytes for {tuple(shape)} values, but begins with '
      f'{header[:4].hex(" ") or "nothing"} and has '
      f'{"more" if len(content) > expected else len(header + content)}. {get}'
    )
  return np.frombuffer(content, np.uint8).reshape(shape)


def read_pair(
  folder: pathlib.Path, prefix: str, *, num_classes: int, get: str
) -> tuple[np.ndarray, np.ndarray]:
  """Reads images uint8 [examples, 28, 28] and labels int32 of one split.

  Args:
    folder: Folder of the files.
    prefix: 'train' or 't10k'.
    num_classes: Upper bound of labels, exclusive.
    get: Advice for the error message how to get the files.

  Raises:
    DataError: If a file is missing or damaged, or their lengths differ.
  """
  images_path = find_idx(folder, f'{prefix}-images-idx3-ubyte', get)
  labels_path = find_idx(folder, f'{prefix}-labels-idx1-ubyte', get)
  images = read_idx(images_path, 3, get)
  labels = read_idx(labels_path, 1, get)
  if images.shape[1:] != (28, 28):
    raise data_files.DataError(
      f'{images_path} must hold images of 28 x 28, got '
      f'{images.shape[1]} x {images.shape[2]}. {get}'
    )
  if len(images) != len(labels):
    raise data_files.DataError(
      f'{images_path} holds {len(images)} images, but {labels_path} '
      f'{len(labels)} labels. {get}'
    )
  data_files.check_labels(labels_path, labels, num_classes, get)
  return images, labels.astype(np.int32)
