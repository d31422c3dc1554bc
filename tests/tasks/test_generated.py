"""Generated problems: what is drawn has the laws that the pages state."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tasks.text import markov_text
from tests.tasks import helpers


def arrays(task):
  return task.datasets.train_data.arrays


def test_the_loss_of_quadratics_is_the_excess_of_the_clients_mean():
  """Against NumPy: F(x) = mean_i f_i(x), less its minimum."""
  task = tasks.create('quadratics', dimensions=5, num_clients=3, condition=10)
  data, split = arrays(task), task.datasets.train_data.partition
  optima = np.stack([data['features'][i[0], :5] for i in split.indices])
  curvature = 10.0 ** -np.array([0, 0.25, 0.5, 0.75, 1])

  def mean_value(x):
    return np.mean(np.sum(curvature * (x - optima) ** 2 / 2, axis=1))

  model = task.model_fn()
  (weights,) = model.trainable_variables
  (batch,) = helpers.test_batches(task)
  for x in (np.full(5, 3.0), np.array([1.0, -2.0, 0.5, 0.0, 4.0])):
    weights.assign(x)
    loss = float(model.forward_pass(batch, training=False).loss)
    excess = mean_value(x) - mean_value(optima.mean(axis=0))
    np.testing.assert_allclose(loss, excess, rtol=1e-5)
  weights.assign(optima.mean(axis=0))
  assert float(model.forward_pass(batch, training=False).loss) < 1e-9


@pytest.mark.parametrize(
  'law, beyond_four',
  # P(|noise| > 4): normal, and Student's with 2 degrees of freedom.
  [('gaussian', 0.00006), ('student_t', 0.05719)],
)
def test_noise_of_quadratics(law, beyond_four):
  task = tasks.create(
    'quadratics',
    noise=1.0,
    noise_law=law,
    batch_size=1000,
    examples_per_client=1000,
    num_clients=1,
  )
  (x, _), *_ = helpers.client_batches(task)
  noise = x[:, 50:]
  share = np.mean(np.abs(noise) > 4)
  assert abs(share - beyond_four) < 0.004
  assert abs(np.median(noise)) < 0.02
  again = helpers.client_batches(task, seed=(3, 4))[0][0][:, 50:]
  assert not np.array_equal(noise, again)


def test_fedprox_clients_differ_as_alpha_and_beta_say():
  def spread(alpha, beta):
    """How far apart clients' inputs are, and their labels."""
    task = tasks.create(
      'fedprox_synthetic', alpha=alpha, beta=beta, num_clients=100
    )
    data, split = arrays(task), task.datasets.train_data.partition
    centers = [data['x'][i].mean() for i in split.indices]
    return np.std(centers), task

  near, task = spread(0.0, 0.0)
  far, _ = spread(0.0, 3.0)
  # Means over 60 inputs of deviation 1 each, and of beta around them.
  assert 0.08 < near < 0.2 and 2.3 < far < 3.7
  variances = np.var(
    arrays(task)['x'][task.datasets.train_data.partition.indices[0]], axis=0
  )
  slope = np.polyfit(np.log(np.arange(1, 61)), np.log(variances), 1)[0]
  assert abs(slope + 1.2) < 0.25


def test_fedprox_sizes_and_tests():
  task = tasks.create('fedprox_synthetic', num_clients=2000, largest_client=400)
  sizes = task.datasets.train_data.partition.sizes
  assert sizes.min() >= 45 and sizes.max() == 360
  with pytest.raises(Exception, match=r'smallest_client.*at most'):
    tasks.create('fedprox_synthetic', smallest_client=500, largest_client=400)
  # None is all tests, not even one of a single example.
  task = tasks.create('fedprox_synthetic', smallest_client=1, seed=1)
  assert task.datasets.train_data.partition.sizes.min() == 1


def test_words_of_tags_follow_zipf():
  task = tasks.create('zipf_tags', num_clients=50)
  data = arrays(task)
  shares = data['words'].mean(axis=0)
  np.testing.assert_allclose(data['words'].sum(axis=1), 1, rtol=1e-5)
  # Half of all words are of texts alike: rank r has at least 0.5 / (r H).
  harmonic = np.sum(1 / np.arange(1, 1001))
  expected = 0.5 / (np.arange(1, 11) * harmonic)
  assert (shares[:10] > 0.8 * expected).all()
  counts = data['tags'].sum(axis=1)
  assert {*counts} == {1, 2, 3}
  assert (data['words'] == 0).mean() > 0.97


def test_skew_of_tags():
  def tags_a_client(alpha):
    data = tasks.create('zipf_tags', alpha=alpha).datasets.train_data
    rows = [data.arrays['tags'][i] for i in data.partition.indices]
    return np.mean([(r.sum(axis=0) > 0).sum() for r in rows])

  assert tags_a_client(0.05) + 5 < tags_a_client(10.0)


def test_the_entropy_floor_of_chains():
  chain = np.array([[0.9, 0.1], [0.5, 0.5]])
  # Stationary: 5/6, 1/6.
  np.testing.assert_allclose(markov_text.stationary(chain), [5 / 6, 1 / 6])
  expected = -(
    5 / 6 * (0.9 * np.log(0.9) + 0.1 * np.log(0.1)) + 1 / 6 * np.log(0.5)
  )
  assert abs(markov_text.entropy(chain) - expected) < 1e-12


def test_texts_are_of_their_clients_chains():
  """A table of counts comes near the floor that a run states, never below."""
  task = tasks.create(
    'markov_text', num_clients=2, examples_per_client=3000, symbols=4
  )
  data = task.datasets.train_data
  floor = float(data.notes[0].split('below ')[1].split()[0])
  losses = []
  for rows in data.partition.indices:
    texts = data.arrays['symbols'][rows]
    counts = np.zeros([4, 4])
    np.add.at(counts, (texts[:, :-1], texts[:, 1:]), 1)
    laws = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(np.where(counts > 0, laws, 1))
    losses.append(-np.sum(counts * logs) / counts.sum())
  assert abs(np.mean(losses) - floor) < 0.01


def test_hospitals():
  task = tasks.create('hospitals')
  data, split = arrays(task), task.datasets.train_data.partition
  assert len(split.sizes) == 8 and split.sizes.sum() + 112 == 569
  np.testing.assert_allclose(data['x'].mean(axis=0), 0, atol=1e-5)
  malignant = [np.mean(data['label'][i] == 0) for i in split.indices]
  # Small tumours are benign, large ones malignant.
  assert malignant[0] < 0.2 and malignant[-1] > 0.8
  test = sum(len(x) for x, _ in helpers.test_batches(task))
  assert test == 112


@pytest.mark.parametrize('name', ['quadratics', 'zipf_tags', 'markov_text'])
def test_another_seed_is_another_problem(name):
  """Held-out twins of workloads."""
  one, other, again = (
    arrays(tasks.create(name, seed=seed)) for seed in (0, 1, 0)
  )
  for key in one:
    np.testing.assert_array_equal(one[key], again[key])
  assert any(not np.array_equal(one[k], other[k]) for k in one)


def test_the_autoencoder_has_digits_as_targets():
  task = tasks.create('digits_autoencoder')
  x, y = helpers.client_batches(task)[0]
  np.testing.assert_array_equal(x, y)
  assert x.shape == (10, 64) and helpers.weights(task) == 13064
  assert tf.reduce_max(x) <= 1
