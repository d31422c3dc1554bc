"""Models and optimizers that were not made here, with what was."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import processes

from . import linear

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.05


@pytest.mark.parametrize(
  'client,server',
  [
    (
      tff.learning.optimizers.build_sgdm(RATE, 0.9),
      tff.learning.optimizers.build_sgdm(1.0, 0.9),
    ),
    pytest.param(
      tff.learning.optimizers.build_adam(RATE),
      tff.learning.optimizers.build_yogi(0.1),
      marks=pytest.mark.exhaustive,
    ),
  ],
)
def test_tff_optimizers_give_what_tff_learning_gives(client, server):
  theirs = tff.learning.algorithms.build_weighted_fed_avg(
    linear.model_fn, client, server
  )
  ours = algorithms.build(
    'fedprox',
    linear.model_fn,
    proximal_strength=0.0,
    client_optimizer=client,
    server_optimizer=server,
  )
  their_weights, their_metrics = linear.run(theirs, 3)
  our_weights, our_metrics = linear.run(ours, 3)
  np.testing.assert_allclose(our_weights, their_weights, rtol=1e-6)
  their_train = their_metrics['client_work']['train']
  our_train = our_metrics['client_work']['train']
  assert list(our_train) == list(their_train)
  np.testing.assert_allclose(
    list(our_train.values()), list(their_train.values()), rtol=1e-5
  )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'settings',
  [
    dict(client_optimizer='sgd', client_learning_rate=RATE),
    dict(client_optimizer='delta_sgd', smoothness_batch='same'),
    dict(client_optimizer='polyak', smoothing='bound'),
  ],
)
def test_functional_models_train_alike(settings):
  settings = dict(settings, proximal_strength=0.5)
  one, _ = linear.run(
    algorithms.build('fedadam', linear.model_fn, **settings), 2
  )
  two, metrics = linear.run(
    algorithms.build('fedadam', linear.functional_model(), **settings), 2
  )
  np.testing.assert_allclose(two, one, rtol=1e-5)
  assert metrics['client_work']['train']['mae'] > 0


class _Positive(tf.keras.layers.Layer):
  """Branches in Python on a tensor, which AutoGraph makes a tf.cond of."""

  def call(self, inputs):
    if tf.reduce_sum(inputs) > 0:
      result = inputs
    else:
      result = tf.zeros_like(inputs)
    return result


class _Careful(tff.learning.optimizers.Optimizer):
  """SGD whose rate depends on a Python condition on a tensor."""

  def initialize(self, specs):
    del specs
    return ()

  def next(self, state, weights, gradients):
    if gradients[0][0, 0] > 0:
      rate = 0.025
    else:
      rate = 0.05
    return state, tf.nest.map_structure(
      lambda w, g: w - rate * g, weights, gradients
    )


@pytest.mark.exhaustive
def test_optimizers_may_branch_in_python():
  process = processes.compose(
    linear.model_fn, _Careful(), optimizers.server('sgd')
  )
  weights, _ = linear.run(process, 2)

  def client(w, batches):
    for batch in batches:
      gradient = linear.gradient(w, batch)
      w = w - (0.025 if gradient > 0 else 0.05) * gradient
    return w

  np.testing.assert_allclose(weights, linear.fedavg(client, 2), rtol=1e-5)


@pytest.mark.exhaustive
def test_models_may_branch_in_python():
  @tf.function
  def predict(weights, x, training):
    del training
    if tf.reduce_sum(x) > 0:
      result = tf.matmul(x, weights[0][0])
    else:
      result = tf.zeros_like(x)
    return result

  functional = linear.functional_model(predict)
  keras = lambda: linear.model_fn([_Positive(input_shape=(1,))])
  (of_one, metrics), (of_other, _) = [
    linear.run(algorithms.build('delta_sgd', model, smoothness_batch='same'), 2)
    for model in (functional, keras)
  ]
  assert metrics['client_work']['clients']['rejected'] == 0
  np.testing.assert_allclose(of_one, of_other, rtol=1e-5)
