"""Vision transformers: Dosovitskiy et al., arXiv 2010.11929, Section 3.1.

Patches are projected, a class token is prepended, and learned positions are
added; blocks of attention and a two-layer perceptron follow, each with layer
normalization before it and a residual connection; the class token's output is
normalized and classified. Size S: 12 blocks, 384 wide, 6 heads, 1,536 hidden.
"""

import dataclasses
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tasks.formats import data_files

# Image size in pixels that published weights were trained on.
PRETRAINED_SIZE = 224


@dataclasses.dataclass(frozen=True)
class Size:
  """Size of a transformer: blocks, width, heads, units of the perceptron."""

  blocks: int = 12
  width: int = 384
  heads: int = 6
  hidden: int = 1536


def build(
  *,
  num_classes: int,
  image_size: int,
  patch_size: int,
  size: Size = Size(),
  resize_to: Optional[int] = None,
  weights_dir: Optional[str] = None,
) -> tf.keras.Model:
  """Builds a vision transformer that ends in logits.

  Args:
    num_classes: Number of classes.
    image_size: Height and width of the images in pixels; three channels.
    patch_size: Height and width of a patch.
    size: Size of the transformer.
    resize_to: If given, the model first resizes images to this size in pixels.
    weights_dir: Folder with one .npz file of weights, with the names of the
      authors' published checkpoints. The classifier is initialized with zeros,
      as they recommend. Without it all weights are initialized randomly.

  Raises:
    DataError: If `weights_dir` has no such file, or weights have another size.
  """
  layers = tf.keras.layers
  side = (resize_to or image_size) // patch_size
  image = layers.Input((image_size, image_size, 3))
  x = image
  if resize_to is not None:
    x = layers.Resizing(resize_to, resize_to)(x)
  patches = layers.Conv2D(
    size.width, patch_size, strides=patch_size, name='embedding'
  )
  x = layers.Reshape((side * side, size.width))(patches(x))
  x = _TokenAndPositions(name='positions')(x)
  for i in range(size.blocks):
    x = _Block(size, name=f'block_{i}')(x)
  x = layers.LayerNormalization(epsilon=1e-6, name='norm')(x[:, 0])
  head = layers.Dense(
    num_classes,
    kernel_initializer='zeros' if weights_dir else 'glorot_uniform',
    name='head',
  )
  model = tf.keras.Model(image, head(x))
  if weights_dir is not None:
    _load(model, size.blocks, weights_dir)
  return model


class _TokenAndPositions(tf.keras.layers.Layer):
  """Prepends a learned token and adds learned positions."""

  def build(self, input_shape: Any) -> None:
    _, length, width = input_shape
    self.token = self.add_weight('token', [1, 1, width], initializer='zeros')
    self.positions = self.add_weight(
      'positions',
      [1, length + 1, width],
      initializer=tf.keras.initializers.RandomNormal(stddev=0.02),
    )

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    token = tf.repeat(self.token, tf.shape(inputs)[0], axis=0)
    return tf.concat([token, inputs], axis=1) + self.positions


class _Block(tf.keras.layers.Layer):
  """A transformer block with normalization before attention and perceptron."""

  def __init__(self, size: Size, **kwargs: Any):
    super().__init__(**kwargs)
    layers = tf.keras.layers
    self.norm_1 = layers.LayerNormalization(epsilon=1e-6)
    self.attention = layers.MultiHeadAttention(
      size.heads, size.width // size.heads
    )
    self.norm_2 = layers.LayerNormalization(epsilon=1e-6)
    self.dense_1 = layers.Dense(size.hidden, activation='gelu')
    self.dense_2 = layers.Dense(size.width)

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    x = self.norm_1(inputs)
    inputs = inputs + self.attention(x, x)
    return inputs + self.dense_2(self.dense_1(self.norm_2(inputs)))


# Names of a block's weights in published checkpoints, in Keras' order.
_NAMES_IN_BLOCK = (
  'LayerNorm_0/scale',
  'LayerNorm_0/bias',
  'MultiHeadDotProductAttention_1/query/kernel',
  'MultiHeadDotProductAttention_1/query/bias',
  'MultiHeadDotProductAttention_1/key/kernel',
  'MultiHeadDotProductAttention_1/key/bias',
  'MultiHeadDotProductAttention_1/value/kernel',
  'MultiHeadDotProductAttention_1/value/bias',
  'MultiHeadDotProductAttention_1/out/kernel',
  'MultiHeadDotProductAttention_1/out/bias',
  'LayerNorm_2/scale',
  'LayerNorm_2/bias',
  'MlpBlock_3/Dense_0/kernel',
  'MlpBlock_3/Dense_0/bias',
  'MlpBlock_3/Dense_1/kernel',
  'MlpBlock_3/Dense_1/bias',
)


def _load(model: Any, blocks: int, weights_dir: str) -> None:
  """Loads all weights except the classifier's."""
  path = data_files.find(weights_dir, '*.npz', 'weights')
  arrays = dict(data_files.read_npz(path))
  key = 'Transformer/posembed_input/pos_embedding'
  if key in arrays:
    length = model.get_layer('positions').positions.shape[1]
    arrays[key] = _resample(arrays[key], length)
  names = (
    'embedding/kernel',
    'embedding/bias',
    'cls',
    key,
    *(
      f'Transformer/encoderblock_{i}/{name}'
      for i in range(blocks)
      for name in _NAMES_IN_BLOCK
    ),
    'Transformer/encoder_norm/scale',
    'Transformer/encoder_norm/bias',
  )
  # The classifier's two weights are the last.
  for name, variable in zip(names, model.weights[:-2], strict=True):
    variable.assign(data_files.take(arrays, name, variable.shape, path))


def _resample(positions: np.ndarray, length: int) -> np.ndarray:
  """Resizes learned positions to another number of patches."""
  token, grid = positions[:, :1], positions[:, 1:]
  old, new = round(grid.shape[1] ** 0.5), round((length - 1) ** 0.5)
  if old == new:
    return positions
  width = grid.shape[-1]
  scaled = tf.image.resize(grid.reshape(1, old, old, width), [new, new])
  return np.concatenate(
    [token, np.reshape(scaled, [1, new * new, width])], axis=1
  )
