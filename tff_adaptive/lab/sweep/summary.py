"""The summary of a sweep, as a short table."""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes

# The runs of one configuration.
_Same = Sequence[outcomes.Row]


def summary(
  rows: Sequence[outcomes.Row],
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
  by_method: dict[str, dict[str, list[outcomes.Row]]] = {}
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
    if row.status == outcomes.FINISHED and row.outcome.reason
  ]
  return '\n'.join(lines)


def _measures(
  rows: Sequence[outcomes.Row], rule: scores.SelectionRule
) -> dict[str, str]:
  """Returns the headings of the columns of numbers, by measure.

  The measure by which methods are ranked comes first.
  """
  there = {name for row in rows for name in row.outcome.measures}
  metrics = {row.outcome.metric for row in rows if row.outcome.metric}
  named: list[Optional[str]] = [*sorted(metrics)]
  compared = [sections.Judge(rule, m).compared for m in named or [None]]
  shown = {
    measure: words if len(compared) == 1 else measure
    for measure, words in compared
    if measure in there
  }
  if rule.measure in there or not shown:
    shown.setdefault(rule.measure, rule.measure)
  if 'virtual_seconds' in there:
    shown['virtual_seconds'] = 'virtual s'
  if 'virtual_seconds_to_target' in there:
    shown['virtual_seconds_to_target'] = 'virtual s to target'
  return shown


def _methods(
  by_method: Mapping[str, Mapping[str, _Same]],
  rule: scores.SelectionRule,
  measures: Sequence[str],
  tuned_on: Optional[int],
) -> list[tuple[str, ...]]:
  """Builds the rows of the table, the best method first."""
  order = []
  for method, configurations in by_method.items():
    tried = sum(
      any(row.status in outcomes.OVER for row in same)
      for same in configurations.values()
    )
    scored = {
      name: [row.outcome.score(rule) for row in _choosing(same, tuned_on)]
      for name, same in configurations.items()
    }
    best = scores.best(scored)
    if best is None:
      nothing = 'no configuration finished on all seeds'
      empty = [''] * (len(measures) + 1)
      order.append(
        ((math.inf, math.inf), (method, str(tried), nothing, *empty))
      )
      continue
    same, of = _reported(configurations[best], tuned_on)
    count = str(len(same)) if len(same) == of else f'{len(same)} of {of}'
    cells = (
      method,
      str(tried),
      *(_mean(same, measure) for measure in measures),
      count,
      best,
    )
    place = (_compared(rule, same), scores.mean(scored[best]))
    order.append((place, cells))
  return [cells for _, cells in sorted(order, key=lambda item: item[0])]


def _choosing(same: _Same, tuned_on: Optional[int]) -> _Same:
  """Returns the runs by which a configuration is selected."""
  return [row for row in same if tuned_on in (None, row.settings.get('seed'))]


def _reported(same: _Same, tuned_on: Optional[int]) -> tuple[_Same, int]:
  """Returns the runs whose means are shown, and the expected number of runs."""
  others = [row for row in same if row.settings.get('seed') != tuned_on]
  finished = [row for row in others if row.status == outcomes.FINISHED]
  if tuned_on is None or not finished:
    chosen = _choosing(same, tuned_on)
    return chosen, len(chosen)
  return finished, len(others)


def _compared(rule: scores.SelectionRule, same: _Same) -> float:
  """Returns the value that methods are ranked by; lower is better."""
  first = same[0].outcome
  judge = sections.Judge(rule, first.metric, first.rises)
  measure, _ = judge.compared
  value = _mean_of(same, measure)
  if value is None:
    return math.inf
  down = measure.endswith('/metric') and judge.more_is_better
  return -value if down else value


def _mean_of(rows: _Same, measure: str) -> Optional[float]:
  values = [row.outcome.measures.get(measure) for row in rows]
  there = [value for value in values if value is not None]
  return scores.mean(there) if len(there) == len(values) else None


def _mean(rows: _Same, measure: str) -> str:
  """Formats a mean over seeds; a dash if a run lacks the measure."""
  value = _mean_of(rows, measure)
  return '-' if value is None else formatting.number(value)
