"""Seeded preprocessing of clients' data, vectorized over batches.

A client's training data goes through

  shuffle -> repeat -> take -> batch (keeping the last, short one) -> map

in the order of TFF's baseline tasks. Mapping whole batches costs one call per
batch instead of one per example.

A `Recipe` describes the same steps on arrays: a training loop that keeps
clients' examples as arrays applies it at a fraction of the cost of building and
iterating a `tf.data` pipeline for every client and round.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

MapFn = Callable[..., Any]

# Means and standard deviations of red, green and blue, for pixels in [0, 1].
Channels = tuple[tuple[float, float, float], tuple[float, float, float]]
IMAGENET: Channels = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Separates augmentation seeds from those of epochs, which fold in 0, 1, 2, ...
_AUGMENTATION = 2**31 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """Training preprocessing on arrays, as separate steps.

  A client's stacked examples are converted to rows once (`prepare_fn`). In each
  round examples are drawn (`order`), their rows are divided into batches, and
  these are mapped to the model's input (`map_fn` or `augment_fn`).

  Attributes:
    batch_size: Number of rows in a batch; the last, short one is kept.
    shuffle: Whether to shuffle each pass.
    buffer_size: Size of the shuffle buffer; None for one that holds all.
    epochs: Number of passes over the client's examples.
    max_elements: Maximum number of examples of all passes; None for no limit.
    first: If given, only this number of first examples is used.
    prepare_fn: Maps a dictionary of stacked examples to rows, a structure of
      arrays. Runs once per client: the place for costly deterministic steps.
    many_rows: Whether `prepare_fn` returns a pair: the rows, and each example's
      number of rows.
    ragged: Whether rows of different clients may have different widths.
    map_fn: Maps stacked rows to the model's input, each row independently.
    augment_fn: Used instead of `map_fn`; maps a batch and an int64 seed [2] to
      the model's input.
  """

  batch_size: int
  shuffle: bool = True
  buffer_size: Optional[int] = None
  epochs: int = 1
  max_elements: Optional[int] = None
  first: Optional[int] = None
  prepare_fn: Optional[MapFn] = None
  many_rows: bool = False
  ragged: bool = False
  map_fn: Optional[MapFn] = None
  augment_fn: Optional[MapFn] = None

  def order(self, count: int, seed: Any) -> np.ndarray:
    """Draws a round's examples.

    Args:
      count: The client's number of examples.
      seed: Seed of the order, integers.

    Returns:
      Indices of the examples, int64, in the order of iteration.
    """
    count = count if self.first is None else min(count, self.first)
    wanted = count * self.epochs
    if self.max_elements is not None:
      wanted = min(wanted, self.max_elements)
    generator = np.random.default_rng(seed) if self.shuffle else None
    passes = list(self._passes(count, wanted, generator))
    if not passes:
      return np.zeros([0], np.int64)
    return passes[0] if len(passes) == 1 else np.concatenate(passes)

  def _passes(
    self, count: int, wanted: int, generator: Optional[np.random.Generator]
  ) -> Iterator[np.ndarray]:
    while wanted > 0:
      if generator is None:
        places = np.arange(count)
      elif self.buffer_size is None or count <= self.buffer_size:
        places = generator.permutation(count)
      else:
        places = _through_buffer(count, self.buffer_size, generator)
      yield places[:wanted]
      wanted -= count


def _through_buffer(
  count: int, size: int, generator: np.random.Generator
) -> np.ndarray:
  """Draws the order of `tf.data.Dataset.shuffle` with a small buffer."""
  buffer = np.arange(size)
  order = np.empty(count, np.int64)
  for place, following in enumerate(range(size, count)):
    drawn = generator.integers(size)
    order[place], buffer[drawn] = buffer[drawn], following
  order[count - size :] = generator.permutation(buffer)
  return order


def batch_seed(seed: tf.Tensor, index: Any) -> tf.Tensor:
  """Derives a batch's seed for `augment_fn`.

  Args:
    seed: The client's seed in a round, int64 [2].
    index: Index of the batch, from 0.
  """
  return fold_in(fold_in(seed, _AUGMENTATION), index)


def shuffle_repeat(
  dataset: tf.data.Dataset,
  *,
  buffer_size: int,
  epochs: int = 1,
  seed: Optional[tf.Tensor] = None,
) -> tf.data.Dataset:
  """Reshuffles a data set for each of `epochs` passes.

  Args:
    dataset: The client's examples.
    buffer_size: Size of the shuffle buffer; 1 keeps the order.
    epochs: Number of passes.
    seed: Integer tensor [2] that fixes the order in each iteration of the
      result, whatever TensorFlow's global seed; None for a random order.
  """
  if seed is None or buffer_size <= 1:
    if buffer_size > 1:
      dataset = dataset.shuffle(buffer_size)
    return dataset.repeat(epochs) if epochs > 1 else dataset
  passes = [
    _shuffle(dataset, buffer_size, fold_in(seed, epoch))
    for epoch in range(epochs)
  ]
  return functools.reduce(tf.data.Dataset.concatenate, passes)


def build_train(
  *,
  batch_size: int,
  shuffle_buffer: int,
  epochs: int = 1,
  max_elements: Optional[int] = None,
  first: Optional[int] = None,
  prepare_fn: Optional[MapFn] = None,
  ragged: bool = False,
  map_fn: Optional[MapFn] = None,
  augment_fn: Optional[MapFn] = None,
) -> Callable[..., tf.data.Dataset]:
  """Builds `train_preprocess_fn(dataset, seed=None)`.

  Args:
    batch_size: Number of examples in a batch.
    shuffle_buffer: Size of the shuffle buffer; 1 keeps the order.
    epochs: Number of passes over the client's examples.
    max_elements: Maximum number of examples of all passes; None for no limit.
    first, prepare_fn, ragged: As in `Recipe`; `prepare_fn` can be traced.
    map_fn: Maps a batch to the model's input.
    augment_fn: Used instead of `map_fn`; maps a batch and an int64 seed [2] to
      the model's input.

  Returns:
    The function. Its `seed`, an integer tensor [2], fixes all randomness;
    without it results are not reproducible. Its attribute `recipe` is an
    equivalent `Recipe`.
  """
  recipe = Recipe(
    batch_size=batch_size,
    shuffle=shuffle_buffer > 1,
    epochs=epochs,
    max_elements=max_elements,
    first=first,
    prepare_fn=prepare_fn,
    ragged=ragged,
    map_fn=map_fn,
    augment_fn=augment_fn,
  )

  def build(
    dataset: tf.data.Dataset, seed: Optional[tf.Tensor]
  ) -> tf.data.Dataset:
    if first is not None:
      dataset = dataset.take(first)
    dataset = shuffle_repeat(
      dataset, buffer_size=shuffle_buffer, epochs=epochs, seed=seed
    )
    if max_elements is not None:
      dataset = dataset.take(max_elements)
    dataset = dataset.batch(batch_size)
    if augment_fn is not None:
      return map_seeded(dataset, augment_fn, seed)
    for function in filter(None, (prepare_fn, map_fn)):
      dataset = dataset.map(function)
    return dataset

  return seedable(build, recipe)


def quick_options() -> tf.data.Options:
  """Returns tf.data options for data sets of a few batches.

  Disables optimizations for long inputs (graph rewrites, autotuning), which
  cost more than a client's few batches.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  return options


