"""The benchmarks' workload as a task of this project."""

import argparse
from typing import Literal
from typing import Optional

import keras_models
import numpy as np
import tensorflow as tf
import workload

from tasks import assembly
from tasks import partition
from tff_adaptive import parameters


@parameters.checked
def create(
  *,
  model: Literal['logistic', 'cnn', 'lstm', 'tag'],
  num_clients: parameters.Count,
  examples: parameters.Count,
  width: parameters.Count = 784,
  cache_dir: Optional[str] = None,
  data: Literal['native', 'synthetic'] = 'native',
  epochs: parameters.Count = 1,
  batch_size: Optional[parameters.Count] = None,
  max_elements: Optional[parameters.Count] = None,
  seed: parameters.NonNegativeInt = 0,
):
  """Creates the task; the test data are all clients' training data.

  Args:
    model: One of the workload's.
    num_clients: Clients that there are.
    examples: Examples of each.
    width: Inputs of the logistic model and of that of tags.
    cache_dir: Not used.
    data: Not used.
    epochs: Passes of a client over its examples in a round.
    batch_size: Examples in a batch.
    max_elements: Most examples of a client in a round.
    seed: Not used; the workload's are its own.
  """
  options = argparse.Namespace(
    model=model, examples=examples, width=width, population=num_clients
  )
  clients = [workload.arrays(options, c) for c in range(num_clients)]
  examples_of_all = {
    'x': np.concatenate([x for x, _ in clients]),
    'y': np.concatenate([y for _, y in clients]),
  }
  if model == 'lstm':
    examples_of_all = {
      k: v.astype(np.int32) for k, v in examples_of_all.items()
    }
  positions = np.arange(num_clients * examples).reshape(num_clients, examples)
  split = partition.name_clients(list(positions))
  start = workload.start_weights(options)

  def build_model():
    keras_model = keras_models.network(options)
    if tf.executing_eagerly():  # What a run's initial weights are drawn from.
      keras_model.set_weights(start)
    return keras_model

  return assembly.partitioned_task(
    train=examples_of_all,
    test=examples_of_all,
    split=split,
    options=dict(
      epochs=epochs, batch_size=batch_size, max_elements=max_elements
    ),
    batch_size=20,
    eval_batch_size=100,
    to_model=lambda batch: (batch['x'], batch['y']),
    build_model=build_model,
    loss=lambda: keras_models.loss(options),
    metrics=[lambda: keras_models.metric(options)],
  )
