"""The benchmarks' workload as a task of this project."""

import argparse
from typing import Literal

import keras_models
import numpy as np
import tensorflow as tf
import workload

import tasks
from tasks import builders
from tasks import partition
from tff_adaptive import parameters


@tasks.task(
  'workload', summary='The workload.', model='its own', clients='its own'
)
class Workload(tasks.Options):
  """The workload; the test data are all clients' training data."""

  model: Literal['logistic', 'cnn', 'lstm', 'tag', 'cifar']
  """One of the workload's."""

  num_clients: parameters.Count
  """Number of clients."""

  examples: parameters.Count
  """Examples of each client."""

  width: parameters.Count = 784
  """Inputs of the logistic model and of that of tags."""

  def create(self):
    options = argparse.Namespace(
      model=self.model,
      examples=self.examples,
      width=self.width,
      population=self.num_clients,
    )
    clients = [workload.arrays(options, c) for c in range(self.num_clients)]
    examples_of_all = {
      'x': np.concatenate([x for x, _ in clients]),
      'y': np.concatenate([y for _, y in clients]),
    }
    if self.model == 'lstm':
      examples_of_all = {
        k: v.astype(np.int32) for k, v in examples_of_all.items()
      }
    positions = np.arange(self.num_clients * self.examples).reshape(
      self.num_clients, self.examples
    )
    split = partition.name_clients(list(positions))
    start = workload.start_weights(options)

    def build_model():
      keras_model = keras_models.network(options)
      if tf.executing_eagerly():  # What a run's initial weights are drawn from.
        keras_model.set_weights(start)
      return keras_model

    return builders.partitioned_task(
      train=examples_of_all,
      test=examples_of_all,
      split=split,
      options=self.values,
      batch_size=20,
      eval_batch_size=100,
      to_model=lambda batch: (batch['x'], batch['y']),
      build_model=build_model,
      loss=lambda: keras_models.loss(options),
      metrics=[lambda: keras_models.metric(options)],
    )
