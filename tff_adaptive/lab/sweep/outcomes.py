"""The rows of a sweep's table, one for each run."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.training.loop import early_stopping
from tff_adaptive.lazy import pandas as pd

# The status of a run.
WAITING = 'waiting'
RUNNING = 'running'
FINISHED, DIVERGED = sweeps.FINISHED, sweeps.DIVERGED
FAILED, PRUNED = sweeps.FAILED, sweeps.PRUNED
# Final statuses.
OVER = (FINISHED, DIVERGED, FAILED, PRUNED)
# Columns of numbers in the sweep's table.
MEASURES = (
  'train/loss',
  'train/metric',
  'validation/loss',
  'validation/metric',
  'best/metric',
  'recent/metric',
  # In a task without a metric.
  'best/loss',
  'recent/loss',
  'last/loss',
  'test/loss',
  'test/metric',
  'megabytes',
  'first_seconds',
  'seconds',
  # Of runs with virtual time: in all, and until --target_metric.
  'virtual_seconds',
  'virtual_seconds_to_target',
)


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The end of a run.

  Attributes:
    status: One of `OVER`, or `WAITING` if the run was interrupted.
    reason: The reason, unless the run is finished.
    rounds: The last round that has a row.
    metric: The task's first metric, if it has one.
    measures: Summary figures of the run; see `scores.measures`.
    rises: Whether a higher metric is better; `None` if it is not known.
  """

  status: str = WAITING
  reason: Optional[str] = None
  rounds: int = 0
  metric: Optional[str] = None
  measures: Mapping[str, float] = dataclasses.field(default_factory=dict)
  rises: Optional[bool] = None

  def score(self, rule: scores.SelectionRule) -> float:
    """Scores the run; lower is better, and infinite unless it finished."""
    return scores.score(
      rule,
      self.measures,
      self.metric,
      rises=self.rises,
      finished=self.status == FINISHED,
    )


@dataclasses.dataclass(frozen=True)
class Row:
  """A run in the sweep's table.

  Attributes:
    name: The name of the point.
    flags: The flags that distinguish the point from others, as text.
    settings: All settings that affect the run's results.
    status: One of `WAITING`, `RUNNING` and `OVER`.
    outcome: The outcome last reported by its process.
    repeat: Whether it repeats a configuration on another seed.
    attempt: The number of times that it was requeued.
    trial: Optuna's trial.
  """

  name: str
  flags: Mapping[str, str]
  settings: Mapping[str, Any]
  status: str
  outcome: Outcome
  repeat: bool = False
  attempt: int = 0
  trial: Any = dataclasses.field(default=None, compare=False, repr=False)


def measures_of(
  run: runs.Run, target_metric: Optional[str] = None
) -> dict[str, float]:
  """Summarizes a run: `scores.measures`, and its virtual time to a target.

  Args:
    run: The run.
    target_metric: The value of --target_metric, if given.
  """
  measures = run.measures()
  reached = early_stopping.first_at_target(
    run.rows, target_metric, run.directions
  )
  if 'virtual_seconds' in measures and reached is not None:
    measures['virtual_seconds_to_target'] = reached.get(
      metric_names.VIRTUAL_SECONDS, 0.0
    )
  return measures


def write_table(folder: pathlib.Path, rows: Sequence[Row]) -> None:
  """Writes results.csv: one row per run, one column per flag of the sweep."""
  measures = [
    name
    for name in MEASURES
    if not name.startswith(('virtual', 'best/loss', 'recent/loss'))
    or any(name in row.outcome.measures for row in rows)
  ]
  rest = ['status', 'reason', 'rounds', 'metric', *measures]
  table = pd.DataFrame(
    {
      'name': row.name,
      # A flag with the name of another column keeps its dashes.
      **{f'--{k}' if k in rest else k: v for k, v in row.flags.items()},
      'status': row.status,
      **{k: getattr(row.outcome, k) for k in rest[1:4]},
      **row.outcome.measures,
    }
    for row in rows
  )
  flags = [c for c in table if c not in ('name', *rest, *MEASURES)]
  sweeps.write_table(folder, table.reindex(columns=['name', *flags, *rest]))
