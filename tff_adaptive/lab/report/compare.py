"""Comparison of runs as tables for the terminal."""

import itertools
import pathlib
import string
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import results as results_table
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import verdict

# Measure, heading, and whether lower is better (`None`: depends on the metric).
_Column = tuple[str, str, Optional[bool]]
_COLUMNS: tuple[_Column, ...] = (
  ('train/loss', 'train loss', True),
  ('train/metric', 'train metric', None),
  ('validation/loss', 'val. loss', True),
  ('validation/metric', 'val. metric', None),
  ('best/metric', 'best round', None),
  ('test/loss', 'test loss', True),
  ('test/metric', 'test metric', None),
  ('megabytes', 'MB sent', True),
  ('seconds', 'seconds', True),
  ('virtual_seconds', 'virtual s', True),
)
_TO_LEVEL = 'virtual_seconds_to_level'


def find(
  paths: Sequence[pathlib.Path],
  directions: Optional[Mapping[str, bool]] = None,
) -> tuple[list[results.Run], list[str]]:
  """Loads the runs in folders: a run's own folder, or all runs below a folder.

  Returns:
    The runs, and a sentence for each run below a folder that has no results.

  Raises:
    SettingsError: If a folder contains no run with results.
  """
  runs: list[results.Run] = []
  left_out: list[str] = []
  for path in paths:
    if (path / 'hparams.json').exists():
      below, complaints = [results.load(path, directions)], list[str]()
    else:
      below, complaints = results.find(path, directions)
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
  """Lists the settings that differ between runs."""
  names = dict.fromkeys(k for run in runs for k in run.settings)
  return [
    name
    for name in names
    if len({repr(run.settings.get(name)) for run in runs}) > 1
  ]


def tables(
  runs: Sequence[results.Run],
  target: Optional[float] = None,
  select: Optional[str] = None,
) -> str:
  """Renders a table for every task and its data.

  If methods have several runs, a table of means over seeds and the report's
  verdict follow.

  Args:
    runs: The runs.
    target: Value of the validation metric until which rounds and time are
      counted; unless given, the best value that all runs of a table reach.
    select: Name of the selection rule; that of the runs' sweep unless given.
  """
  labels = (
    ''.join(letters)
    for length in itertools.count(1)
    for letters in itertools.product(string.ascii_uppercase, repeat=length)
  )
  titles = _titles(runs)
  problems: dict[str, dict[str, results.Run]] = {}
  for title, label, run in zip(titles, labels, runs, strict=False):
    problems.setdefault(title, {})[label] = run
  rule = results.rule_of(runs, select)
  parts = []
  for title, same in problems.items():
    members = list(same.values())
    lines = [] if len(problems) == 1 else [title, '']
    # Runs that differ only in their seeds are not ranked.
    repeated = len({run.configuration for run in members}) < len(members)
    lines.append(table(same, target, starred=not repeated))
    lines += _verdicts(members, rule, target, with_means=repeated)
    parts.append('\n'.join(lines))
  return '\n\n'.join(parts)


def _verdicts(
  runs: Sequence[results.Run],
  rule: scores.SelectionRule,
  target: Optional[float],
  *,
  with_means: bool,
) -> list[str]:
  """Renders means over seeds and a verdict for each experiment."""
  lines = []
  every = sections.sections(runs)
  for section in every:
    judge = sections.Judge(rule, section.metric, section.rises)
    best = judge.best_of(section.by_method)
    found = verdict.reach(section, best, judge, ())
    if found is None:
      continue
    title = _experiment(section, every)
    if with_means:
      lines += ['', f'means over seeds{title}, by --select={rule.name}']
      lines.append(
        results_table.as_text(
          results_table.tabulate(section, best, judge, target)
        )
      )
    margin = dict(found.points).get('Margin')
    if margin is not None:
      of = '' if with_means else title
      lines += ['', f'verdict{of}: {found.headline}; {margin}']
  return lines


def _experiment(
  section: sections.Section, every: Sequence[sections.Section]
) -> str:
  """Describes the settings that distinguish an experiment from the others."""
  task = section.setting.get('task')
  differing = [
    name
    for name, value in section.setting.items()
    if any(other.setting.get(name) != value for other in every)
  ]
  words = verdict.settings_words(section.setting, differing, task)
  return f' ({words})' if words else ''


def means(
  runs: Sequence[results.Run],
  form: str,
  target: Optional[float] = None,
  select: Optional[str] = None,
) -> str:
  """Renders tables of means over seeds, with intervals, for papers.

  Args:
    runs: The runs.
    form: One of `results.FORMATS`.
    target: As for `tables`.
    select: As for `tables`.

  Raises:
    SettingsError: If no configuration has finished on all its seeds.
  """
  rule = results.rule_of(runs, select)
  _, write = results_table.FORMATS[form]
  every = sections.sections(runs)
  found: dict[str, str] = {}
  for section in every:
    judge = sections.Judge(rule, section.metric, section.rises)
    best = judge.best_of(section.by_method)
    if best:
      title = f'{section.setting.get("task")}{_experiment(section, every)}'
      results_of = results_table.tabulate(section, best, judge, target)
      found[' '.join(title.split())] = write(results_of)
  if not found:
    raise errors.SettingsError(
      'No configuration of these runs finished on all its seeds.'
    )
  if len(found) == 1:
    [text] = found.values()
  elif form == 'csv':
    text = results_table.joined(found)
  else:
    mark = '' if form == 'markdown' else '% '
    text = '\n'.join(f'{mark}{title}\n\n{t}' for title, t in found.items())
  return formatting.printable(text)


