"""CIFAR-10 images over clients: Reddi et al., arXiv 2003.00295, Section C.1.

The defaults are that paper's. Kim et al., arXiv 2306.11201, have 100 clients of
500 examples, whole images and no weight decay.
"""

from __future__ import annotations

from typing import Any
from typing import Literal
from typing import Optional

from tasks import catalogue
from tasks import shared
from tasks.divisions import splits
from tasks.images import cifar
from tasks.lazy import assembly
from tasks.lazy import sqlite_files
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

NUM_CLASSES = 10


@catalogue.task(
  'cifar10_image',
  summary='Classify the images of CIFAR-10, split by label skew.',
  model='ResNet-18 with group normalisation, 11,181,642 weights',
  clients='500 of 100 images (--cifar10_image_num_clients)',
  files=('cifar-10-batches-bin/*.bin',),
  published=catalogue.Published('Reddi et al., arXiv 2003.00295', 4000, 10, 20),
  small_options=dict(model='resnet8', crop_size=8, batch_size=8),
)
class Cifar10Image(shared.Divided):
  """Images [batch, crop_size, crop_size, 3], labels 0 to 9."""

  num_clients: parameters.Count = 500

  crop_size: parameters.Count = 24
  """Edge length of the image crops, at most 32."""

  distort: bool = True
  """Whether to crop and flip training images at random."""

  pixels: Literal['per_image', 'per_channel'] = 'per_image'
  """Whether images are standardised by the mean and deviation of each image, or
  of the data set's channels."""

  model: Literal['resnet8', 'resnet18', 'resnet50'] = 'resnet18'
  """The residual network."""

  stem: Literal['large', 'small'] = 'large'
  """Stem of the network, 'large' as in TFF's baseline or 'small', which suits
  whole images.
  """

  weight_decay: parameters.NonNegative = 1e-4
  """L2 penalty of kernels in the training loss."""

  cache_dir: Optional[str] = None
  """Folder with cifar10/{train,test}.jpegs, or with the binary version's folder
  cifar-10-batches-bin; by default ~/.tff.
  """

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 20."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    cifar.check_crop(self.crop_size, self.model)
    if self.data == 'synthetic':
      images, labels, test_images, test_labels = cifar.synthetic_arrays(
        NUM_CLASSES, self.seed
      )
    else:
      (images, labels), (test_images, test_labels) = _load(
        self.cache_dir, self.seed
      )
    train_map, test_map = cifar.build_maps(
      self.crop_size, self.distort, self.pixels
    )
    return assembly.partitioned_task(
      train=dict(image=images, label=labels),
      test=dict(image=test_images, label=test_labels),
      split=splits.build(labels, options),
      options=options,
      batch_size=20,
      eval_batch_size=100,
      to_model=test_map,
      augment=train_map,
      build_model=lambda: cifar.build_model(NUM_CLASSES, options),
      loss=assembly.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def _load(cache_dir: str | None, seed: int) -> Any:
  folder = sqlite_files.cache_folder(cache_dir)
  binary, jpegs = folder / 'cifar-10-batches-bin', folder / 'cifar10'
  get = (
    f'Unpack "CIFAR-10 binary version" of the CIFAR-10 home page into {folder},'
    f' or put train.jpegs and test.jpegs into {jpegs}.'
  )
  if not (jpegs / 'train.jpegs').exists():
    names = [f'data_batch_{i}.bin' for i in range(1, 6)], ['test_batch.bin']
    parts = [
      cifar.read_binary(
        [binary / n for n in group], num_classes=(NUM_CLASSES,), get=get
      )
      for group in names
    ]
    return [cifar.to_arrays(x, y[:, 0], seed) for x, y in parts]
  return [
    cifar.to_arrays(
      *cifar.read_jpegs(
        jpegs / f'{name}.jpegs', num_classes=NUM_CLASSES, get=get
      ),
      seed,
    )
    for name in ('train', 'test')
  ]
