"""The average of a run's model."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.loop import averaging


@pytest.fixture(name='averaged')
def averaged_fixture():
  task = helpers.task()
  initial = initial_weights.draw(task.model_fn, 3)
  data = [
    helpers.batch(task.datasets.train_data.create_tf_dataset_for_client(c))
    for c in task.datasets.train_data.client_ids[:2]
  ]
  inner = helpers.GradientRounds(initial)
  return averaging.AveragedRounds(inner, 0.9), data


def kernel(weights):
  return np.asarray(weights.trainable[0])


def test_it_follows_its_formula(averaged):
  rounds, data = averaged
  average = kernel(rounds.model_weights())
  np.testing.assert_array_equal(average, kernel(rounds.averaged_weights()))
  for _ in range(3):
    rounds.run(['a', 'b'], data)
    average = 0.9 * average + 0.1 * kernel(rounds.model_weights())
    np.testing.assert_allclose(
      kernel(rounds.averaged_weights()), average, rtol=1e-6
    )
  assert np.abs(average - kernel(rounds.model_weights())).max() > 1e-3
  assert kernel(rounds.averaged_weights()).dtype == np.float32


def test_it_goes_back_and_comes_back(averaged):
  rounds, data = averaged
  rounds.run(['a', 'b'], data)
  before, state = rounds.snapshot(), rounds.program_state
  average = kernel(rounds.averaged_weights())
  rounds.run(['a', 'b'], data)
  after = kernel(rounds.averaged_weights())
  assert not np.array_equal(after, average)
  rounds.roll_back(before)
  np.testing.assert_array_equal(kernel(rounds.averaged_weights()), average)
  rounds.restore(state)
  rounds.run(['a', 'b'], data)
  np.testing.assert_array_equal(kernel(rounds.averaged_weights()), after)


def test_weights_that_are_no_floats_are_taken_as_they_are():
  class Counting:
    def __init__(self):
      self.count = np.int64(0)

    def run(self, cohort, datasets):
      self.count += 1

    def model_weights(self):
      return tff.learning.models.ModelWeights([np.float32(1)], [self.count])

  rounds = averaging.AveragedRounds(Counting(), 0.5)
  rounds.run([], [])
  rounds.run([], [])
  assert rounds.averaged_weights().non_trainable == [2]


def test_the_groups_of_columns(averaged):
  rounds, _ = averaged
  assert list(averaging.models_of(rounds, 'validation')) == [
    'validation',
    'ema',
  ]
  assert list(averaging.models_of(rounds, 'test')) == ['test', 'test_ema']
  plain = helpers.GradientRounds(rounds.model_weights())
  assert list(averaging.models_of(plain, 'test')) == ['test']
