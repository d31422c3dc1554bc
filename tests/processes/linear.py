"""A one-weight linear model, and federated rounds on it in NumPy."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

START = 0.5
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 1], tf.float32), y=tf.TensorSpec([None, 1], tf.float32)
)

# Batches of (x, y) per client; sizes differ, so that weighting matters.
CLIENTS = [
  [([1.0, 2.0], [1.0, 3.0]), ([0.5, -1.0], [2.0, 0.0]), ([3.0], [1.0])],
  [([2.0, 1.0], [-1.0, 0.5])],
  [([0.3, 0.2], [5.0, 4.0]), ([1.5, 1.0], [0.0, 1.0])],
]


def model_fn(first_layers=()):
  keras_model = tf.keras.Sequential(
    [
      *first_layers,
      tf.keras.layers.Dense(
        1,
        use_bias=False,
        kernel_initializer=tf.keras.initializers.Constant(START),
        input_shape=(1,),
      ),
    ]
  )
  return tff.learning.models.from_keras_model(
    keras_model,
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=SPEC,
    metrics=[lambda: tf.keras.metrics.MeanAbsoluteError(name='mae')],
  )


@tf.function
def _predict(weights, x, training):
  del training
  return tf.matmul(x, weights[0][0])


def functional_model(predict=_predict):
  return tff.learning.models.FunctionalModel(
    initial_weights=((np.array([[START]], np.float32),), ()),
    predict_on_batch_fn=predict,
    loss_fn=lambda output, label, sample_weight=None: tf.reduce_mean(
      tf.square(output - label)
    ),
    metrics_fns=tff.learning.metrics.create_functional_metric_fns(
      lambda: collections.OrderedDict(mae=tf.keras.metrics.MeanAbsoluteError())
    ),
    input_spec=SPEC,
  )


def materialized(batches):
  """A client's batches as a dataset."""
  if not batches:
    empty = collections.OrderedDict(
      x=np.zeros((0, 1), np.float32), y=np.zeros((0, 1), np.float32)
    )
    return tf.data.Dataset.from_tensor_slices(empty).batch(2)
  parts = []
  for x, y in batches:
    parts.append(
      tf.data.Dataset.from_tensors(
        collections.OrderedDict(
          x=np.array(x, np.float32).reshape(-1, 1),
          y=np.array(y, np.float32).reshape(-1, 1),
        )
      ).map(
        lambda e: collections.OrderedDict(
          x=tf.ensure_shape(tf.reshape(e['x'], [-1, 1]), [None, 1]),
          y=tf.ensure_shape(tf.reshape(e['y'], [-1, 1]), [None, 1]),
        )
      )
    )
  whole = parts[0]
  for part in parts[1:]:
    whole = whole.concatenate(part)
  return whole


def datasets(clients=None):
  return [materialized(b) for b in (CLIENTS if clients is None else clients)]


def loss(w, batch):
  x, y = map(np.array, batch)
  return np.mean((w * x - y) ** 2)


def gradient(w, batch):
  x, y = map(np.array, batch)
  return np.mean(2 * x * (w * x - y))


def num_examples(batches):
  return sum(len(x) for x, _ in batches)


def round_update(w, local, clients=None, weight=num_examples):
  """The weighted mean of `local(w, batches) - w` over clients."""
  clients = CLIENTS if clients is None else clients
  updates = [local(w, batches) - w for batches in clients]
  weights = [weight(batches) for batches in clients]
  return np.average(updates, weights=weights)


def fedavg(local, rounds, eta=1.0, **more):
  """The weight after each of some rounds of averaging."""
  w, path = START, []
  for _ in range(rounds):
    w = w + eta * round_update(w, local, **more)
    path.append(w)
  return path


def sgd(rate, mu=0.0, momentum=0.0):
  """A client that steps along the gradient, with FedProx' term."""

  def local(start, batches):
    w, m = start, 0.0
    for batch in batches:
      m = momentum * m + gradient(w, batch) + mu * (w - start)
      w = w - rate * m
    return w

  return local


def weight_of(process, state):
  return float(process.get_model_weights(state).trainable[0][0][0])


def run(process, rounds=1, clients=None):
  """Runs rounds; returns the weight after each and the last metrics."""
  state = process.initialize()
  weights, metrics = [], None
  for _ in range(rounds):
    output = process.next(state, datasets(clients))
    state, metrics = output.state, output.metrics
    weights.append(weight_of(process, state))
  return weights, metrics
