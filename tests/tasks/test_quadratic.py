"""Example 1 of FedSPS, computed by hand."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests.tasks import helpers


def _loss_and_gradient(task, client_id):
  model = task.model_fn()
  (x,) = model.trainable_variables
  batch = helpers.client_batches(task, client_id)[0]
  with tf.GradientTape() as tape:
    loss = model.forward_pass(tf.nest.map_structure(tf.constant, batch)).loss
  return float(x), float(loss), float(tape.gradient(loss, x))


@pytest.mark.parametrize('a', [1.0, 2.0, 1000.0])
def test_losses_and_gradients(a):
  task = tasks.create('quadratic', a=a, start=3.0)
  assert _loss_and_gradient(task, 'steep') == (3.0, a * 4.5, a * 3.0)
  assert _loss_and_gradient(task, 'flat') == (3.0, 4.5, 3.0)
  assert helpers.weights(task) == 1


def _rounds(a, step_of, most=5000):
  """Rounds of one step at both clients until x falls from 1 to 1e-3."""
  task = tasks.create('quadratic', a=a, start=1.0)
  curvatures = [
    helpers.client_batches(task, client_id)[0][0][0, 0]
    for client_id in ('steep', 'flat')
  ]
  x = 1.0
  for count in range(1, most + 1):
    gradients = [c * x for c in curvatures]
    losses = [c * x**2 / 2 for c in curvatures]
    x -= np.mean(
      [step_of(f, g) * g for f, g in zip(losses, gradients, strict=True)]
    )
    if abs(x) <= 1e-3:
      return count
    if abs(x) > 1e6:
      return float('inf')
  return most


@pytest.mark.parametrize('a', [1.0, 2.0, 1e3, 1e6])
def test_own_steps_take_the_same_time_whatever_a_is(a):
  # Polyak's step with c = 1 is 1 / (2 curvature): x halves every round.
  assert _rounds(a, lambda loss, g: loss / g**2) == 10


def test_a_common_step_must_be_chosen_for_a():
  for a in (2.0, 1000.0):
    largest = 4 / (1 + a)
    assert _rounds(a, lambda loss, g: 1.01 * largest) == float('inf')
    assert _rounds(a, lambda loss, g: largest / 2) == 1
  # The step that suits a = 1000 is some hundred times too small for a = 2.
  assert _rounds(2.0, lambda loss, g: 2 / 1001) > 2000


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
