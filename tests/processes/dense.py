"""A linear layer of eight weights, and federated rounds on it in NumPy.

A matrix and a vector, so that rules which look at whole variables, at all of
them together or at single entries are told apart. In NumPy the weights are one
vector.
"""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms

INPUTS, OUTPUTS = 3, 2
KERNEL = INPUTS * OUTPUTS
START = np.array([0.5, -0.3, 0.2, 0.1, -0.4, 0.6, 0.3, -0.2])
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, INPUTS], tf.float32),
  y=tf.TensorSpec([None, OUTPUTS], tf.float32),
)


def _client(seed, sizes):
  rng = np.random.default_rng(seed)
  kernel = rng.normal(size=[INPUTS, OUTPUTS])  # Clients disagree.
  xs = [rng.normal(size=[n, INPUTS]).astype(np.float32) for n in sizes]
  return [(x, (x @ kernel + seed - 1).astype(np.float32)) for x in xs]


# Batches of (x, y); clients have unequal numbers of steps and of examples.
CLIENTS = [_client(0, [2, 2, 1]), _client(1, [3]), _client(2, [2, 1])]
# One whose update is not finite.
BAD = [(np.full([1, 3], np.nan, np.float32), np.zeros([1, 2], np.float32))]


@tf.function
def _predict(weights, x, training):
  del training
  kernel, bias = weights[0]
  return tf.matmul(x, kernel) + bias


@functools.cache
def model():
  return tff.learning.models.FunctionalModel(
    initial_weights=(
      (
        START[:KERNEL].reshape([INPUTS, OUTPUTS]).astype(np.float32),
        START[KERNEL:].astype(np.float32),
      ),
      (),
    ),
    predict_on_batch_fn=_predict,
    loss_fn=lambda output, label, sample_weight=None: (
      0.5 * tf.reduce_mean(tf.reduce_sum(tf.square(output - label), axis=-1))
    ),
    metrics_fns=tff.learning.metrics.create_functional_metric_fns(
      lambda: collections.OrderedDict(mae=tf.keras.metrics.MeanAbsoluteError())
    ),
    input_spec=SPEC,
  )


def parts(w):
  """The variables of a vector."""
  return w[:KERNEL].reshape([INPUTS, OUTPUTS]), w[KERNEL:]


def gradient(w, batch):
  x, y = batch
  kernel, bias = parts(w)
  residual = x @ kernel + bias - y
  return np.concatenate(
    [(x.T @ residual).ravel() / len(x), residual.mean(axis=0)]
  )


def num_examples(client):
  return sum(len(x) for x, _ in client)


def average(values, cohort, weight=num_examples):
  """The mean of what clients have, weighed as their updates."""
  weights = [weight(CLIENTS[i]) for i in cohort]
  return np.average(values, axis=0, weights=weights)


def sgd(w, client, rate, *, momentum=0.0, mu=0.0, shares=()):
  """Where a client ends; `shares` are those of its rate in a warm-up."""
  start, m = w, 0.0
  for k, batch in enumerate(client):
    share = shares[k] if k < len(shares) else 1.0
    m = momentum * m + gradient(w, batch) + mu * (w - start)
    w = w - share * rate * m
  return w


def fedavg(rounds, rate, **more):
  """The weights after each round, a round being its cohort."""
  x, path = START, []
  for cohort in rounds:
    x = average([sgd(x, CLIENTS[i], rate, **more) for i in cohort], cohort)
    path.append(x)
  return path


def dataset(client):
  sizes = [len(x) for x, _ in client]

  def batches():
    for x, y in client:
      yield collections.OrderedDict(x=x, y=y)

  if len(set(sizes)) == 1:
    whole = collections.OrderedDict(
      x=np.stack([x for x, _ in client]), y=np.stack([y for _, y in client])
    )
    return tf.data.Dataset.from_tensor_slices(whole).map(_of_spec)
  return tf.data.Dataset.from_generator(batches, output_signature=SPEC)


def _of_spec(batch):
  return tf.nest.map_structure(
    lambda t, spec: tf.ensure_shape(tf.reshape(t, tf.shape(t)), spec.shape),
    batch,
    SPEC,
  )


def weights_of(process, state):
  trainable = process.get_model_weights(state).trainable
  return np.concatenate([np.ravel(w) for w in trainable])


def run(process, rounds, clients=None):
  """Runs rounds, each given by its cohort.

  Returns:
    The weights after each, the last state, and what each client keeps.
  """
  clients = CLIENTS if clients is None else clients
  data = [dataset(client) for client in clients]
  state, memories, path = process.initialize(), {}, []
  for cohort in rounds:
    chosen = [data[i] for i in cohort]
    if algorithms.is_stateful(process):
      fresh = process.initialize_client_state()
      own = [memories.get(i, fresh) for i in cohort]
      output = process.next(state, own, chosen)
      memories.update(zip(cohort, output.client_states, strict=True))
    else:
      output = process.next(state, chosen)
    state = output.state
    path.append(weights_of(process, state))
  return path, state, memories


def keeps(process, name):
  """Asserts that a client that is left out keeps what it has under a name.

  Returns:
    The server's state before and after its round, in which nobody else was.
  """
  fresh = process.initialize_client_state()
  first = process.next(process.initialize(), [fresh], [dataset(CLIENTS[0])])
  second = process.next(first.state, first.client_states, [dataset(BAD)])
  for before, after in zip(
    first.client_states[0][name], second.client_states[0][name]
  ):
    assert np.any(before), name
    np.testing.assert_array_equal(before, after)
  return first.state, second.state


def close(path, expected, rtol=1e-4):
  np.testing.assert_allclose(path, expected, rtol=rtol, atol=1e-6)


def differ(path, other, relative=1e-3):
  """Whether two paths differ by more than rounding could."""
  return not np.allclose(path, other, rtol=relative, atol=1e-5)