def traced_on_host(
  function: Callable[..., Any],
  input_signature: Optional[Sequence[Any]] = None,
  *,
  autograph: bool = False,
) -> Callable[..., Any]:
  """Compiles a function of the input pipeline, which runs on the host.

  Args:
    function: The function.
    input_signature: That of `tf.function`.
    autograph: That of `tf.function`. Off for this project's own functions: it
      would convert loops over epochs.
  """
  return on_host(
    tf.function(function, input_signature=input_signature, autograph=autograph)
  )


def on_host(traced: Callable[..., Any]) -> Callable[..., Any]:
  """Has a traced function of the input pipeline run on the host.

  Where there is a GPU, TensorFlow takes what a function returns to be there,
  data sets too. Their iterators would follow, and crash: batches are in the
  host's memory.
  """

  def call(*arguments: Any) -> Any:
    with tf.device('/device:CPU:0'):
      return traced(*arguments)

  return call


def seedable(
  build: Callable[[tf.data.Dataset, Optional[tf.Tensor]], tf.data.Dataset],
  recipe: Recipe,
) -> Callable[..., tf.data.Dataset]:
  """Builds a `train_preprocess_fn(dataset, seed=None)` from a pipeline.

  Args:
    build: Maps a data set and an int64 seed [2] or None to the processed one.
    recipe: The equivalent steps on arrays.

  Returns:
    The function. Eager calls with a seed are traced once and then cost one call
    instead of one per step.
  """

  def whole(dataset: tf.data.Dataset, seed: Any) -> Any:
    return build(dataset, seed).with_options(quick_options())

  traced = traced_on_host(whole)

  def preprocess(
    dataset: tf.data.Dataset, seed: Optional[tf.Tensor] = None
  ) -> tf.data.Dataset:
    if seed is None:
      return whole(dataset, None)
    seed = tf.cast(tf.convert_to_tensor(seed), tf.int64)
    if tf.executing_eagerly():
      return traced(dataset, seed)
    return whole(dataset, seed)

  preprocess.recipe = recipe  # type: ignore[attr-defined]
  return preprocess


def build_eval(
  *, batch_size: int, map_fn: Optional[MapFn] = None
) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
  """Builds `eval_preprocess_fn(dataset)`, which batches in the given order."""

  def preprocess(dataset: tf.data.Dataset) -> tf.data.Dataset:
    dataset = dataset.batch(batch_size)
    if map_fn is None:
      return dataset
    return dataset.map(map_fn, num_parallel_calls=tf.data.AUTOTUNE)

  return preprocess


