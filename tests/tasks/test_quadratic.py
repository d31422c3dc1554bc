"""Example 1 of FedSPS, computed by hand."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests.tasks import helpers


def _losses_and_gradients(task):
  """The weights, and the loss and its gradient at both clients."""
  model = task.model_fn()
  (x,) = model.trainable_variables
  result = []
  for client_id in ('steep', 'flat'):
    batch = helpers.client_batches(task, client_id)[0]
    with tf.GradientTape() as tape:
      loss = model.forward_pass(tf.nest.map_structure(tf.constant, batch)).loss
    result.append((float(loss), tape.gradient(loss, x).numpy().tolist()))
  return x.numpy().tolist(), *result


@pytest.mark.parametrize('a', [1.0, 2.0, 1000.0])
def test_losses_and_gradients(a):
  task = tasks.create('quadratic', a=a, start=3.0)
  assert _losses_and_gradients(task) == (
    [3.0],
    (a * 4.5, [a * 3.0]),
    (4.5, [3.0]),
  )
  task = tasks.create('quadratic', a=a, start=3.0, axes='own')
  assert _losses_and_gradients(task) == (
    [3.0, 3.0],
    (a * 4.5, [a * 3.0, 0.0]),
    (4.5, [0.0, 3.0]),
  )
  assert helpers.weights(task) == 2


def test_noise_adds_up_to_nothing():
  task = tasks.create('quadratic', noise=10.0, examples_per_client=500)
  for client_id, curvature in (('steep', 2.0), ('flat', 1.0)):
    features = np.concatenate(
      [b[0] for b in helpers.client_batches(task, client_id)]
    )
    assert features.shape == (500, 2) and (features[:, 0] == curvature).all()
    assert features[:, 1].std() == pytest.approx(10, rel=0.15)
    assert features[:, 1].sum() == pytest.approx(0, abs=0.01)


def test_the_metric_is_the_distance_from_the_minimum():
  task = tasks.create('quadratic', start=-4.0)
  model = task.model_fn()
  batch = next(iter(task.datasets.get_centralized_test_data()))
  output = model.forward_pass(batch, training=False)
  assert float(output.loss) == pytest.approx((2 + 1) / 2 * 16 / 2)
  total, count = model.report_local_unfinalized_metrics()['distance']
  assert float(total) / float(count) == 4


# Of |t| with so many degrees of freedom: the median, and what one in ten
# numbers is above (tables of Student's distribution).
_QUANTILES = {
  1: (1.000, 6.314),
  2: (0.816, 2.920),
  3: (0.765, 2.353),
  np.inf: (0.674, 1.645),
}


@pytest.mark.parametrize(
  'law,degrees',
  [
    ('gaussian', (np.inf, np.inf)),
    ('student_t', (2, 3)),
    ('cauchy', (1, np.inf)),
  ],
)
def test_fresh_noise_follows_its_law(law, degrees):
  """Figure 1; FedAda2's Propositions 9 (t_(i+1)) and 10 (Cauchy, Gaussian)."""
  n = 4000
  task = tasks.create(
    'quadratic', noise=10.0, noise_law=law, examples_per_client=n, batch_size=n
  )
  for client_id, curvature, own in zip(('steep', 'flat'), (2.0, 1.0), degrees):
    ((features, labels),) = helpers.client_batches(task, client_id)
    assert labels.shape == (n, 1) and (features[:, 0] == curvature).all()
    size = np.abs(features[:, 1]) / 10
    median, high = _QUANTILES[own]
    assert np.median(size) == pytest.approx(median, rel=0.08)
    assert np.mean(size > high) == pytest.approx(0.1, rel=0.2)
    assert np.mean(features[:, 1] > 0) == pytest.approx(0.5, abs=0.03)


def test_fresh_noise_is_another_one_at_every_step():
  task = tasks.create(
    'quadratic', noise=1.0, noise_law='gaussian', examples_per_client=3, a=1.0
  )
  drawn = [
    batch[0][0, 1]
    for client_id in ('steep', 'flat')
    for seed in ((1, 2), (1, 3))
    for batch in helpers.client_batches(task, client_id, seed)
  ]
  # Clients differ by their seeds, which a run makes from their names.
  assert len(set(drawn[:6])) == 6
  again = [batch[0][0, 1] for batch in helpers.client_batches(task, 'steep')]
  assert again == drawn[:3]
  # The model is evaluated without it.
  ((features, _),) = helpers.test_batches(task)
  np.testing.assert_array_equal(features, 6 * [[1.0, 0.0]])


def test_fresh_noise_lies_along_the_client_s_own_axis():
  task = tasks.create(
    'quadratic', noise=1.0, noise_law='cauchy', axes='own', a=5.0
  )
  ((steep, _),) = helpers.client_batches(task, 'steep')
  ((flat, _),) = helpers.client_batches(task, 'flat')
  assert steep[0, 0] == 5 and flat[0, 1] == 1
  assert steep[0, 2] != 0 == steep[0, 3] and flat[0, 2] == 0 != flat[0, 3]
