"""FedDecSPS: decreasing stochastic Polyak steps."""

import collections
from typing import Any
from typing import Literal

import tensorflow as tf

from tff_adaptive import parameters
from tff_adaptive.processes import exchange


class CountSteps(exchange.Exchange):
  """The server counts local steps, so that stateless clients can go on.

  A round advances the count by the most steps that one of its clients did; all
  clients of a round start from the same count.
  """

  def initialize(self, specs: Any) -> Any:
    return collections.OrderedDict(count=tf.constant(0, tf.int32))

  def begin(
    self, statistics: Any, optimizer_state: Any, start: Any, survey: Any
  ) -> Any:
    return collections.OrderedDict(optimizer_state, count=statistics['count'])

  def report(self, local: exchange.Local) -> exchange.Report:
    return exchange.report(
      maximum=collections.OrderedDict(num_steps=local.num_steps)
    )

  def merge(self, statistics: Any, cohort: exchange.Cohort) -> Any:
    return collections.OrderedDict(
      count=statistics['count'] + cohort.report.maximum['num_steps']
    )


@parameters.checked
def pieces(
  client_optimizer: Any,
  server_optimizer: Any,
  *,
  count: Literal['training', 'round'] = 'training',
) -> dict[str, Any]:
  """What FedDecSPS adds to its clients.

  Args:
    client_optimizer: Decreasing Polyak steps.
    server_optimizer: Any.
    count: Whether the k of c_k counts local steps over the whole training, or
      anew in every round.
  """
  del client_optimizer, server_optimizer
  return {'exchange': CountSteps()} if count == 'training' else {}