def _titles(runs: Sequence[results.Run]) -> list[str]:
  """Returns a title per run: its task, and data settings that differ."""
  problems = [_problem(run) for run in runs]
  titles = []
  for problem in problems:
    task = problem['task']
    others = [p for p in problems if p['task'] == task]
    words = [
      f'{verdict.words(name, task)} {value}'
      for name, value in problem.items()
      if any(other.get(name) != value for other in others)
    ]
    titles.append(', '.join([f'task {task}', *words]))
  return titles


def _problem(run: results.Run) -> dict[str, Any]:
  """Returns the settings that define the task and its data."""
  of_task = sections.prefix(run.settings['task'])
  return {
    name: value
    for name, value in run.settings.items()
    if name in sections.PROBLEM or name.startswith(of_task)
  }


def table(
  named: Mapping[str, results.Run],
  target: Optional[float] = None,
  *,
  starred: bool = True,
) -> str:
  """Renders one task's results.

  Args:
    named: The runs, by the letters that denote them.
    target: As for `tables`.
    starred: Whether to mark the best value of every column.
  """
  runs = list(named.values())
  measures = {label: run.measures() for label, run in named.items()}
  level = results.common_level(runs) if target is None else target
  shown = list(_COLUMNS)
  if level is not None:
    for label, run in named.items():
      if (seconds := run.virtual_seconds_to(level)) is not None:
        measures[label][_TO_LEVEL] = seconds
    heading = f'virtual s to {formatting.number(level)}'
    shown.append((_TO_LEVEL, heading, True))
  columns = [c for c in shown if any(c[0] in m for m in measures.values())]
  best = _best(named, measures, columns) if starred else {}
  cells = [['', 'method', 'rounds', *(heading for _, heading, _ in columns)]]
  for label, run in named.items():
    rounds = str(run.rounds)
    if not run.finished:
      rounds += f' of {run.settings.get("total_rounds")}'
    row = [label, run.method, rounds]
    for key, _, _ in columns:
      value = measures[label].get(key)
      text = '-' if value is None else formatting.number(value)
      best_here = run.finished and value is not None and value == best.get(key)
      row.append(text + ('*' if best_here else ' ' * starred))
    cells.append(row)
  lines = formatting.aligned(cells, left=2)
  metrics = ', '.join(
    dict.fromkeys(metric_names.short(r.metric) for r in runs if r.metric)
  )
  window = {scores.window(run.rounds) for run in runs}
  over = f'{window.pop()}' if len(window) == 1 else 'tenth of the'
  lines += [
    '',
    f'metric: {metrics or "none"}; training and validation are means over the '
    f'last {over} rounds'
    + ('; * better than all others that are finished' * starred),
    '',
  ]
  lines += _gaps(named)
  different = differences(runs)
  if different:
    lines.append('what differs')
    rows = [['', *named]]
    for name in different:
      rows.append([f'--{name}', *(_word(r.settings.get(name)) for r in runs)])
    lines += formatting.aligned(rows, left=1)
    lines.append('')
  lines += [f'{label}  {run.path}' for label, run in named.items()]
  return '\n'.join(lines)


def _best(
  named: Mapping[str, results.Run],
  measures: Mapping[str, Mapping[str, float]],
  columns: Sequence[_Column],
) -> dict[str, Optional[float]]:
  """Returns the unique best value of every column, if there is one."""
  finished = [measures[label] for label, run in named.items() if run.finished]
  metrics = {run.metric for run in named.values()}
  best: dict[str, Optional[float]] = {}
  for key, _, less in columns:
    values = [found[key] for found in finished if key in found]
    if less is None and len(metrics) > 1:
      values = []
    if less is None:
      rises = next(iter(named.values())).rises
      less, values = not rises, [] if rises is None else values
    best[key] = scores.unique_best(values, less=less)
  return best


def _gaps(named: Mapping[str, results.Run]) -> list[str]:
  """Renders how far every run is behind the best centralized one."""
  metrics = {run.metric for run in named.values()}
  if len(metrics) > 1:
    return []
  metric = metrics.pop()
  measure = 'validation/metric' if metric else 'validation/loss'
  rises = next(iter(named.values())).rises
  if rises is None:
    return []
  sign = 1 if rises else -1
  central = [
    run.measures()[measure]
    for run in named.values()
    if not methods.has_clients(run.settings.get('algorithm'))
    and measure in run.measures()
  ]
  if not central:
    return []
  top = max(central, key=lambda v: sign * v)
  cells = [['', 'method', 'gap to centralized']]
  for label, run in named.items():
    value = run.measures().get(measure)
    federated = methods.has_clients(run.settings.get('algorithm'))
    if federated and value is not None:
      cells.append([label, run.method, f'{sign * (top - value):+.4f}'])
  return [*formatting.aligned(cells, left=2), ''] if len(cells) > 1 else []


def _word(value: Any) -> str:
  return '-' if value is None else f'{value}'
