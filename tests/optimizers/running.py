"""Stepping optimizers by hand."""

import numpy as np
import tensorflow as tf

from tff_adaptive.optimizers import protocol

from . import rules


def start():
  """The start weights, split over two tensors of a nested structure."""
  return (
    tf.constant(rules.START[:2], tf.float32),
    {'b': tf.constant(rules.START[2:], tf.float32)},
  )


def split(vector):
  vector = np.asarray(vector, np.float32)
  return (tf.constant(vector[:2]), {'b': tf.constant(vector[2:])})


def join(weights):
  return np.concatenate([weights[0].numpy(), weights[1]['b'].numpy()])


def specs(weights):
  return tf.nest.map_structure(
    lambda w: tf.TensorSpec(w.shape, w.dtype), weights
  )


def run_server(optimizer, deltas):
  """Hands -Delta to the optimizer each round; returns the path of x."""
  weights = start()
  state = optimizer.initialize(specs(weights))
  path = []
  for delta in deltas:
    state, weights = optimizer.next(state, weights, split(-np.asarray(delta)))
    path.append(join(weights))
  return path


def run_client(optimizer, gradients, losses=None, sizes=None):
  """Steps over batches with gradients and losses that depend on x."""
  weights = start()
  state = optimizer.initialize(specs(weights))
  path, steps = [], []
  for k, gradient in enumerate(gradients):
    point = None
    if isinstance(optimizer, protocol.LocalOptimizer):
      point = optimizer.gradient_point(state, weights, ())
    x = join(weights if point is None else point)
    batch = protocol.Batch(
      loss=tf.constant(losses[k](x) if losses else 0.0, tf.float32),
      gradient_fn=lambda w, f=gradient: split(f(join(w))),
      size=tf.constant(sizes[k] if sizes else 1, tf.int64),
      client_size=tf.constant(sum(sizes) if sizes else 1, tf.int64),
    )
    state, weights = protocol.take_step(
      optimizer, state, weights, split(gradient(x)), batch
    )
    path.append(join(weights))
    step = None
    if isinstance(optimizer, protocol.LocalOptimizer):
      step = optimizer.step_size(state)
    if step is not None:
      steps.append((float(step.value), bool(step.at_bound)))
  return path, steps


def differs(path, other, relative=1e-3):
  """Whether two paths differ by more than rounding could."""
  return not np.allclose(path, other, rtol=relative, atol=relative)
