"""Vision transformers, against a transcription to NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import tasks
from tasks.formats import data_files
from tasks.models import vit
from tff_adaptive import parameters

_SIZE = vit.Size(blocks=2, width=8, heads=2, hidden=12)


def _checkpoint(rng, side, patch=4, size=_SIZE):
  """Random weights under the names of published checkpoints."""
  d, h = size.width, size.heads
  shapes = {
    'embedding/kernel': (patch, patch, 3, d),
    'embedding/bias': (d,),
    'cls': (1, 1, d),
    'Transformer/posembed_input/pos_embedding': (1, side**2 + 1, d),
    'Transformer/encoder_norm/scale': (d,),
    'Transformer/encoder_norm/bias': (d,),
  }
  for i in range(size.blocks):
    prefix = f'Transformer/encoderblock_{i}/'
    for name in ('LayerNorm_0', 'LayerNorm_2'):
      shapes[f'{prefix}{name}/scale'] = shapes[f'{prefix}{name}/bias'] = (d,)
    attention = f'{prefix}MultiHeadDotProductAttention_1/'
    for name in ('query', 'key', 'value'):
      shapes[f'{attention}{name}/kernel'] = (d, h, d // h)
      shapes[f'{attention}{name}/bias'] = (h, d // h)
    shapes[f'{attention}out/kernel'] = (h, d // h, d)
    shapes[f'{attention}out/bias'] = (d,)
    shapes[f'{prefix}MlpBlock_3/Dense_0/kernel'] = (d, size.hidden)
    shapes[f'{prefix}MlpBlock_3/Dense_0/bias'] = (size.hidden,)
    shapes[f'{prefix}MlpBlock_3/Dense_1/kernel'] = (size.hidden, d)
    shapes[f'{prefix}MlpBlock_3/Dense_1/bias'] = (d,)
  return {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}


def _norm(x, scale, bias):
  mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
  return (x - mean) / np.sqrt(var + 1e-6) * scale + bias


def _transcription(w, image, patch=4):
  """The class token's normalised output for one image."""
  side = len(image) // patch
  patches = image.reshape(side, patch, side, patch, 3).swapaxes(1, 2)
  x = np.einsum('rcijk,ijkd->rcd', patches, w['embedding/kernel'])
  x = (x + w['embedding/bias']).reshape(side**2, -1)
  x = np.concatenate([w['cls'][0], x])
  x = x + w['Transformer/posembed_input/pos_embedding'][0]
  for i in range(_SIZE.blocks):
    p = {
      k.removeprefix(f'Transformer/encoderblock_{i}/'): v for k, v in w.items()
    }
    y = _norm(x, p['LayerNorm_0/scale'], p['LayerNorm_0/bias'])

    def project(name, p=p, y=y):
      name = f'MultiHeadDotProductAttention_1/{name}'
      return (
        np.einsum('td,dhe->the', y, p[f'{name}/kernel']) + p[f'{name}/bias']
      )

    q, k, v = (project(n) for n in ('query', 'key', 'value'))
    scores = np.einsum('the,she->hts', q, k) / np.sqrt(q.shape[-1])
    mixed = np.einsum('hts,she->the', special.softmax(scores, axis=-1), v)
    name = 'MultiHeadDotProductAttention_1/out'
    x = x + np.einsum('the,hed->td', mixed, p[f'{name}/kernel'])
    x = x + p[f'{name}/bias']
    y = _norm(x, p['LayerNorm_2/scale'], p['LayerNorm_2/bias'])
    y = y @ p['MlpBlock_3/Dense_0/kernel'] + p['MlpBlock_3/Dense_0/bias']
    y = y * special.ndtr(y)  # Exact GELU.
    x = x + y @ p['MlpBlock_3/Dense_1/kernel'] + p['MlpBlock_3/Dense_1/bias']
  return _norm(
    x[0],
    w['Transformer/encoder_norm/scale'],
    w['Transformer/encoder_norm/bias'],
  )


def _build(weights_dir, **changes):
  options = dict(
    num_classes=5,
    image_size=12,
    patch_size=4,
    size=_SIZE,
    weights_dir=str(weights_dir),
  )
  return vit.build(**dict(options, **changes))


def test_published_weights_give_the_transcriptions_output(tmp_path):
  rng = np.random.default_rng(0)
  weights = _checkpoint(rng, side=3)
  np.savez(tmp_path / 'S.npz', **weights)
  model = _build(tmp_path)
  inner = tf.keras.Model(model.input, model.get_layer('head').input)
  images = rng.normal(size=[4, 12, 12, 3]).astype(np.float32)
  expected = np.stack([_transcription(weights, image) for image in images])
  np.testing.assert_allclose(inner(images), expected, rtol=2e-3, atol=2e-4)
  # The head is new, and starts with equal logits.
  np.testing.assert_array_equal(model(images), np.zeros([4, 5]))


def test_positions_are_scaled_to_other_images(tmp_path):
  weights = _checkpoint(np.random.default_rng(0), side=2)
  np.savez(tmp_path / 'S.npz', **weights)
  positions = _build(tmp_path).get_layer('positions').positions.numpy()
  given = weights['Transformer/posembed_input/pos_embedding']
  assert positions.shape == (1, 10, 8)
  np.testing.assert_array_equal(positions[:, 0], given[:, 0])
  # The middle of a 3 x 3 grid is the mean of the 2 x 2 one.
  np.testing.assert_allclose(
    positions[:, 5], given[:, 1:].mean(axis=1), rtol=1e-5
  )


def test_other_weights_are_refused(tmp_path):
  weights = _checkpoint(np.random.default_rng(0), side=3, patch=2)
  np.savez(tmp_path / 'S.npz', **weights)
  with pytest.raises(data_files.DataError, match='embedding/kernel must have'):
    _build(tmp_path)
  del weights['cls']
  np.savez(tmp_path / 'S.npz', **weights)
  with pytest.raises(data_files.DataError, match='no weights named cls'):
    _build(tmp_path, patch_size=2, image_size=6)


def test_size_s_at_its_published_resolution():
  with tf.Graph().as_default():
    model = vit.build(
      num_classes=1000, image_size=224, patch_size=16, size=vit.Size(blocks=1)
    )
  # ViT-S/16 with 1,000 classes: 22.05 million weights, in twelve blocks.
  one_block = 4 * 384 * 385 + 2 * 384 * 1536 + 1536 + 384 + 4 * 384
  assert model.count_params() + 11 * one_block == 22_050_664
  assert vit.Size().blocks == 12


def test_a_head_without_features_is_refused(tmp_path):
  for task, more in (
    ('gld23k', {}),
    ('cifar100_image', dict(model='vit_s', partition='lda')),
  ):
    with pytest.raises(parameters.ParameterError, match='are random'):
      tasks.create(task, fine_tune='head', cache_dir=str(tmp_path), **more)
  with pytest.raises(parameters.ParameterError, match="to be 'vit_s'"):
    tasks.create('cifar100_image', fine_tune='head', data='synthetic')


def test_a_task_that_trains_the_head():
  task = tasks.create(
    'gld23k',
    data='synthetic',
    fine_tune='head',
    image_size=32,
    blocks=1,
    width=64,
  )
  with tf.Graph().as_default():
    model = task.model_fn()
  shapes = [v.shape.as_list() for v in model.trainable_variables]
  assert shapes == [[64, 203], [203]]  # Tables 4 to 6 of FedAda2.
  assert len(model.non_trainable_variables) > 15
