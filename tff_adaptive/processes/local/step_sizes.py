"""Statistics of the step sizes that clients choose for themselves.

A client accumulates its own (`start`, `add`), the cohort's are summed and
maximized (`sums`, `maxima`), and the server computes `figures` from these. On
request every client's own figures are collected too (`record`).
"""

import collections
from typing import NamedTuple

import tensorflow as tf

from tff_adaptive import structures
from tff_adaptive.optimizers import protocol

# The columns of a client's record; see `record`.
RECORD = (
  'took_part',
  'steps',
  'mean',
  'min',
  'max',
  'last',
  'spread',
  'at_bound',
)
_FAR = tf.float32.max


class Steps(NamedTuple):
  """Statistics of a client's step sizes so far; float32 scalars.

  Attributes:
    count: Number of steps.
    mean: Mean step size.
    deviation: Sum of squared deviations from the mean.
    low: Smallest step size.
    high: Largest step size.
    last: Last step size.
    at_bound: Number of steps clipped by an upper bound.
  """

  count: tf.Tensor
  mean: tf.Tensor
  deviation: tf.Tensor
  low: tf.Tensor
  high: tf.Tensor
  last: tf.Tensor
  at_bound: tf.Tensor


class StepSums(NamedTuple):
  """Sums over clients; float32 scalars.

  Attributes:
    steps: Number of steps of all clients.
    total: Sum of step sizes.
    at_bound: Number of steps clipped by an upper bound.
    clients: Number of participating clients.
    means: Sum over clients of their mean step sizes.
    squared_means: Sum of the squares of these means.
    within: Sum over clients of the standard deviation of their step sizes.
  """

  steps: tf.Tensor
  total: tf.Tensor
  at_bound: tf.Tensor
  clients: tf.Tensor
  means: tf.Tensor
  squared_means: tf.Tensor
  within: tf.Tensor


def start() -> Steps:
  """Returns the statistics of a client before its first step."""
  return Steps(
    count=tf.constant(0.0),
    # Sums of squares cancel where all steps are nearly alike; a running mean
    # with squared deviations (Welford) does not.
    mean=tf.constant(0.0),
    deviation=tf.constant(0.0),
    low=tf.constant(_FAR),
    high=tf.constant(-_FAR),
    last=tf.constant(0.0),
    at_bound=tf.constant(0.0),
  )


def add(totals: Steps, step: protocol.StepSize) -> Steps:
  """Adds one step."""
  value = tf.cast(step.value, tf.float32)
  count = totals.count + 1
  difference = value - totals.mean
  mean = totals.mean + difference / count
  return Steps(
    count=count,
    mean=mean,
    deviation=totals.deviation + difference * (value - mean),
    low=tf.minimum(totals.low, value),
    high=tf.maximum(totals.high, value),
    last=value,
    at_bound=totals.at_bound + tf.cast(step.at_bound, tf.float32),
  )


def _spread(totals: Steps) -> tf.Tensor:
  """Computes the standard deviation of a client's step sizes; 0 without any."""
  return tf.sqrt(tf.math.divide_no_nan(totals.deviation, totals.count))


def sums(totals: Steps, takes_part: tf.Tensor) -> StepSums:
  """Computes a client's contribution to the sums; 0 for a rejected client."""
  # Where clients' means are nearly alike, float32 would cancel between them.
  mean = tf.cast(totals.mean, tf.float64)
  values = StepSums(
    steps=totals.count,
    total=totals.mean * totals.count,
    at_bound=totals.at_bound,
    clients=tf.constant(1.0),
    means=mean,
    squared_means=tf.square(mean),
    within=_spread(totals),
  )
  return tf.nest.map_structure(
    lambda v: tf.where(takes_part, v, tf.zeros_like(v)), values
  )


def maxima(
  totals: Steps, takes_part: tf.Tensor
) -> collections.OrderedDict[str, tf.Tensor]:
  """Computes a client's contribution to the cohort's maxima."""
  return collections.OrderedDict(
    high=tf.where(takes_part, totals.high, -_FAR),
    negative_low=tf.where(takes_part, -totals.low, -_FAR),
  )


def figures(
  summed: StepSums, maximised: collections.OrderedDict[str, tf.Tensor]
) -> structures.Metrics:
  """Computes the cohort's figures, float32, NaN if no client took a step.

  `mean`, `min`, `max` are over all steps of all clients; `between_clients` is
  the standard deviation over clients of their mean steps, `within_clients` the
  mean over clients of the standard deviation of their steps; `at_bound` the
  fraction of steps clipped by an upper bound.
  """
  clients = summed.clients
  count = tf.cast(clients, tf.float64)
  between = summed.squared_means / count - tf.square(summed.means / count)
  between = tf.cast(tf.maximum(between, 0.0), tf.float32)
  none = tf.equal(clients, 0)
  values = collections.OrderedDict(
    mean=summed.total / summed.steps,
    min=-maximised['negative_low'],
    max=maximised['high'],
    between_clients=tf.sqrt(between),
    within_clients=summed.within / clients,
    at_bound=summed.at_bound / summed.steps,
  )
  return tf.nest.map_structure(
    lambda v: tf.where(none, float('nan'), v), values
  )


def record(totals: Steps, takes_part: tf.Tensor) -> tf.Tensor:
  """Computes a client's own figures, float32 of the length of `RECORD`.

  `took_part` is 1, or 0 for a client without data or whose update is not
  finite; `steps` is their number; `mean`, `min`, `max`, `last` and `spread`
  (the standard deviation) are over these, and `at_bound` is the fraction
  clipped by an upper bound; all NaN without steps.
  """
  steps = totals.count
  own = tf.stack(
    [
      totals.mean,
      totals.low,
      totals.high,
      totals.last,
      _spread(totals),
      totals.at_bound / steps,
    ]
  )
  own = tf.where(tf.equal(steps, 0), float('nan'), own)
  return tf.concat([[tf.cast(takes_part, tf.float32), steps], own], axis=0)
