"""The average of a run's model."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.loop import rounds as rounds_lib


@pytest.fixture(name='averaged')
def averaged_fixture():
  task = helpers.task()
  initial = initial_weights.draw(task.model_fn, 3)
  data = [
    helpers.batch(task.datasets.train_data.create_tf_dataset_for_client(c))
    for c in task.datasets.train_data.client_ids[:2]
  ]
  inner = helpers.GradientRounds(initial)
  return rounds_lib.AveragedRounds(inner, 0.9), data


def average_of(rounds):
  return rounds.models('validation')['ema']


def kernel(weights):
  return np.asarray(weights.trainable[0])


def test_it_follows_its_formula(averaged):
  rounds, data = averaged
  average = kernel(rounds.model_weights())
  np.testing.assert_array_equal(average, kernel(average_of(rounds)))
  for _ in range(3):
    rounds.run(['a', 'b'], data)
    average = 0.9 * average + 0.1 * kernel(rounds.model_weights())
    np.testing.assert_allclose(kernel(average_of(rounds)), average, rtol=1e-6)
  assert np.abs(average - kernel(rounds.model_weights())).max() > 1e-3
  assert kernel(average_of(rounds)).dtype == np.float32


def test_it_goes_back_and_comes_back(averaged):
  rounds, data = averaged
  rounds.run(['a', 'b'], data)
  before, state = rounds.snapshot(), rounds.program_state
  average = kernel(average_of(rounds))
  rounds.run(['a', 'b'], data)
  after = kernel(average_of(rounds))
  assert not np.array_equal(after, average)
  rounds.roll_back(before)
  np.testing.assert_array_equal(kernel(average_of(rounds)), average)
  rounds.restore(state)
  rounds.run(['a', 'b'], data)
  np.testing.assert_array_equal(kernel(average_of(rounds)), after)


def test_weights_that_are_no_floats_are_taken_as_they_are():
  class Counting(helpers.GradientRounds):
    def __init__(self):
      self.count = np.int64(0)

    def run(self, cohort, datasets):
      self.count += 1
      return {'clients/count': len(cohort)}

    def model_weights(self):
      return tff.learning.models.ModelWeights([np.float32(1)], [self.count])

  rounds = rounds_lib.AveragedRounds(Counting(), 0.5)
  for cohort in (['a'], ['a'], []):
    rounds.run(cohort, cohort)
  # A round without clients changes nothing.
  assert average_of(rounds).non_trainable == [2]
