"""Clients of one shape: one after another against all in one computation.

  python benchmarks/together.py [--clients=10] [--steps=5] [--rounds=20]

For models of dense layers, a round of plain TensorFlow with nothing federated
in it: every client takes its SGD steps from the same weights, and the updates
are averaged. `apart` calls a client's function once a client, in as many
threads as there are cores, as the in-process runtime does; `together` is the
same function under `tf.vectorized_map`. It is the most that training clients
together could save, since what a real client does beside it (metrics, an
optimizer with state, rows to cut) comes on top. Rounds of both take turns;
medians, and the greatest difference of the averaged updates.
"""

import argparse
import concurrent.futures
import itertools
import os
import statistics
import time

import tensorflow as tf

_RATE = 0.1
# Widths of the layers and the batch size.
_MODELS = {
  'logistic': ((784, 62), 20),
  '2nn': ((784, 200, 200, 62), 20),
  'autoencoder': ((784, 1000, 500, 250, 30, 250, 500, 1000, 784), 20),
  'tag': ((10_000, 500), 20),
}


def _weights(widths):
  random = tf.random.Generator.from_seed(1)
  return [
    random.normal(shape, stddev=0.05)
    for before, after in itertools.pairwise(widths)
    for shape in ([before, after], [after])
  ]


def _loss(weights, x, y):
  for place in range(0, len(weights), 2):
    x = tf.linalg.matmul(x, weights[place]) + weights[place + 1]
    if place + 2 < len(weights):
      x = tf.sigmoid(x)
  return tf.reduce_mean(tf.square(x - y))


def _client(weights, x, y):
  """Takes a step a batch; returns the update, flat."""

  def step(k, *here):
    with tf.GradientTape() as tape:
      tape.watch(here)
      loss = _loss(here, x[k], y[k])
    gradients = tape.gradient(loss, here)
    return (k + 1, *(w - _RATE * g for w, g in zip(here, gradients)))

  _, *after = tf.while_loop(
    lambda k, *_: k < tf.shape(x)[0], step, (0, *weights)
  )
  return [b - a for a, b in zip(weights, after)]


def _compare(widths, batch_size, options):
  shape = [options.clients, options.steps, batch_size]
  random = tf.random.Generator.from_seed(2)
  x = random.normal([*shape, widths[0]])
  y = random.normal([*shape, widths[-1]])
  weights = _weights(widths)
  one = tf.function(_client, autograph=False)
  stacked = tf.function(
    lambda weights, x, y: [
      tf.reduce_mean(t, 0)
      for t in tf.vectorized_map(
        lambda data: _client(weights, *data),
        (x, y),
        fallback_to_while_loop=False,
      )
    ],
    autograph=False,
  )
  mean = tf.function(
    lambda updates: [tf.add_n(t) / len(t) for t in zip(*updates)],
    autograph=False,
  )
  data = list(zip(tf.unstack(x), tf.unstack(y)))

  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

    def apart():
      return mean(list(pool.map(lambda d: one(weights, *d), data)))

    def together():
      return stacked(weights, x, y)

    both = {'apart': apart, 'together': together}
    times = {name: [] for name in both}
    found = {}
    for number in range(options.rounds + 2):
      for name, run in both.items():
        begin = time.perf_counter()
        found[name] = [t.numpy() for t in run()]
        if number > 1:
          times[name].append(time.perf_counter() - begin)
  difference = max(
    float(abs(a - b).max())
    for a, b in zip(found['apart'], found['together'], strict=True)
  )
  return [1e3 * statistics.median(t) for t in times.values()], difference


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--clients', type=int, default=10)
  parser.add_argument('--steps', type=int, default=5)
  parser.add_argument('--rounds', type=int, default=20)
  options = parser.parse_args()
  print(f'{"model":14}{"apart ms":>10}{"together ms":>13}{"ratio":>7}  differs')
  for name, (widths, batch_size) in _MODELS.items():
    (apart, together), difference = _compare(widths, batch_size, options)
    print(
      f'{name:14}{apart:10.1f}{together:13.1f}{apart / together:7.2f}  '
      f'{difference:.1g}',
      flush=True,
    )


if __name__ == '__main__':
  main()
