"""What tests of tasks share."""

import pathlib
import sqlite3
from collections.abc import Iterable, Mapping

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
    task.datasets.train_preprocess_fn(dataset, seed=seed).as_numpy_iterator()
  )


def test_batches(task, count=None):
  """Preprocessed batches of the test split's first `count` examples."""
  dataset = task.datasets.test_data
  if count is not None:
    dataset = dataset.take(count)
  return list(task.datasets.eval_preprocess_fn(dataset).as_numpy_iterator())


test_batches.__test__ = False  # Its name is for readers, not for pytest.


def loss_falls(task, *, rate, steps=30, clients=5, most=None, below=0.9):
  """Trains by SGD on batches of the first clients; asserts that loss falls.

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
  batches = batches[:most]

  @tf.function(reduce_retracing=True)
  def step(batch):
    with tf.GradientTape() as tape:
      loss = model.forward_pass(batch, training=True).loss
    variables = model.trainable_variables
    for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
      v.assign_sub(rate * tf.convert_to_tensor(g))
    return loss

  losses = [float(step(batches[i % len(batches)])) for i in range(steps)]
  some = min(len(batches), steps // 3)
  before, after = np.mean(losses[:some]), np.mean(losses[-some:])
  assert np.isfinite(after) and after < below * before, (before, after)
  return before, after


def write_sqlite(
  path: pathlib.Path,
  splits: Mapping[str, Mapping[str, Iterable[Mapping[str, object]]]],
) -> None:
  """Writes a data set in the schema of TFF's files, indices included.

  Args:
    path: The file, which must not exist.
    splits: From split to client to examples, which map a feature's name to
      bytes or to an array of numbers.
  """
  connection = sqlite3.connect(path)
  for statement in (
    'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT '
    'NULL, serialized_example_proto BLOB NOT NULL)',
    'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT '
    'NOT NULL, num_examples INTEGER NOT NULL)',
  ):
    connection.execute(statement)
  for split, clients in splits.items():
    for client_id, examples in clients.items():
      rows = [(split, client_id, serialize(e)) for e in examples]
      connection.executemany('INSERT INTO examples VALUES (?, ?, ?)', rows)
      connection.execute(
        'INSERT INTO client_metadata VALUES (?, ?, ?)',
        (client_id, split, len(rows)),
      )
  connection.execute(
    'CREATE INDEX idx_examples_client_id ON examples (client_id)'
  )
  connection.execute(
    'CREATE INDEX idx_metadata_client_id ON client_metadata (client_id)'
  )
  connection.commit()
  connection.close()


def serialize(example: Mapping[str, object]) -> bytes:
  """One example as the bytes of a `tf.train.Example`."""
  features = {}
  for name, value in example.items():
    if isinstance(value, bytes):
      kind = dict(bytes_list=tf.train.BytesList(value=[value]))
    elif np.issubdtype(np.asarray(value).dtype, np.integer):
      kind = dict(int64_list=tf.train.Int64List(value=np.ravel(value)))
    else:
      kind = dict(float_list=tf.train.FloatList(value=np.ravel(value)))
    features[name] = tf.train.Feature(**kind)
  return tf.train.Example(
    features=tf.train.Features(feature=features)
  ).SerializeToString()
