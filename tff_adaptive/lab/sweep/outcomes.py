"""The outcomes of a sweep's runs, read from the trials of its study."""

import dataclasses
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import optuna

from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.training.loop import ending

# The status of a run.
WAITING = 'waiting'
RUNNING = 'running'
FINISHED = sweeps.FINISHED
DIVERGED = 'diverged'
FAILED = 'failed'
PRUNED = 'pruned'
UNTRIED = 'untried'
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
  'last/loss',
  'test/loss',
  'test/metric',
  'megabytes',
  'seconds',
)
# Further columns of runs with virtual time: in all, and until --target_metric.
_OF_VIRTUAL_TIME = ('virtual_seconds', 'virtual_seconds_to_target')

Trial = optuna.trial.FrozenTrial


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The end of a run.

  Attributes:
    status: One of `OVER`, or `WAITING` if the run was interrupted.
    reason: The reason, unless the run is finished.
    rounds: The last round that has a row.
    metric: The task's first metric, if it has one.
    measures: Summary figures of the run; see `scores.measures`.
  """

  status: str
  reason: Optional[str] = None
  rounds: int = 0
  metric: Optional[str] = None
  measures: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
  """A run in the sweep's table.

  Attributes:
    name: The name of the point.
    flags: The flags that distinguish the point from others, as text.
    settings: All settings that affect the run's results.
    status: One of `WAITING`, `RUNNING`, `UNTRIED` and `OVER`.
    outcome: The outcome last reported by its process.
  """

  name: str
  flags: Mapping[str, str]
  settings: Mapping[str, Any]
  status: str
  outcome: Outcome


def newest(trials: Sequence[Trial]) -> dict[str, Trial]:
  """Returns the current trial of every run, by name.

  The current trial is the last attempt; if several processes added it, the
  first of these.
  """
  result: dict[str, Trial] = {}
  for trial in trials:
    name = trial.user_attrs['name']
    if name not in result or attempt_of(trial) > attempt_of(result[name]):
      result[name] = trial
  return result


def attempt_of(trial: Trial) -> int:
  """Returns the number of times that the run was requeued before this trial."""
  return trial.user_attrs.get('attempt', 0)


def check(trial: Trial) -> None:
  """Checks that a trial belongs to a sweep.

  Raises:
    KeyError, TypeError, ValueError: If it does not, or is damaged.
  """
  row = row_of(trial)
  texts = (row.name, row.outcome.status, *row.flags.values())
  if not all(isinstance(text, str) for text in texts):
    raise ValueError(f'trial {trial.number} does not belong to a sweep')
  if not isinstance(row.settings, dict) or not isinstance(
    row.outcome.measures, dict
  ):
    raise ValueError(f'trial {trial.number} is damaged')


def status_of(trial: Trial) -> str:
  """Returns a trial's status, one of `WAITING`, `RUNNING` and `OVER`."""
  if trial.state == optuna.trial.TrialState.RUNNING:
    return RUNNING
  status = outcome_of(trial).status
  return status if trial.state.is_finished() and status in OVER else WAITING


def outcome_of(trial: Trial) -> Outcome:
  """Returns the outcome last reported for a trial."""
  return Outcome(**trial.user_attrs.get('outcome', {'status': WAITING}))


def is_running(trial: Trial) -> bool:
  """Returns whether a process has claimed a run and not ended it."""
  return status_of(trial) == RUNNING


def row_of(trial: Trial) -> Row:
  """Converts a trial to a row of the sweep's table."""
  outcome = outcome_of(trial)
  if is_running(trial):
    outcome = dataclasses.replace(outcome, reason=None)
  return Row(
    name=trial.user_attrs['name'],
    flags=trial.user_attrs['flags'],
    settings=trial.user_attrs['settings'],
    status=status_of(trial),
    outcome=outcome,
  )


def measures_of(
  run: runs.Run, target_metric: Optional[str] = None
) -> dict[str, float]:
  """Summarizes a run: `scores.measures`, and its virtual time to a target.

  Args:
    run: The run.
    target_metric: The value of --target_metric, if given.
  """
  measures = run.measures()
  reached = ending.first_at_target(run.rows, target_metric)
  if 'virtual_seconds' in measures and reached is not None:
    measures['virtual_seconds_to_target'] = reached.get(
      metric_names.VIRTUAL_SECONDS, 0.0
    )
  return measures


def names_of_measures(rows: Sequence[Row]) -> list[str]:
  """Lists the columns of numbers of a table."""
  virtual = [
    name
    for name in _OF_VIRTUAL_TIME
    if any(name in row.outcome.measures for row in rows)
  ]
  return [*MEASURES, *virtual]


def write_table(folder: pathlib.Path, rows: Sequence[Row]) -> None:
  """Writes results.csv: one row per run, one column per flag of the sweep."""
  flags = list(dict.fromkeys(f for row in rows for f in row.flags))
  measures = names_of_measures(rows)
  rest = ('status', 'reason', 'rounds', 'metric', *measures)
  # A flag with the name of another column keeps its dashes.
  head = ['name', *(f'--{f}' if f in rest else f for f in flags), *rest]
  table = [
    [
      row.name,
      *(row.flags.get(f) for f in flags),
      *(row.status, row.outcome.reason),
      *(row.outcome.rounds, row.outcome.metric),
      *(row.outcome.measures.get(m) for m in measures),
    ]
    for row in rows
  ]
  sweeps.write_table(folder, head, table)


def was_begun(trial: Trial) -> bool:
  """Returns whether a run was ever started."""
  return trial.state != optuna.trial.TrialState.WAITING or attempt_of(trial) > 0


def score_of(rule: scores.SelectionRule, outcome: Outcome) -> float:
  """Scores a run by its rounds so far; lower is better.

  The score is infinite if the run diverged or failed.
  """
  useful = outcome.status in (FINISHED, PRUNED)
  return scores.score(rule, outcome.measures, outcome.metric, finished=useful)
