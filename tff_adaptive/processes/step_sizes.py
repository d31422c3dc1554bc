"""What is measured of the step sizes that clients chose for themselves.

A client adds up its own steps (`start`, `add`); the cohort's are summed and
maximised (`sums`, `maxima`); the server reads its figures off these
(`figures`).
"""

import collections
from typing import Any

import tensorflow as tf

from tff_adaptive.optimizers import protocol

_FAR = tf.float32.max


def start() -> collections.OrderedDict[str, tf.Tensor]:
  """A client that has done no step."""
  return collections.OrderedDict(
    count=tf.constant(0.0),
    # Sums of squares cancel where all steps are nearly alike; a running mean
    # with squared deviations (Welford) does not.
    mean=tf.constant(0.0),
    deviation=tf.constant(0.0),
    low=tf.constant(_FAR),
    high=tf.constant(-_FAR),
    at_bound=tf.constant(0.0),
  )


def add(totals: Any, step: protocol.StepSize) -> Any:
  """Counts one step."""
  value = tf.cast(step.value, tf.float32)
  count = totals['count'] + 1
  difference = value - totals['mean']
  mean = totals['mean'] + difference / count
  return collections.OrderedDict(
    count=count,
    mean=mean,
    deviation=totals['deviation'] + difference * (value - mean),
    low=tf.minimum(totals['low'], value),
    high=tf.maximum(totals['high'], value),
    at_bound=totals['at_bound'] + tf.cast(step.at_bound, tf.float32),
  )


def sums(totals: Any, takes_part: tf.Tensor) -> Any:
  """What a client adds to the cohort's sums; nothing if it is left out."""
  within = tf.sqrt(tf.math.divide_no_nan(totals['deviation'], totals['count']))
  values = collections.OrderedDict(
    steps=totals['count'],
    total=totals['mean'] * totals['count'],
    at_bound=totals['at_bound'],
    clients=tf.constant(1.0),
    means=totals['mean'],
    squared_means=tf.square(totals['mean']),
    within=within,
  )
  return tf.nest.map_structure(
    lambda v: tf.where(takes_part, v, tf.zeros_like(v)), values
  )


def maxima(totals: Any, takes_part: tf.Tensor) -> Any:
  """What a client contributes to the cohort's maxima."""
  return collections.OrderedDict(
    high=tf.where(takes_part, totals['high'], -_FAR),
    negative_low=tf.where(takes_part, -totals['low'], -_FAR),
  )


def figures(summed: Any, maximised: Any) -> Any:
  """The cohort's figures, float32 scalars, NaN if no client took a step.

  `mean`, `min`, `max` are over all steps of all clients; `between_clients` is
  the standard deviation over clients of their mean steps, `within_clients` the
  mean over clients of the standard deviation of their steps; `at_bound` the
  share of steps that an upper bound decided.
  """
  clients = summed['clients']
  mean_of_means = summed['means'] / clients
  between = tf.maximum(
    summed['squared_means'] / clients - tf.square(mean_of_means), 0.0
  )
  none = tf.equal(clients, 0)
  values = collections.OrderedDict(
    mean=summed['total'] / summed['steps'],
    min=-maximised['negative_low'],
    max=maximised['high'],
    between_clients=tf.sqrt(between),
    within_clients=summed['within'] / clients,
    at_bound=summed['at_bound'] / summed['steps'],
  )
  return tf.nest.map_structure(
    lambda v: tf.where(none, float('nan'), v), values
  )
