"""CIFAR-100 images over clients: Reddi et al., arXiv 2003.00295, Appendix F.

TFF's SQLite file has the clients of that paper. Lee et al. (FedAda2) fine-tune
a vision transformer on 1,000 clients with Dirichlet label skew 0.001.
"""

from __future__ import annotations

from typing import Any
from typing import Literal
from typing import Optional

import numpy as np

from tasks import catalogue
from tasks import partition as partition_lib
from tasks import shared
from tasks.divisions import splits
from tasks.formats import data_errors
from tasks.images import cifar
from tasks.lazy import assembly
from tasks.lazy import client_data
from tasks.lazy import fine_tuning
from tasks.lazy import preprocessing
from tasks.lazy import sqlite_files
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

NUM_CLASSES = 100
_NUM_COARSE = 20
# Clients of TFF's file have 100 examples; larger sizes may be requested.
_BUFFER = 500
_FILE = 'cifar100.sqlite'


@catalogue.task(
  'cifar100_image',
  summary='Classify the images of CIFAR-100, split by Pachinko allocation.',
  model='ResNet-18 with group normalisation, 11,227,812 weights',
  clients='500 of 100 images',
  files=('cifar100.sqlite',),
  published=catalogue.Published('Reddi et al., arXiv 2003.00295', 4000, 10, 20),
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

  cache_dir: Optional[str] = None
  """Folder with cifar100.sqlite, or with the binary version's folder
  cifar-100-binary; by default ~/.tff.
  """

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 20."""

  def check(self) -> None:
    super().check()
    if self.partition == 'native' and self.feature_skew is not None:
      raise parameters.ParameterError(
        'feature_skew',
        '{}={given} needs a partition of the pooled examples, and {partition} '
        'is native.',
        given=self.feature_skew,
      )

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    cifar.check_crop(self.crop_size, self.model)
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
    fine_tuning.check(self.fine_tune, self.weights_dir, self.data)
    train_map, test_map = cifar.build_maps(
      self.crop_size,
      self.distort,
      self.pixels or ('centered' if self.model == 'vit_s' else 'per_image'),
      cifar.CIFAR_100,
    )
    if self.data == 'synthetic':
      train, test = _synthetic(options)
    elif self.partition == 'native':
      train, test = _load_native(self.cache_dir, self.seed)
    else:
      arrays, test = _load_pooled(self.cache_dir, self.seed)
      train = assembly.divided(arrays, _split(arrays, options), options)
    return assembly.task(
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
      build_model=lambda: cifar.build_model(NUM_CLASSES, options),
      may_fail=self.weights_dir is not None,
      head_only=self.fine_tune == 'head',
      loss=assembly.cross_entropy,
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
  images, labels, test_images, test_labels = cifar.synthetic_arrays(
    NUM_CLASSES, options['seed']
  )
  arrays = _arrays(images, labels // 5, labels)
  if options['partition'] in ('native', 'pam'):
    # Replaces the clients of TFF's file, which are by Pachinko allocation.
    options = dict(
      options, partition='pam', num_clients=20, examples_per_client=20
    )
  return (
    assembly.divided(arrays, _split(arrays, options), options),
    tf.data.Dataset.from_tensor_slices(
      _arrays(test_images, test_labels // 5, test_labels)
    ),
  )


def _arrays(images: tf.Tensor, coarse: Any, fine: Any) -> Any:
  # Elements as in TFF's data set.
  return dict(coarse_label=coarse, image=images, label=fine)


def _find(cache_dir: str | None) -> Any:
  return sqlite_files.find(
    cache_dir,
    _FILE,
    splits=['train', 'test'],
    features=['coarse_label', 'image', 'label'],
    loader='cifar100',
  )


def _load_native(cache_dir: str | None, seed: int) -> Any:
  path = _find(cache_dir)
  splits = tff.simulation.datasets.cifar100.load_data(
    cache_dir=str(path.parent)
  )
  train, test = (
    client_data.SqliteClientData(clients, path, name, num_classes=NUM_CLASSES)
    for clients, name in zip(splits, ('train', 'test'), strict=True)
  )
  return train, assembly.centralized(test, seed)


def _load_pooled(cache_dir: str | None, seed: int) -> Any:
  """Loads all training examples as arrays from either file format."""
  folder = sqlite_files.cache_folder(cache_dir)
  binary = folder / 'cifar-100-binary'
  if binary.is_dir() and not (folder / _FILE).exists():
    get = f'Unpack "CIFAR-100 binary version" of its home page into {folder}.'
    parts = []
    for name in ('train.bin', 'test.bin'):
      images, labels = cifar.read_binary(
        [binary / name], num_classes=(_NUM_COARSE, NUM_CLASSES), get=get
      )
      images, labels = cifar.to_arrays(images, labels, seed)
      parts.append(_arrays(images, labels[:, 0], labels[:, 1]))
    return parts[0], tf.data.Dataset.from_tensor_slices(parts[1])
  train, test = _load_native(cache_dir, seed)
  pooled = train.create_tf_dataset_from_all_clients(seed=seed).batch(1000)
  try:
    batches = list(pooled.as_numpy_iterator())
  except tf.errors.OpError as e:
    raise data_errors.DataError(
      f'{train.source} cannot be read: {e.message.splitlines()[0]}'
    ) from e
  arrays = {
    name: np.concatenate([b[name] for b in batches]) for name in batches[0]
  }
  return arrays, test
