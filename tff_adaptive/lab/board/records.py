"""Records of runs: validation losses, and what each had cost by then.

Costs come from metrics.csv. A synchronous round of phones lasts as long as the
slowest client that counts, which a run with --client_devices=cross_device has
measured; silos are equally fast, so that theirs follows from the client with
most steps. Evaluation is free. Imports no TensorFlow.
"""

import dataclasses
import io
import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import workloads
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import system_model

# What a run can be charged for, the headline first.
MEASURES = (*workloads.PROFILES, 'rounds', 'gradients', 'bytes')
_LOSS = 'validation/loss'
# The part of a run's evaluations whose mean selects a setting.
_LAST = 0.1


@dataclasses.dataclass(frozen=True)
class Record:
  """What an entry keeps of a run.

  Attributes:
    status: How it ended, as in a sweep's table.
    untrained: The loss before the first round; NaN if that was not evaluated.
    losses: At each evaluation, [evaluations]; NaN where not finite. One more
      at the end of a run that ended between two evaluations. Of tuning runs
      only the criterion.
    costs: Until each evaluation by each of `MEASURES`, [evaluations, measures];
      of tuning runs, which are not charged, [0, measures].

  All numbers but the criterion are `rounded`.
  """

  status: str
  untrained: float
  losses: np.ndarray
  costs: np.ndarray

  @property
  def began(self) -> bool:
    """Whether there is a loss; there is none if the method cannot train the
    workload."""
    return not math.isnan(self.untrained) or len(self.losses) > 0

  @property
  def final(self) -> float:
    """The last loss; infinite if the run diverged or failed."""
    return self._mean_of_last(1)

  @property
  def criterion(self) -> float:
    """What selects a setting: the mean loss of the last tenth of evaluations;
    infinite if the run diverged or failed."""
    return self._mean_of_last(max(1, round(_LAST * len(self.losses))))

  def _mean_of_last(self, count: int) -> float:
    mean = float(self.losses[-count:].mean()) if len(self.losses) else math.nan
    return (
      mean if self.status == 'finished' and math.isfinite(mean) else math.inf
    )

  def of_tuning(self) -> 'Record':
    """Returns what is kept of a tuning run."""
    return dataclasses.replace(
      self,
      # In full, as it selects.
      losses=np.array([self.criterion] if len(self.losses) else [], np.float32),
      costs=self.costs[:0],
    )


def joined(records: Sequence[Record], measure: str) -> scoring.Runs:
  """Joins runs by a measure of cost."""
  column = MEASURES.index(measure)
  return scoring.joined([(r.costs[:, column], r.losses) for r in records])


def rounded(values: Any) -> np.ndarray:
  """Rounds to float32 with 10 bits of mantissa, three digits.

  Runs on other seeds differ more, and a file of such numbers is half as large.
  """
  bits = np.asarray(values, np.float32).view(np.uint32)
  kept = (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
  found = np.where(np.isfinite(bits.view(np.float32)), kept, bits)
  return found.view(np.float32)


def of_rows(
  rows: Sequence[Mapping[str, float]], gradients: int, status: str
) -> Record:
  """Reads a run's rows.

  Args:
    rows: Rows of metrics.csv, without empty cells.
    gradients: Evaluations of the gradient for each local step.
    status: How the run ended.
  """
  silos = system_model.KINDS['cross_silo']
  spent = dict.fromkeys(MEASURES, 0.0)
  losses: list[float] = []
  costs: list[list[float]] = []
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
      losses.append(_finite(row.get(_LOSS)))
      costs.append([*spent.values()])
  return Record(
    status,
    float(rounded(_finite(rows[0].get(_LOSS) if rows else None))),
    rounded(losses),
    rounded(costs).reshape(-1, len(MEASURES)),
  )


def _finite(value: Optional[float]) -> float:
  return value if value is not None and math.isfinite(value) else math.nan


def write(
  path: pathlib.Path, about: Any, records: Mapping[str, Record]
) -> None:
  """Writes records and what is to be known about them, JSON, to a file."""
  runs = records.values()
  packed = io.BytesIO()
  np.savez_compressed(
    packed,
    about=np.array(json.dumps(about)),
    names=np.array(list(records)),
    status=np.array([r.status for r in runs]),
    untrained=np.array([r.untrained for r in runs], np.float32),
    sizes=np.array([(r.losses.size, r.costs.size) for r in runs]),
    losses=_planes(r.losses for r in runs),
    costs=_planes(r.costs.T.ravel() for r in runs),
  )
  files.make_folder(path.parent)
  files.write_atomically(path, packed.getvalue())


def _planes(arrays: Iterable[np.ndarray]) -> np.ndarray:
  """Joins float32 arrays as four rows of bytes, which compress better."""
  planes = np.concatenate([*arrays]).view(np.uint8).reshape(-1, 4).T
  return np.ascontiguousarray(planes)  # Else NumPy writes them as they were.


def read(path: pathlib.Path) -> tuple[Any, dict[str, Record]]:
  """Reads what `write` wrote.

  Raises:
    Exception: If it is something else, or is damaged: almost any, of NumPy and
      the like.
  """
  with np.load(io.BytesIO(files.read(path)), allow_pickle=False) as found:
    about = json.loads(str(found['about']))
    if 'sizes' not in found:
      raise ValueError('it has no runs in the form of now')
    columns = [found[name] for name in ('names', 'status', 'untrained')]
    for name, sizes in zip(('losses', 'costs'), found['sizes'].T, strict=True):
      values = np.ascontiguousarray(found[name].T).view(np.float32).ravel()
      columns.append(np.split(values, np.cumsum(sizes)[:-1]))
  return about, {
    str(name): Record(
      str(status), float(untrained), losses, costs.reshape(len(MEASURES), -1).T
    )
    for name, status, untrained, losses, costs in zip(*columns, strict=True)
  }
