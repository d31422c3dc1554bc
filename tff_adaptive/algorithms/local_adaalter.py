"""Local-AdaAlter: an accumulator averaged every round."""

import collections
from typing import Any
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class Accumulator(exchange.Exchange):
  """The server averages A^2 with the model's weights and sends it as B^2."""

  def __init__(self, start: float):
    self._start = start

  def initialize(self, specs: Any) -> Any:
    return collections.OrderedDict(accumulator=tree.zeros(specs, self._start))

  def begin(
    self, statistics: Any, optimizer_state: Any, start: Any, survey: Any
  ) -> Any:
    received = statistics['accumulator']
    return collections.OrderedDict(
      optimizer_state, received=received, accumulated=received
    )

  def report(self, local: exchange.Local) -> exchange.Report:
    return exchange.report(
      weighted=collections.OrderedDict(
        accumulator=local.optimizer_state['accumulated']
      )
    )

  def merge(self, statistics: Any, cohort: exchange.Cohort) -> Any:
    return cohort.report.weighted


@parameters.checked
def pieces(
  client_optimizer: Any,
  server_optimizer: Any,
  *,
  initial_accumulator: Optional[parameters.NonNegative] = None,
) -> dict[str, Any]:
  """What Local-AdaAlter exchanges.

  Args:
    client_optimizer: AdaAlter.
    server_optimizer: Averages the models.
    initial_accumulator: b0^2, where A^2 starts; client_adaptivity^2 unless
      given.
  """
  del server_optimizer
  start = client_optimizer.epsilon**2
  if initial_accumulator is not None:
    start = initial_accumulator
  return {'exchange': Accumulator(start)}
