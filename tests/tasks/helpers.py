"""What tests of tasks share."""

import numpy as np
import tensorflow as tf


def weights(task) -> int:
  """Number of trainable weights of the task's model."""
  with tf.Graph().as_default():
    variables = task.model_fn().trainable_variables
    return sum(int(np.prod(v.shape)) for v in variables)


def client_batches(task, client_id=None, seed=(1, 2)):
  """A client's preprocessed batches, as NumPy."""
  data = task.datasets.train_data
  dataset = data.create_tf_dataset_for_client(client_id or data.client_ids[0])
  seed = None if seed is None else tf.constant(seed, tf.int64)
  return list(
      task.datasets.train_preprocess_fn(dataset, seed=seed)
      .as_numpy_iterator()
  )


def test_batches(task, count=None):
  """Preprocessed batches of the test split's first `count` examples."""
  dataset = task.datasets.test_data
  if count is not None:
    dataset = dataset.take(count)
  return list(task.datasets.eval_preprocess_fn(dataset).as_numpy_iterator())


test_batches.__test__ = False  # Its name is for readers, not for pytest.


def loss_falls(task, *, rate, steps=30, clients=5, below=0.9):
  """Trains by SGD on the first clients; asserts that their loss falls.

  Goes through the task's own TFF model, with fixed initial weights, so that it
  covers preprocessing, model, loss and metrics together.
  """
  tf.keras.utils.set_random_seed(0)
  model = task.model_fn()
  data = task.datasets.train_data
  batches = []
  for client_id in data.client_ids[:clients]:
    dataset = task.datasets.train_preprocess_fn(
        data.create_tf_dataset_for_client(client_id),
        seed=tf.constant([0, 1], tf.int64),
    )
    batches.extend(dataset)

  @tf.function(reduce_retracing=True)
  def step(batch):
    with tf.GradientTape() as tape:
      loss = model.forward_pass(batch, training=True).loss
    variables = model.trainable_variables
    for v, g in zip(variables, tape.gradient(loss, variables)):
      v.assign_sub(rate * tf.convert_to_tensor(g))
    return loss

  @tf.function(reduce_retracing=True)
  def evaluate(batch):
    output = model.forward_pass(batch, training=False)
    return output.loss * tf.cast(output.num_examples, output.loss.dtype)

  def mean_loss():
    rows = sum(len(tf.nest.flatten(b)[0]) for b in batches)
    return sum(float(evaluate(b)) for b in batches) / rows

  before = mean_loss()
  for i in range(steps):
    step(batches[i % len(batches)])
  after = mean_loss()
  assert np.isfinite(after) and after < below * before, (before, after)
  return before, after
