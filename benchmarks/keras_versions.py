"""Seconds of a round with the same network of Keras 2 and of Keras 3.

  python benchmarks/keras_versions.py --rounds=20

Both train from the same weights on the same made-up batches, and their rounds
take turns. Printed are medians, their ratio, and the largest difference of a
weight after all rounds.
"""

import argparse
import collections
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras
import numpy as np
import tensorflow as tf

from tff_adaptive import algorithms
from tff_adaptive import runtime


def cnn(k):
  """The CNN of EMNIST characters, with dropout."""
  layers = k.layers
  return (
    (28, 28, 1),
    62,
    [
      layers.InputLayer((28, 28, 1)),
      layers.Conv2D(32, 3, activation='relu'),
      layers.Conv2D(64, 3, activation='relu'),
      layers.MaxPooling2D(),
      layers.Dropout(0.25),
      layers.Flatten(),
      layers.Dense(128, activation='relu'),
      layers.Dropout(0.5),
      layers.Dense(62),
    ],
  )


def dense(k):
  """Two hidden layers of 200."""
  layers = k.layers
  return (
    (784,),
    10,
    [
      layers.InputLayer((784,)),
      layers.Dense(200, activation='relu'),
      layers.Dense(200, activation='relu'),
      layers.Dense(10),
    ],
  )


def logistic(k):
  """No hidden layer: what a step costs beside arithmetic."""
  return (784,), 10, [k.layers.InputLayer((784,)), k.layers.Dense(10)]


def lstm(k):
  """A recurrent layer over 40 steps."""
  layers = k.layers
  return (
    (40, 16),
    10,
    [
      layers.InputLayer((40, 16)),
      layers.LSTM(64),
      layers.Dense(10),
    ],
  )


MODELS = {f.__name__: f for f in (cnn, dense, logistic, lstm)}


def contender(k, make, method):
  """Builds a process around a network of one Keras."""
  shape, _, _ = make(k)
  spec = collections.OrderedDict(
    x=tf.TensorSpec([None, *shape]), y=tf.TensorSpec([None], tf.int32)
  )
  return algorithms.build(
    method,
    lambda: k.Sequential(make(k)[2]),
    loss=k.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[k.metrics.SparseCategoricalAccuracy],
    input_spec=spec,
  )


def client(seed, shape, classes, batches, size):
  rng = np.random.default_rng(seed)
  count = batches * size
  data = collections.OrderedDict(
    x=rng.normal(size=[count, *shape]).astype(np.float32),
    y=rng.integers(classes, size=count).astype(np.int32),
  )
  return tf.data.Dataset.from_tensor_slices(data).batch(size)


def measure(name, method, rounds, clients):
  """Returns median seconds by Keras, and how far the weights end apart."""
  make = MODELS[name]
  shape, classes, _ = make(keras)
  data = [client(seed, shape, classes, 10, 20) for seed in range(clients)]
  processes = {
    kind: contender(k, make, method)
    for kind, k in (('keras_2', tf.keras), ('keras_3', keras))
  }
  first = processes['keras_3']
  start = first.get_model_weights(first.initialize())
  states = {
    kind: p.set_model_weights(p.initialize(), start)
    for kind, p in processes.items()
  }
  seconds = collections.defaultdict(list)
  for _ in range(rounds + 2):
    for kind, process in processes.items():
      before = time.perf_counter()
      states[kind] = process.next(states[kind], data).state
      seconds[kind].append(time.perf_counter() - before)
  ends = [
    tf.nest.flatten(p.get_model_weights(states[kind]).trainable)
    for kind, p in processes.items()
  ]
  apart = max(np.abs(a - b).max() for a, b in zip(*ends))
  return {k: statistics.median(v[2:]) for k, v in seconds.items()}, apart


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--models', default=','.join(MODELS))
  parser.add_argument('--method', default='fedadam')
  parser.add_argument('--rounds', type=int, default=20)
  parser.add_argument('--clients', type=int, default=10)
  given = parser.parse_args()
  runtime.set_in_process_context()
  print('| model | Keras 2, ms | Keras 3, ms | ratio | apart |')
  print('|---|---|---|---|---|')
  for name in given.models.split(','):
    found, apart = measure(name, given.method, given.rounds, given.clients)
    two, three = found['keras_2'], found['keras_3']
    print(
      f'| {name} | {1000 * two:.0f} | {1000 * three:.0f} | '
      f'{three / two:.2f} | {apart:.0e} |',
      flush=True,
    )


if __name__ == '__main__':
  main()
