"""Runs side by side, as a table for the terminal."""

import math
import pathlib
import sys
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.algorithms import methods
from tff_adaptive.flags import options as options_lib
from tff_adaptive.recording import formatting
from tff_adaptive.recording import metric_names
from tff_adaptive.report import runs as results
from tff_adaptive.report import selection

USAGE = """compare RUN...

Shows results side by side. RUN is a run's folder, or one with runs in it."""
# Measures in the table, their headings, and whether less is better; `None`
# where the metric decides.
_COLUMNS: tuple[tuple[str, str, Optional[bool]], ...] = (
  ('train/loss', 'train loss', True),
  ('train/metric', 'train metric', None),
  ('validation/loss', 'val. loss', True),
  ('validation/metric', 'val. metric', None),
  ('best/metric', 'best round', None),
  ('test/loss', 'test loss', True),
  ('test/metric', 'test metric', None),
  ('megabytes', 'MB sent', True),
  ('seconds', 'seconds', True),
)


def build_options() -> options_lib.Options:
  """The flags of `main.py compare`: none."""
  return options_lib.Options()


def find(
  paths: Sequence[pathlib.Path],
) -> tuple[list[results.Run], list[str]]:
  """The runs in folders: a run's own, or those below another folder.

  Returns:
    The runs, and a sentence for each below a folder that has nothing to show.

  Raises:
    SettingsError: If a folder has no run with results in it.
  """
  runs: list[results.Run] = []
  left_out: list[str] = []
  for path in paths:
    if (path / 'hparams.json').exists():
      below, complaints = [results.load(path)], list[str]()
    else:
      below, complaints = results.find(path)
      if not below and not complaints:
        raise errors.SettingsError(f'There is no run in {path}.')
    complaints += [f'{r.path} has no results yet.' for r in below if not r.rows]
    below = [run for run in below if run.rows]
    if not below:
      raise errors.SettingsError(complaints[0])
    runs += below
    left_out += complaints
  return runs, left_out


def differences(runs: Sequence[results.Run]) -> list[str]:
  """The settings that are not the same in all runs."""
  names = dict.fromkeys(k for run in runs for k in run.settings)
  return [
    name
    for name in names
    if len({repr(run.settings.get(name)) for run in runs}) > 1
  ]


def table(runs: Sequence[results.Run]) -> str:
  """The runs' results, the best of every column marked, and what differs."""
  measures = [run.measures() for run in runs]
  columns = [c for c in _COLUMNS if any(c[0] in m for m in measures)]
  same_metric = len({run.metric for run in runs}) == 1
  cells: list[list[str]] = [
    ['', 'method', 'rounds', *(heading for _, heading, _ in columns)]
  ]
  labels = [
    chr(ord('A') + i) if i < 26 else str(i + 1) for i in range(len(runs))
  ]
  best = []
  finished = [m for r, m in zip(runs, measures, strict=True) if r.finished]
  for key, _, less in columns:
    finite = [m[key] for m in finished if math.isfinite(m.get(key, math.nan))]
    if less is None:
      less = not selection.higher_is_better(runs[0].metric)
      if not same_metric:
        finite = []
    best.append((min if less else max)(finite) if finite else None)
  for label, run, values in zip(labels, runs, measures, strict=True):
    rounds = str(run.rounds)
    if not run.finished:
      rounds += f' of {run.settings.get("total_rounds")}'
    row = [label, run.method, rounds]
    for (key, _, _), top in zip(columns, best, strict=True):
      value = values.get(key)
      text = '-' if value is None else formatting.number(value)
      best_here = run.finished and value is not None and value == top
      row.append(text + ('*' if best_here else ' '))
    cells.append(row)
  lines = formatting.aligned(cells, left=2)
  metrics = ', '.join(
    dict.fromkeys(metric_names.short(r.metric) for r in runs if r.metric)
  )
  window = {selection.window(run.rounds) for run in runs}
  over = f'{window.pop()}' if len(window) == 1 else 'tenth of the'
  lines += [
    '',
    f'metric: {metrics or "none"}; training and validation are means over the '
    f'last {over} rounds; * best of those that are finished',
    '',
  ]
  lines += _gaps(runs, labels)
  different = differences(runs)
  if different:
    lines.append('what differs')
    rows = [['', *labels]]
    for name in different:
      rows.append([f'--{name}', *(_word(r.settings.get(name)) for r in runs)])
    lines += formatting.aligned(rows, left=1)
    lines.append('')
  lines += [
    f'{label}  {run.path}' for label, run in zip(labels, runs, strict=True)
  ]
  return '\n'.join(lines)


def _gaps(runs: Sequence[results.Run], labels: Sequence[str]) -> list[str]:
  """How far every run is behind the best centralized one beside it."""
  metric = runs[0].metric
  measure = 'validation/metric' if metric else 'validation/loss'
  sign = 1 if selection.higher_is_better(metric) else -1
  central = [
    run.measures()[measure]
    for run in runs
    if not methods.has_clients(run.settings.get('algorithm'))
    and measure in run.measures()
  ]
  if not central or len({run.metric for run in runs}) > 1:
    return []
  top = max(central, key=lambda v: sign * v)
  cells = [['', 'method', 'gap to centralized']]
  for label, run in zip(labels, runs, strict=True):
    value = run.measures().get(measure)
    federated = methods.has_clients(run.settings.get('algorithm'))
    if federated and value is not None:
      cells.append([label, run.method, f'{sign * (top - value):+.4f}'])
  return [*formatting.aligned(cells, left=2), ''] if len(cells) > 1 else []


def _word(value: Any) -> str:
  return '-' if value is None else f'{value}'


def main(arguments: Sequence[str]) -> int:
  """`main.py compare RUN...`; returns the exit code."""
  _, words = build_options().read(arguments)
  if not words:
    raise errors.SettingsError(
      'compare takes the folders of runs, or of a sweep; none was given.'
    )
  runs, left_out = find([pathlib.Path(word) for word in words])
  for complaint in left_out:
    print(f'Left out: {complaint}', file=sys.stderr)
  print(table(runs))
  return 0
