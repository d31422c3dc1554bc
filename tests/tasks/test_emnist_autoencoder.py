"""Autoencoder on EMNIST."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests.tasks import helpers


@pytest.mark.parametrize('bottleneck', ['sigmoid', 'linear'])
def test_every_layer_is_a_sigmoid_but_perhaps_the_bottleneck(bottleneck):
  from tasks.images import emnist

  model = emnist.build_autoencoder(emnist._WIDTHS, bottleneck)
  found = [layer.activation.__name__ for layer in model.layers]
  assert found == ['sigmoid'] * 3 + [bottleneck] + ['sigmoid'] * 4
  assert [layer.units for layer in model.layers] == [
    1000,
    500,
    250,
    30,
    250,
    500,
    1000,
    784,
  ]


def test_input_is_ink_and_its_own_target(real_data):
  task = tasks.create('emnist_autoencoder', cache_dir=str(real_data))
  for x, y in helpers.client_batches(task):
    np.testing.assert_array_equal(x, y)
    assert x.shape[1:] == (784,) and x.min() == 0 and x.max() == 1
    # Ink is rare; the corner has none.
    assert 0.05 < x.mean() < 0.35 and x[:, 0].mean() < 0.01


@pytest.mark.parametrize('reduction', ['sum', 'mean'])
def test_the_loss_is_a_mean_over_pixels(reduction):
  """And, by default, a sum over the batch."""
  task = tasks.create(
    'emnist_autoencoder',
    data='synthetic',
    only_digits=True,
    **({} if reduction == 'sum' else dict(loss=reduction)),
  )
  model = task.model_fn()
  x, y = helpers.client_batches(task)[0]
  output = model.forward_pass((tf.constant(x), tf.constant(y)))
  errors = np.mean(np.square(output.predictions.numpy() - y), axis=1)
  expected = errors.sum() if reduction == 'sum' else errors.mean()
  assert len(errors) > 1
  np.testing.assert_allclose(output.loss, expected, rtol=1e-5)
