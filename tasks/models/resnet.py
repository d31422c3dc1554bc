"""Residual networks with group normalization, for small images.

Pre-activation residual blocks (He et al., arXiv 1603.05027) with batch
normalization replaced by group normalization, by default in two groups as in
Reddi et al., arXiv 2003.00295, Section C.1: its statistics are those of one
image, so that only trainable weights have to be aggregated.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_WIDE = (64, 128, 256, 512)
# Width and number of blocks of each stage, by depth.
_STAGES = {
  8: ((16, 1), (32, 1), (64, 1)),
  18: tuple(zip(_WIDE, (2, 2, 2, 2), strict=True)),
  50: tuple(zip(_WIDE, (3, 4, 6, 3), strict=True)),
}


def build(
  *,
  depth: int,
  num_classes: int,
  image_size: int,
  stem: str,
  groups: int = 2,
  weight_decay: float = 1e-4,
) -> tf.keras.Model:
  """Builds a residual network that ends in logits.

  Args:
    depth: 18, with blocks of two 3 x 3 convolutions; 50, with bottlenecks; or
      8, with three narrow stages of one block (He et al., arXiv 1512.03385,
      Section 4.2, n = 1), which trains in a fraction of the time.
    num_classes: Number of classes.
    image_size: Height and width of the images in pixels; three channels.
    stem: 'large', a 7 x 7 convolution and pooling, both with stride 2, and no
      further strides, as in TFF's baseline; or 'small', a 3 x 3 convolution
      without stride and stride 2 before each later stage.
    groups: Number of groups of each normalization.
    weight_decay: Factor of the sum of squared kernels in the training loss.
  """
  layers = tf.keras.layers
  regularizer = tf.keras.regularizers.L2(weight_decay) if weight_decay else None

  def conv(x: Any, filters: int, size: int, stride: int = 1) -> Any:
    return layers.Conv2D(
      filters,
      size,
      strides=stride,
      padding='same',
      use_bias=False,
      kernel_initializer='he_normal',
      kernel_regularizer=regularizer,
    )(x)

  def norm(x: Any) -> Any:
    return layers.GroupNormalization(groups)(x)

  def norm_relu(x: Any) -> Any:
    return layers.ReLU()(norm(x))

  block = _bottleneck if depth == 50 else _basic
  stages = _STAGES[depth]
  image = layers.Input((image_size, image_size, 3))
  if stem == 'large':
    x = norm_relu(conv(image, stages[0][0], 7, stride=2))
    x = layers.MaxPool2D(3, strides=2, padding='same')(x)
  else:
    x = norm_relu(conv(image, stages[0][0], 3))
  for stage, (width, count) in enumerate(stages):
    for i in range(count):
      first = stage == i == 0
      stride = 2 if stem == 'small' and stage > 0 and i == 0 else 1
      # Normalized by the stem.
      residual = block(
        x if first else norm_relu(x), width, stride, conv, norm_relu
      )
      shortcut = x
      if stride > 1 or x.shape[-1] != residual.shape[-1]:
        shortcut = norm(conv(x, residual.shape[-1], 1, stride))
      x = layers.Add()([shortcut, residual])
  x = layers.GlobalAveragePooling2D()(norm_relu(x))
  logits = layers.Dense(
    num_classes,
    kernel_initializer=tf.keras.initializers.RandomNormal(stddev=0.01),
    kernel_regularizer=regularizer,
    bias_regularizer=regularizer,
  )(x)
  return tf.keras.Model(image, logits)


def _basic(
  x: Any, width: int, stride: int, conv: Callable, norm_relu: Callable
) -> Any:
  return conv(norm_relu(conv(x, width, 3, stride)), width, 3)


def _bottleneck(
  x: Any, width: int, stride: int, conv: Callable, norm_relu: Callable
) -> Any:
  x = norm_relu(conv(x, width, 1))
  x = norm_relu(conv(x, width, 3, stride))
  return conv(x, 4 * width, 1)
