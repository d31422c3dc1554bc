"""What a sweep came to, in a few lines."""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tff_adaptive.recording import formatting
from tff_adaptive.report import runs as results
from tff_adaptive.report import selection
from tff_adaptive.sweep import grids
from tff_adaptive.sweep import store as sweep_store


def summary(rows: Sequence[Mapping[str, Any]], select: str) -> str:
  """The best configuration of every method, and task if there are several.

  Args:
    rows: Of the table.
    select: The name of a rule.
  """
  rule = selection.RULES[select]
  tasks = {row['settings']['task'] for row in rows}
  by_method: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
  for row in rows:
    flags = {k: v for k, v in row['flags'].items() if k not in grids.SEEDS}
    method = results.method_of(row['settings'])
    if len(tasks) > 1:
      method += f' on {row["settings"]["task"]}'
    configuration = ', '.join(
      f'{k}={v}' for k, v in flags.items() if k not in ('algorithm', 'task')
    )
    by_method.setdefault(method, {}).setdefault(configuration, []).append(row)
  lines = [f'Best by --select={rule.name}: {rule.help}.']
  table = [('method', rule.measure, 'runs', 'configuration')]
  order = []
  for method, configurations in by_method.items():
    scores = {k: _scores(rule, v) for k, v in configurations.items()}
    best = selection.best(scores)
    if best is None:
      order.append(
        (math.inf, (method, 'no configuration finished on all seeds', '', ''))
      )
      continue
    values = [r[rule.measure] for r in configurations[best]]
    order.append(
      (
        results.mean(scores[best]),
        (
          method,
          formatting.number(results.mean(values)),
          str(len(values)),
          best,
        ),
      )
    )
  table += [cells for _, cells in sorted(order, key=lambda item: item[0])]
  lines += formatting.aligned(table, left=4)
  return '\n'.join(lines)


def _scores(
  rule: selection.Rule, rows: Sequence[Mapping[str, Any]]
) -> list[float]:
  """What a configuration's runs are worth; infinite unless finished."""
  return [
    selection.score(
      rule,
      {k: v for k, v in row.items() if isinstance(v, float)},
      row['metric'],
    )
    if row['status'] == sweep_store.FINISHED
    else math.inf
    for row in rows
  ]