def map_seeded(
  dataset: tf.data.Dataset, fn: MapFn, seed: Optional[tf.Tensor]
) -> tf.data.Dataset:
  """Maps `fn(batch, seed)` over batches, each with a seed of its own."""
  if seed is None:

    def unseeded(*batch: Any) -> Any:
      drawn = tf.random.uniform([2], maxval=2**62, dtype=tf.int64)
      return fn(batch[0] if len(batch) == 1 else batch, drawn)

    return dataset.map(unseeded)

  def seeded(index: Any, batch: Any) -> Any:
    return fn(batch, batch_seed(seed, index))

  return dataset.enumerate().map(seeded)


def fold_in(seed: tf.Tensor, number: Any) -> tf.Tensor:
  """Derives a seed [2] from a seed and a number."""
  return tf.random.experimental.stateless_fold_in(
    seed, tf.cast(number, tf.int64)
  )


def random_crop(
  images: tf.Tensor, size: int, seed: tf.Tensor, padding: int = 0
) -> tf.Tensor:
  """Crops a square from each image at an independent random position.

  Args:
    images: Images [batch, height, width, channels].
    size: Height and width of the crops in pixels.
    seed: Integer tensor [2].
    padding: Zero padding of all sides before cropping, in pixels.

  Returns:
    Crops [batch, size, size, channels].
  """
  if padding:
    edge = [padding, padding]
    images = tf.pad(images, [[0, 0], edge, edge, [0, 0]])
  shape = tf.shape(images)
  for axis in (1, 2):
    start = tf.random.stateless_uniform(
      [shape[0]],
      fold_in(seed, axis),
      maxval=shape[axis] - size + 1,
      dtype=tf.int32,
    )
    rows = start[:, tf.newaxis] + tf.range(size)[tf.newaxis]
    if axis == 2:
      rows = tf.repeat(rows[:, tf.newaxis], size, axis=1)
    images = tf.gather(images, rows, axis=axis, batch_dims=axis)
  return images


def center(pixels: tf.Tensor) -> tf.Tensor:
  """Scales pixels from [0, 255] to [-1, 1], float32."""
  return tf.cast(pixels, tf.float32) / 127.5 - 1


def standardize(pixels: tf.Tensor, channels: Channels) -> tf.Tensor:
  """Standardizes the channels of pixels in [0, 255], float32.

  Args:
    pixels: Pixels [..., 3].
    channels: Means and standard deviations for pixels in [0, 1].
  """
  mean, deviation = (tf.constant(c, tf.float32) for c in channels)
  return (tf.cast(pixels, tf.float32) / 255 - mean) / deviation


def central_crop(images: tf.Tensor, size: int) -> tf.Tensor:
  """Crops the center of images [batch, height, width, channels]."""
  shape = tf.shape(images)
  top, left = (shape[1] - size) // 2, (shape[2] - size) // 2
  return images[:, top : top + size, left : left + size]


def random_flip(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Flips each image left to right with probability 1/2."""
  flip = tf.random.stateless_uniform([tf.shape(images)[0]], fold_in(seed, 0))
  return tf.where(
    (flip < 0.5)[:, tf.newaxis, tf.newaxis, tf.newaxis],
    tf.reverse(images, axis=[2]),
    images,
  )


def _shuffle(
  dataset: tf.data.Dataset, buffer_size: int, seed: tf.Tensor
) -> tf.data.Dataset:
  # Not `Dataset.shuffle`, whose order depends on the global seed and changes in
  # a second iteration.
  zero = tf.reduce_all(tf.equal(seed, 0))  # (0, 0) means no seed to the op.
  seed = tf.where(zero, tf.constant([0, 1], tf.int64), seed)
  spec = dataset.element_spec
  flat = tf.nest.flatten(spec)
  variant = tf.raw_ops.ShuffleDataset(
    input_dataset=tf.data.experimental.to_variant(dataset),
    buffer_size=tf.constant(buffer_size, tf.int64),
    seed=seed[0],
    seed2=seed[1],
    output_types=[s.dtype for s in flat],
    output_shapes=[s.shape for s in flat],
    reshuffle_each_iteration=False,
  )
  return tf.data.experimental.from_variant(variant, spec)


# The largest landmark has 2 million; decoding takes up to 12 bytes per pixel.
MAX_PIXELS = 100_000_000


def decode_jpeg(file: Any, max_pixels: int = MAX_PIXELS) -> tf.Tensor:
  """Decodes a JPEG file to RGB; raises an error on more than `max_pixels`."""
  shape = tf.io.extract_jpeg_shape(file, tf.int64)
  small = tf.debugging.assert_less_equal(
    shape[0] * shape[1],
    tf.constant(max_pixels, tf.int64),
    message='An image has more pixels than any real one.',
  )
  with tf.control_dependencies([] if small is None else [small]):
    return tf.io.decode_jpeg(tf.identity(file), channels=3)
