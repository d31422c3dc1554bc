"""The summary of a sweep, in a few lines."""

import math
from collections.abc import Sequence

from tff_adaptive.recording import formatting
from tff_adaptive.report import runs
from tff_adaptive.report import scores
from tff_adaptive.sweep import grids
from tff_adaptive.sweep import outcomes


def summary(rows: Sequence[outcomes.Row], select: str) -> str:
  """Names the best configuration of every method, for each task.

  Args:
    rows: Of the table.
    select: The name of a rule.
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
  lines = [f'Best by --select={rule.name}: {rule.help}.']
  table = [('method', rule.measure, 'runs', 'configuration')]
  order = []
  for method, configurations in by_method.items():
    scored = {
      name: [_score(rule, row) for row in same]
      for name, same in configurations.items()
    }
    best = scores.best(scored)
    if best is None:
      order.append(
        (math.inf, (method, 'no configuration finished on all seeds', '', ''))
      )
      continue
    values = [r.outcome.measures[rule.measure] for r in configurations[best]]
    shown = formatting.number(scores.mean(values))
    order.append(
      (scores.mean(scored[best]), (method, shown, str(len(values)), best))
    )
  table += [cells for _, cells in sorted(order, key=lambda item: item[0])]
  lines += formatting.aligned(table, left=4)
  return '\n'.join(lines)


def _score(rule: scores.SelectionRule, row: outcomes.Row) -> float:
  return scores.score(
    rule,
    row.outcome.measures,
    row.outcome.metric,
    finished=row.status == outcomes.FINISHED,
  )
