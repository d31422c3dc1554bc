"""A small task, and a process that runs without a runtime."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.lab.training import traffic as communication
from tff_adaptive.lab.training.loop import rounds
from tff_adaptive.lab.training.participation import system_model

FEATURES = 3


def examples(seed, count):
  """Points of two classes that a linear model tells apart."""
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(count, FEATURES)).astype(np.float32)
  y = (x.sum(axis=1) > 0).astype(np.int32)
  return collections.OrderedDict(x=x, y=y)


def client_data(sizes):
  return tff.simulation.datasets.TestClientData(
    {f'client_{i}': examples(i, n) for i, n in enumerate(sizes)}
  )


def preprocess(dataset, seed=None):
  """Shuffles by `seed` and adds noise that `seed` decides."""
  if seed is not None:
    dataset = dataset.shuffle(100, seed=seed[0], reshuffle_each_iteration=False)

  def add_noise(index, batch):
    if seed is None:
      return batch
    noise = tf.random.stateless_normal(
      tf.shape(batch['x']), seed + tf.stack([index, 0])
    )
    return collections.OrderedDict(x=batch['x'] + 0.01 * noise, y=batch['y'])

  return dataset.batch(4).enumerate().map(add_noise)


def batch(dataset):
  return dataset.batch(4)


def task(
  sizes=(6, 9, 5, 8),
  train_preprocess_fn=preprocess,
  test_size=20,
  train_data=None,
):
  """Logistic regression on made-up points."""
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=train_data or client_data(sizes),
    test_data=client_data([test_size // 2, test_size - test_size // 2]),
    train_preprocess_fn=train_preprocess_fn,
    eval_preprocess_fn=batch,
  )

  def model_fn():
    layers = tf.keras.layers
    model = tf.keras.Sequential(
      [layers.InputLayer((FEATURES,)), layers.Dense(2)]
    )
    return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=datasets.element_type_structure,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )

  return tff.simulation.baselines.BaselineTask(datasets, model_fn)


def rounds_of(process, initial_weights, **more):
  """Returns the rounds of a process that begin with these weights."""
  state = process.set_model_weights(process.initialize(), initial_weights)
  return rounds.LearningRounds(process, state, **more)


class GradientRounds(rounds.Rounds):
  """Federated SGD written out by hand, with the methods that the loop uses."""

  def __init__(
    self, initial_weights, fail_in_round=None, error=None, before_round=None
  ):
    self._kernel, self._bias = (np.array(w) for w in initial_weights.trainable)
    self._round = 0
    self._fail_in_round = fail_in_round
    self._error = error
    self._before_round = before_round or (lambda number: None)
    self.traffic = communication.Traffic(down=32, up=40)
    self.cohorts = []
    self.report = {}

  @property
  def program_state(self):
    return collections.OrderedDict(
      kernel=self._kernel, bias=self._bias, round=np.int32(self._round)
    )

  def restore(self, state):
    self._kernel, self._bias = state['kernel'], state['bias']
    self._round = int(state['round'])

  def model_weights(self):
    return tff.learning.models.ModelWeights([self._kernel, self._bias], [])

  def run(self, cohort, datasets):
    self._round += 1
    self._before_round(self._round)
    if self._round == self._fail_in_round:
      raise self._error
    self.cohorts.append(list(cohort))
    count, total, gradient = 0, 0.0, np.zeros_like(self._kernel)
    for dataset in datasets:
      for element in dataset.as_numpy_iterator():
        x, y = element['x'], element['y']
        logits = x @ self._kernel + self._bias
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        total -= np.log(p[np.arange(len(y)), y]).sum()
        gradient += x.T @ (p - np.eye(2, dtype=np.float32)[y])
        count += len(y)
    self._kernel = (self._kernel - 0.5 * gradient / count).astype(np.float32)
    row = collections.OrderedDict(
      {
        'train/loss': np.float32(total / count),
        'train/num_examples': np.int64(count),
      }
    )
    row.update(self.report)
    return row


class Scripted(system_model.ClientSystemModel):
  """Clients of given seconds per example, some of which always drop out."""

  def __init__(self, seconds, gone=()):
    super().__init__(seed=0, seconds_per_example=1.0)
    self._seconds, self._gone = seconds, gone

  def pace(self, client):
    return self._seconds[client]

  def drops_out(self, client, number):
    return client in self._gone
