"""A text classifier of DistilBERT's shape: Sanh et al., arXiv 1910.01108.

The sum of word and position embeddings is normalized, followed by blocks of
attention and a two-layer perceptron, each with a residual connection and
normalization after it; a dense layer and a classifier act on the first token's
output.
"""

import dataclasses
import math
from typing import Any, Optional

import tensorflow as tf

from tasks.formats import data_files

# The padding token, masked in attention.
_PADDING = 0


@dataclasses.dataclass(frozen=True)
class Size:
  """Size of the encoder: blocks, width, heads, units of the perceptron."""

  blocks: int = 6
  width: int = 768
  heads: int = 12
  hidden: int = 3072


def build(
  *,
  num_classes: int,
  vocab_size: int,
  max_length: int,
  size: Size = Size(),
  weights_dir: Optional[str] = None,
) -> tf.keras.Model:
  """Builds a classifier from tokens int32 [batch, max_length] to logits.

  Args:
    num_classes: Number of classes.
    vocab_size: Number of tokens, including padding.
    max_length: Number of tokens of a text.
    size: Size of the encoder.
    weights_dir: Folder with one .safetensors file of an encoder, with the names
      of published checkpoints; it may have more positions than needed. The two
      layers after the encoder are always initialized randomly.

  Raises:
    DataError: If `weights_dir` has no such file, or weights have another size.
  """
  layers = tf.keras.layers
  tokens = layers.Input((max_length,), dtype=tf.int32)
  embeddings = _Embeddings(vocab_size, size.width, name='embeddings')
  x = embeddings(tokens)
  mask = layers.Lambda(lambda t: tf.not_equal(t, _PADDING)[:, tf.newaxis])(
    tokens
  )
  blocks = [_Block(size, name=f'block_{i}') for i in range(size.blocks)]
  for block in blocks:
    x = block(x, mask)
  x = layers.Dense(size.width, activation='relu', name='pre_classifier')(
    x[:, 0]
  )
  x = layers.Dropout(0.2)(x)
  model = tf.keras.Model(tokens, layers.Dense(num_classes, name='head')(x))
  if weights_dir is not None:
    _load(embeddings, blocks, weights_dir)
  return model


def _normal() -> tf.keras.initializers.Initializer:
  return tf.keras.initializers.TruncatedNormal(stddev=0.02)


class _Embeddings(tf.keras.layers.Layer):
  """The normalized sum of word and position embeddings."""

  def __init__(self, vocab_size: int, width: int, **kwargs: Any):
    super().__init__(**kwargs)
    self._width = width
    self.words = tf.keras.layers.Embedding(
      vocab_size, width, embeddings_initializer=_normal()
    )
    self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
    self.dropout = tf.keras.layers.Dropout(0.1)

  def build(self, input_shape: Any) -> None:
    self.positions = self.add_weight(
      'positions', [input_shape[1], self._width], initializer=_normal()
    )

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    return self.dropout(self.norm(self.words(inputs) + self.positions))


class _Block(tf.keras.layers.Layer):
  """A transformer block with normalization after attention and perceptron."""

  def __init__(self, size: Size, **kwargs: Any):
    super().__init__(**kwargs)
    layers = tf.keras.layers
    self.attention = layers.MultiHeadAttention(
      size.heads,
      size.width // size.heads,
      dropout=0.1,
      kernel_initializer=_normal(),
    )
    self.norm_1 = layers.LayerNormalization(epsilon=1e-12)
    self.dense_1 = layers.Dense(
      size.hidden, activation='gelu', kernel_initializer=_normal()
    )
    self.dense_2 = layers.Dense(size.width, kernel_initializer=_normal())
    self.dropout = layers.Dropout(0.1)
    self.norm_2 = layers.LayerNormalization(epsilon=1e-12)

  def call(self, inputs: tf.Tensor, mask: Any) -> tf.Tensor:
    attended = self.attention(inputs, inputs, attention_mask=mask)
    x = self.norm_1(inputs + attended)
    return self.norm_2(x + self.dropout(self.dense_2(self.dense_1(x))))


def _load(embeddings: Any, blocks: Any, weights_dir: str) -> None:
  """Loads all weights of the encoder."""
  path = data_files.find(weights_dir, '*.safetensors', 'weights')
  arrays = data_files.read_safetensors(path)
  # Some checkpoints have the bare encoder, others a model that contains it.
  prefix = 'distilbert.' if any(n.startswith('distil') for n in arrays) else ''

  def get(name: str, *shape: Any) -> Any:
    return data_files.take(arrays, f'{prefix}{name}', shape, path)

  def load(name: str, weight: tf.Variable, bias: tf.Variable) -> None:
    shape = [math.prod(bias.shape)]
    if weight.shape.rank > 1:
      shape.append(math.prod(weight.shape) // shape[0])
    # Files have the transpose, [outputs, inputs]; Keras divides by heads.
    weight.assign(get(f'{name}.weight', *shape).T.reshape(weight.shape))
    bias.assign(get(f'{name}.bias', shape[0]).reshape(bias.shape))

  words = embeddings.words.embeddings
  words.assign(get('embeddings.word_embeddings.weight', *words.shape))
  name = 'embeddings.position_embeddings.weight'
  known = arrays.get(f'{prefix}{name}')
  length, width = embeddings.positions.shape
  rows = length if known is None else max(length, len(known))
  embeddings.positions.assign(get(name, rows, width)[:length])
  load('embeddings.LayerNorm', *embeddings.norm.weights)
  for i, block in enumerate(blocks):
    # Kernel and bias of query, key, value and output.
    attention = block.attention.weights
    for name, variables in (
      ('attention.q_lin', attention[:2]),
      ('attention.k_lin', attention[2:4]),
      ('attention.v_lin', attention[4:6]),
      ('attention.out_lin', attention[6:]),
      ('sa_layer_norm', block.norm_1.weights),
      ('ffn.lin1', block.dense_1.weights),
      ('ffn.lin2', block.dense_2.weights),
      ('output_layer_norm', block.norm_2.weights),
    ):
      load(f'transformer.layer.{i}.{name}', *variables)
