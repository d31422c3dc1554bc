"""The rows of a sweep's table, one for each run, and their summary."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.training.loop import ending

# The status of a run.
WAITING = 'waiting'
RUNNING = 'running'
FINISHED = sweeps.FINISHED
DIVERGED = 'diverged'
FAILED = 'failed'
PRUNED = 'pruned'
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


# The runs of one configuration.
_Same = Sequence[Row]


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


def write_table(folder: pathlib.Path, rows: Sequence[Row]) -> None:
  """Writes results.csv: one row per run, one column per flag of the sweep."""
  flags = list(dict.fromkeys(f for row in rows for f in row.flags))
  virtual = [
    name
    for name in _OF_VIRTUAL_TIME
    if any(name in row.outcome.measures for row in rows)
  ]
  measures = [*MEASURES, *virtual]
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


def summary(
  rows: Sequence[Row],
  select: str,
  *,
  tuned_on: Optional[int] = None,
) -> str:
  """Renders the best configuration of every method, for each task.

  Methods are ordered by the measure that the report compares them by, a
  validation measure if there is one.

  Args:
    rows: The rows of the sweep's table.
    select: The name of a selection rule.
    tuned_on: The seed that configurations are selected on, excluded from means
      if other seeds were run; `None` if all seeds are equal.
  """
  rule = scores.RULES[select]
  tasks = {row.settings['task'] for row in rows}
  by_method: dict[str, dict[str, list[Row]]] = {}
  for row in rows:
    method = runs.method_of(row.settings)
    if len(tasks) > 1:
      method += f' on {row.settings["task"]}'
    configuration = ', '.join(
      f'{k}={v}'
      for k, v in grids.configuration(row.flags)
      if k not in ('algorithm', 'task')
    )
    by_method.setdefault(method, {}).setdefault(configuration, []).append(row)
  measures = _measures(rows, rule)
  table = [
    ('method', 'tried', *measures.values(), 'runs', 'configuration'),
    *_methods(by_method, rule, list(measures), tuned_on),
  ]
  lines = [f'Best by --select={rule.name}: {rule.help}.']
  if tuned_on is not None:
    lines.append(
      f'Selected on seed {tuned_on}; results are means over the other seeds.'
    )
  lines += formatting.aligned(table, left=len(table[0]))
  lines += [
    f'{row.name}: {row.outcome.reason}'
    for row in rows
    if row.status == FINISHED and row.outcome.reason
  ]
  return '\n'.join(lines)


def _measures(
  rows: Sequence[Row], rule: scores.SelectionRule
) -> dict[str, str]:
  """Returns the headings of the columns of numbers, by measure.

  The measure by which methods are ranked comes first.
  """
  there = {name for row in rows for name in row.outcome.measures}
  metrics = {row.outcome.metric for row in rows if row.outcome.metric}
  named: list[Optional[str]] = [*sorted(metrics)]
  compared = dict(sections.Judge(rule, m).compared for m in named or [None])
  if len(named) > 1:
    compared = {measure: measure for measure in compared}
  every = {**compared, rule.measure: compared.get(rule.measure, rule.measure)}
  every |= {
    'virtual_seconds': 'virtual s',
    'virtual_seconds_to_target': 'virtual s to target',
  }
  shown = {
    measure: words for measure, words in every.items() if measure in there
  }
  return shown or {rule.measure: rule.measure}


def _methods(
  by_method: Mapping[str, Mapping[str, _Same]],
  rule: scores.SelectionRule,
  measures: Sequence[str],
  tuned_on: Optional[int],
) -> list[tuple[str, ...]]:
  """Builds the rows of the table, the best method first."""
  order: list[tuple[float, float, tuple[str, ...]]] = []
  for method, configurations in by_method.items():
    tried = sum(
      any(row.status in OVER for row in same)
      for same in configurations.values()
    )
    scored = {
      name: [row.outcome.score(rule) for row in same if _chooses(row, tuned_on)]
      for name, same in configurations.items()
    }
    best = scores.best(scored)
    if best is None:
      nothing = 'no configuration finished on all seeds'
      empty = [''] * (len(measures) + 1)
      order.append((math.inf, math.inf, (method, str(tried), nothing, *empty)))
      continue
    repeats = [r for r in configurations[best] if not _chooses(r, tuned_on)]
    same = [row for row in repeats if row.status == FINISHED]
    if tuned_on is None or not same:
      same = repeats = [
        row for row in configurations[best] if _chooses(row, tuned_on)
      ]
    count = str(len(same))
    if len(repeats) > len(same):
      count += f' of {len(repeats)}'
    means = (_mean(same, measure) for measure in measures)
    cells = (
      method,
      str(tried),
      *('-' if value is None else formatting.number(value) for value in means),
      count,
      best,
    )
    place = _compared(rule, same), scores.mean(scored[best])
    order.append((*place, cells))
  return [cells for *_, cells in sorted(order)]


def _chooses(row: Row, tuned_on: Optional[int]) -> bool:
  """Returns whether a configuration is selected by a run."""
  return tuned_on in (None, row.settings.get('seed'))


def _compared(rule: scores.SelectionRule, same: _Same) -> float:
  """Returns the value that methods are ranked by; lower is better."""
  first = same[0].outcome
  judge = sections.Judge(rule, first.metric, first.rises)
  measure, _ = judge.compared
  value = _mean(same, measure)
  if value is None:
    return math.inf
  down = measure.endswith('/metric') and judge.more_is_better
  return -value if down else value


def _mean(rows: _Same, measure: str) -> Optional[float]:
  """Returns a mean over seeds; `None` if a run lacks the measure."""
  values = [row.outcome.measures.get(measure) for row in rows]
  there = [value for value in values if value is not None]
  return scores.mean(there) if len(there) == len(values) else None
