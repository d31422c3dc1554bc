"""A round of FedAdam as one writes it in TensorFlow, for the benchmarks.

No class, no file, no flag: clients in threads, a compiled function for a
client's steps with the loss and accuracy of its batches, their mean and Adam.
"""

import concurrent.futures
import os

import keras_models
import numpy as np
import tensorflow as tf
import workload


def make(options):
  cores = len(os.sched_getaffinity(0))
  loss_fn, shared = keras_models.loss(options), keras_models.network(options)
  # A model of its own for each client that trains at the same time.
  models = [keras_models.network(options) for _ in range(cores)]
  data = [
    tuple(map(tf.constant, workload.arrays(options, client)))
    for client in workload.population(options)
  ]
  weights = [tf.constant(w) for w in workload.start_weights(options)]
  moments = [[tf.zeros_like(w) for w in weights] for _ in range(2)]

  def train_with(model):
    variables = model.trainable_variables

    @tf.function
    def train(weights, x, y, order):
      x, y = tf.gather(x, order), tf.gather(y, order)
      for variable, weight in zip(variables, weights):
        variable.assign(weight)
      total = right = 0.0
      for start in tf.range(0, tf.shape(x)[0], options.batch_size):
        batch = x[start : start + options.batch_size]
        labels = y[start : start + options.batch_size]
        with tf.GradientTape() as tape:
          outputs = model(batch, training=True)
          loss = loss_fn(labels, outputs)
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients):
          variable.assign_sub(workload.CLIENT_RATE * gradient)
        count = tf.cast(tf.shape(batch)[0], tf.float32)
        total += loss * count
        if options.model == 'tag':
          found = tf.keras.metrics.binary_accuracy(labels, outputs, 0.0)
        else:
          found = tf.keras.metrics.sparse_categorical_accuracy(labels, outputs)
        right += tf.reduce_mean(tf.cast(found, tf.float32)) * count
      delta = [w - v for w, v in zip(weights, variables)]
      return delta, total, right, tf.cast(tf.shape(x)[0], tf.float32)

    return train

  @tf.function
  def step(weights, moments, trained, number):
    total = sum(count for *_, count in trained)
    gradient = [
      sum(delta[i] * count for delta, *_, count in trained) / total
      for i in range(len(weights))
    ]
    beta = 0.9, workload.SERVER_BETA_2
    m, v = (
      [b * old + (1 - b) * g**p for old, g in zip(moment, gradient)]
      for p, b, moment in zip((1, 2), beta, moments)
    )
    rate = workload.SERVER_RATE * tf.sqrt(1 - beta[1] ** number)
    rate /= 1 - beta[0] ** number
    weights = [
      w - rate * a / (tf.sqrt(b) + workload.SERVER_EPSILON)
      for w, a, b in zip(weights, m, v)
    ]
    loss = sum(one[1] for one in trained) / total
    return weights, [m, v], loss, sum(one[2] for one in trained) / total

  train = [train_with(model) for model in models]
  threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(cores)]
  draw = np.random.default_rng(3)
  number = 0

  def run():
    nonlocal weights, moments, number
    number += 1
    found = []
    for place, client in enumerate(workload.cohort(options, number)):
      order = tf.constant(draw.permutation(options.examples), tf.int32)
      thread = place % cores
      found.append(
        threads[thread].submit(train[thread], weights, *data[client], order)
      )
    trained = [one.result() for one in found]
    weights, moments, loss, accuracy = step(
      weights, moments, trained, tf.constant(float(number))
    )
    return float(loss), float(accuracy)

  def mean_loss():
    shared.set_weights([w.numpy() for w in weights])
    losses = [loss_fn(y, shared(x, training=False)) for x, y in data]
    return float(np.mean(losses))

  return run, mean_loss


if __name__ == '__main__':
  workload.serve(workload.parse(), make)
