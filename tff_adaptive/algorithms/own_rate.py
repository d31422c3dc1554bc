"""Server step sizes computed from statistics."""

from __future__ import annotations

import collections

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.processes import exchange


class OwnRate(exchange.Exchange):
  """An exchange whose server steps with `rate`, one of its statistics.

  The step is `rate` times the mean update. Statistics are not broadcast.
  """

  sees_update = True

  def broadcast(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    return collections.OrderedDict()

  def step(self, server: exchange.Server) -> structures.FlatWeights:
    return tuple(
      tf.cast(server.statistics['rate'], u.dtype) * u for u in server.update
    )
