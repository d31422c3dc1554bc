"""Tasks whose gradients are not plain tensors, through whole rounds."""

import numpy as np
import pytest

import tasks
from tff_adaptive import algorithms
from tff_adaptive import runtime


@pytest.mark.slow
@pytest.mark.parametrize('name', ['stackoverflow_word'])
def test_embeddings_train_under_a_rule_that_keeps_gradients(name):
  # The gradient of an embedding is a set of rows; Delta-SGD keeps it from one
  # local step to the next.
  task = tasks.create(
    name, data='synthetic', batch_size=4, **tasks.info(name).small_options
  )
  runtime.set_in_process_context()
  process = algorithms.build('delta_sgd', task.model_fn)
  state = process.initialize()
  data = task.datasets.train_data
  losses = []
  for round_number in range(4):
    datasets = [
      task.datasets.train_preprocess_fn(
        data.create_tf_dataset_for_client(client_id), seed=(round_number, i)
      )
      for i, client_id in enumerate(data.client_ids[:2])
    ]
    output = process.next(state, datasets)
    state = output.state
    losses.append(float(output.metrics['client_work']['train']['loss']))
  assert np.isfinite(losses).all() and losses[-1] < losses[0]
