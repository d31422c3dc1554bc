"""Curves of runs: validation losses, and what each had cost by then.

Costs come from metrics.csv. A synchronous round of phones lasts as long as the
slowest client that counts, which a run with --client_devices=cross_device has
measured; silos are equally fast, so that theirs follows from the client with
most steps. Evaluation is free. Imports no TensorFlow.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import workloads
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import devices
from tff_adaptive.lab.training.participation import system_model

# What a run can be charged for, the headline first.
MEASURES = (*workloads.PROFILES, 'rounds', 'gradients', 'bytes')
_LOSS = 'validation/loss'


@dataclasses.dataclass(frozen=True)
class Record:
  """What an entry keeps of a run.

  Attributes:
    status: How it ended, as in a sweep's table.
    untrained: The loss before the first round, if that was evaluated.
    losses: At each evaluation, `None` where not finite; one more `None` at the
      end of a run that ended between two.
    costs: By measure, until each of these.
  """

  status: str
  untrained: Optional[float]
  losses: Sequence[Optional[float]]
  costs: Mapping[str, Sequence[float]]

  @property
  def began(self) -> bool:
    """Whether there is a loss; there is none if the method cannot train the
    workload."""
    return self.untrained is not None or bool(self.losses)

  @property
  def final(self) -> float:
    """The last loss; infinite if the run diverged or failed."""
    last = self.losses[-1] if self.losses else None
    return math.inf if self.status != 'finished' or last is None else last

  def curve(self, measure: str) -> scoring.Curve:
    """Returns the curve by a measure of cost."""
    losses = [math.nan if v is None else v for v in self.losses] or [math.nan]
    costs = self.costs[measure] or [0.0]
    return scoring.Curve(np.array(costs, float), np.array(losses, float))


def of_rows(
  rows: Sequence[Mapping[str, float]], gradients: int, status: str
) -> Record:
  """Reads a run's rows.

  Args:
    rows: Rows of metrics.csv, without empty cells.
    gradients: Evaluations of the gradient for each local step.
    status: How the run ended.
  """
  silos = devices.KINDS['cross_silo']
  spent = dict.fromkeys(MEASURES, 0.0)
  losses: list[Optional[float]] = []
  costs: dict[str, list[float]] = {measure: [] for measure in MEASURES}
  for row in rows[1:]:
    sizes = [int(row.get(name, 0)) for name in ('bytes_down', 'bytes_up')]
    steps = row.get(availability.MOST_WORK, 0.0)
    spent['cross_device'] = row.get(metric_names.VIRTUAL_SECONDS, 0.0)
    spent['cross_silo'] += (
      silos.seconds_per_step * gradients * steps
      + system_model.seconds_on_the_way(
        silos.link.latency, sizes, [silos.link.mbit_down, silos.link.mbit_up]
      )
    )
    spent['rounds'] = row['round']
    spent['gradients'] += gradients * row.get('clients/steps', 0.0)
    spent['bytes'] += sum(sizes) * row.get('clients/count', 0.0)
    if _LOSS in row or row is rows[-1]:
      losses.append(_finite(row.get(_LOSS, math.nan)))
      for measure, known in costs.items():
        known.append(float(f'{spent[measure]:.9g}'))
  untrained = _finite(rows[0].get(_LOSS, math.nan)) if rows else None
  return Record(status, untrained, losses, costs)


def _finite(value: float) -> Optional[float]:
  return value if math.isfinite(value) else None


def plain(records: Mapping[str, Record]) -> dict[str, Any]:
  """Returns a JSON-serializable form that `read` accepts, equal costs once."""
  costs: list[Any] = []
  runs: dict[str, Any] = {}
  for name, record in records.items():
    found = {k: list(v) for k, v in record.costs.items()}
    if found not in costs:
      costs.append(found)
    runs[name] = {
      'status': record.status,
      'untrained': record.untrained,
      'costs': costs.index(found),
      'losses': list(record.losses),
    }
  return {'costs': costs, 'runs': runs}


def read(found: Mapping[str, Any]) -> dict[str, Record]:
  """Builds runs from the form that `plain` returns."""
  return {
    name: Record(
      run['status'],
      run['untrained'],
      run['losses'],
      found['costs'][run['costs']],
    )
    for name, run in found['runs'].items()
  }
