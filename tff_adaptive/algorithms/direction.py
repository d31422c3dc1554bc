"""The global update direction of the last round, sent with the model.

The direction is minus the mean update, divided by the mean of eta K_i, the sums
of the clients' local learning rates. It has the scale of a gradient, whatever
the number of steps, the schedule and the warm-up.
"""

from __future__ import annotations

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.processes import exchange


def path(client: exchange.Client, learning_rate: tf.Tensor) -> tf.Tensor:
  """Computes the sum of a client's local learning rates, float32 scalar."""
  return learning_rate * client.full_steps


def of_round(
  server: exchange.Server, mean_path: tf.Tensor
) -> structures.FlatWeights:
  """Computes the direction of a round, with the sign of a gradient; flat."""
  return tuple(
    tf.math.divide_no_nan(-u, tf.cast(mean_path, u.dtype))
    for u in server.update
  )
