"""The text encoder, against a transcription to NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from tasks.formats import data_files
from tasks.models import distilbert
from tests.tasks.formats import test_pretrained

_SIZE = distilbert.Size(blocks=2, width=8, heads=2, hidden=12)
_VOCAB, _LENGTH = 20, 6


def _checkpoint(prefix='distilbert.', positions=10):
  """Random weights under the names of published checkpoints."""
  d, h = _SIZE.width, _SIZE.hidden
  shapes = {
    'embeddings.word_embeddings.weight': (_VOCAB, d),
    'embeddings.position_embeddings.weight': (positions, d),
    'embeddings.LayerNorm.weight': (d,),
    'embeddings.LayerNorm.bias': (d,),
  }
  for i in range(_SIZE.blocks):
    layer = f'transformer.layer.{i}.'
    for name in ('q_lin', 'k_lin', 'v_lin', 'out_lin'):
      shapes[f'{layer}attention.{name}.weight'] = (d, d)
      shapes[f'{layer}attention.{name}.bias'] = (d,)
    for name in ('sa_layer_norm', 'output_layer_norm'):
      shapes[f'{layer}{name}.weight'] = shapes[f'{layer}{name}.bias'] = (d,)
    shapes[f'{layer}ffn.lin1.weight'] = (h, d)
    shapes[f'{layer}ffn.lin1.bias'] = (h,)
    shapes[f'{layer}ffn.lin2.weight'] = (d, h)
    shapes[f'{layer}ffn.lin2.bias'] = (d,)
  rng = np.random.default_rng(0)
  return {
    prefix + n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()
  }


def _norm(x, w, name):
  mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
  x = (x - mean) / np.sqrt(var + 1e-12)
  return x * w[f'{name}.weight'] + w[f'{name}.bias']


def _linear(x, w, name):
  return x @ w[f'{name}.weight'].T + w[f'{name}.bias']


def _transcription(w, tokens):
  """The encoder's output for the first token of one text."""
  x = w['embeddings.word_embeddings.weight'][tokens]
  x = x + w['embeddings.position_embeddings.weight'][: len(tokens)]
  x = _norm(x, w, 'embeddings.LayerNorm')
  for i in range(_SIZE.blocks):
    layer = f'transformer.layer.{i}.'
    q, k, v = (
      _linear(x, w, f'{layer}attention.{n}')
      .reshape(len(tokens), _SIZE.heads, -1)
      .swapaxes(0, 1)
      for n in ('q_lin', 'k_lin', 'v_lin')
    )
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    scores = np.where(tokens == 0, -np.inf, scores)
    mixed = (special.softmax(scores, -1) @ v).swapaxes(0, 1)
    mixed = mixed.reshape(len(tokens), -1)
    x = x + _linear(mixed, w, f'{layer}attention.out_lin')
    x = _norm(x, w, f'{layer}sa_layer_norm')
    y = _linear(x, w, f'{layer}ffn.lin1')
    y = _linear(y * special.ndtr(y), w, f'{layer}ffn.lin2')  # Exact GELU.
    x = _norm(x + y, w, f'{layer}output_layer_norm')
  return x[0]


def _build(folder):
  return distilbert.build(
    num_classes=3,
    vocab_size=_VOCAB,
    max_length=_LENGTH,
    size=_SIZE,
    weights_dir=None if folder is None else str(folder),
  )


@pytest.mark.parametrize('prefix', ['distilbert.', ''])
def test_published_weights_give_the_transcriptions_output(tmp_path, prefix):
  weights = _checkpoint(prefix)
  test_pretrained.write_safetensors(tmp_path / 'model.safetensors', weights)
  model = _build(tmp_path)
  inner = tf.keras.Model(model.input, model.get_layer('pre_classifier').input)
  tokens = np.int32([[2, 7, 9, 3, 0, 0], [2, 5, 5, 19, 11, 3]])
  bare = {n.removeprefix(prefix): v for n, v in weights.items()}
  expected = np.stack([_transcription(bare, row) for row in tokens])
  np.testing.assert_allclose(inner(tokens), expected, rtol=1e-3, atol=1e-4)


def test_what_stands_in_padding_does_not_matter():
  tf.keras.utils.set_random_seed(0)
  model = _build(None)
  embeddings = model.get_layer('embeddings').words
  tokens = np.int32([[2, 7, 9, 3, 0, 0]])
  before = model(tokens).numpy()
  changed = embeddings.embeddings.numpy()
  changed[0] = 5.0
  embeddings.embeddings.assign(changed)
  np.testing.assert_allclose(model(tokens), before, rtol=1e-5, atol=1e-6)


def test_other_weights_are_refused(tmp_path):
  path = tmp_path / 'model.safetensors'
  test_pretrained.write_safetensors(path, _checkpoint(positions=4))
  with pytest.raises(data_files.DataError, match=r'position_emb.* \(6, 8\)'):
    _build(tmp_path)
  weights = _checkpoint()
  del weights['distilbert.transformer.layer.1.ffn.lin2.bias']
  test_pretrained.write_safetensors(path, weights)
  with pytest.raises(data_files.DataError, match=r'layer.1.ffn.lin2.bias'):
    _build(tmp_path)
  path.unlink()
  with pytest.raises(data_files.DataError, match=r'one file .*safetensors'):
    _build(tmp_path)


@pytest.mark.exhaustive
def test_the_published_size():
  with tf.Graph().as_default():
    model = distilbert.build(
      num_classes=4,
      vocab_size=30_522,
      max_length=512,
      size=distilbert.Size(blocks=1),
    )
  # 66,362,880 weights of the encoder with its six blocks; two more layers.
  one_block = 4 * 768 * 769 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
  found = model.count_params() + 5 * one_block
  assert found == 66_362_880 + 768 * 769 + 769 * 4
  assert distilbert.Size().blocks == 6
