"""Comparison of runs as tables for the terminal."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import string
from collections.abc import Mapping, Sequence
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.report import results as results_lib
from tff_adaptive.lab.report import runs as runs_lib
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lazy import pandas as pd


def find(
  paths: Sequence[pathlib.Path],
  directions: Optional[Mapping[str, bool]] = None,
) -> tuple[list[runs_lib.Run], list[str]]:
  """Loads the runs in folders: a run's own folder, or all runs below a folder.

  Args:
    paths: The folders.
    directions: Whether higher is better, by metric; see `runs.load`.

  Returns:
    The runs, and a sentence for each run below a folder that has no results.

  Raises:
    SettingsError: If a folder contains no run with results.
  """
  runs: list[runs_lib.Run] = []
  left_out: list[str] = []
  for path in paths:
    below, complaints = runs_lib.find(path, directions)
    complaints += [f'{r.path} has no results yet.' for r in below if not r.rows]
    below = [run for run in below if run.rows]
    if not below:
      complaints.append(f'There is no run in {path}.')
      raise errors.SettingsError(complaints[0])
    runs += below
    left_out += complaints
  # What one run says of a metric counts for those that do not.
  known = {name: up for run in runs for name, up in run.directions.items()}
  return [
    dataclasses.replace(run, directions={**known, **run.directions})
    for run in runs
  ], left_out


def tables(
  runs: Sequence[runs_lib.Run],
  target: Optional[float] = None,
  select: Optional[str] = None,
) -> str:
  """Renders a table of runs for every task and its data.

  If methods have several runs, the report's table of means over seeds follows.

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
  problems: dict[str, dict[str, runs_lib.Run]] = {}
  for title, label, run in zip(_titles(runs), labels, runs, strict=False):
    problems.setdefault(title, {})[label] = run
  rule = runs_lib.rule_of(runs, select)
  parts = []
  for title, same in problems.items():
    lines = [] if len(problems) == 1 else [title, '']
    members = list(same.values())
    # Runs that differ only in their seeds are not ranked.
    repeated = len({run.configuration for run in members}) < len(members)
    lines.append(table(same, rule, target, ranked=not repeated))
    if repeated:
      lines += ['', summary(members, rule, target)]
    parts.append('\n'.join(lines))
  return '\n\n'.join(parts)


def summary(
  runs: Sequence[runs_lib.Run],
  rule: scores.SelectionRule,
  target: Optional[float] = None,
) -> str:
  """Renders means over seeds of the best configuration of every method."""
  parts = []
  for heading, section, best in _best(runs, rule):
    results = results_lib.tabulate(
      section, best, section.criterion(rule), target
    )
    words = [
      [name, section.words_of(c)]
      for name, c in zip(results.words['Method'], best.values(), strict=True)
    ]
    lines = [
      f'means over seeds, by --select={rule.name}: {heading}',
      results_lib.as_text(results),
    ]
    if any(text for _, text in words):
      lines += ['best settings', *formatting.aligned(words, left=2)]
    parts.append('\n'.join(lines))
  return '\n\n'.join(parts) or 'No configuration finished on all its seeds.'


def _best(
  runs: Sequence[runs_lib.Run], rule: scores.SelectionRule
) -> list[tuple[str, sections.Section, sections.Best]]:
  """Lists experiments with results: heading, runs, best configurations."""
  every = sections.sections(runs)
  found = [
    (s.heading(every), s, s.criterion(rule).best_of(s.by_method)) for s in every
  ]
  return [(heading, s, best) for heading, s, best in found if best]


def means(
  runs: Sequence[runs_lib.Run],
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
  rule = runs_lib.rule_of(runs, select)
  found = {
    heading: results_lib.tabulate(
      section, best, section.criterion(rule), target
    )
    for heading, section, best in _best(runs, rule)
  }
  if not found:
    raise errors.SettingsError(
      'No configuration of these runs finished on all its seeds.'
    )
  _, write = results_lib.FORMATS[form]
  if len(found) == 1:
    [text] = map(write, found.values())
  elif form == 'csv':
    every = [
      results.frame().assign(Experiment=formatting.spreadsheet_cell(title))
      for title, results in found.items()
    ]
    joined = pd.concat(every).set_index('Experiment')
    text = joined.to_csv(float_format='%.6g', lineterminator='\n')
  else:
    mark = '' if form == 'markdown' else '% '
    text = '\n'.join(f'{mark}{t}\n\n{write(r)}' for t, r in found.items())
  return formatting.printable(text)


def _titles(runs: Sequence[runs_lib.Run]) -> list[str]:
  """Returns a title per run: its task, and data settings that differ."""
  problems = []
  for run in runs:
    task = run.settings['task']
    names = (*sections.PROBLEM, sections.prefix(task))
    kept = {k: v for k, v in run.settings.items() if k.startswith(names)}
    problems.append(sections.Section(kept, {}, None))
  return [f'task {problem.heading(problems)}' for problem in problems]


def table(
  named: Mapping[str, runs_lib.Run],
  rule: scores.SelectionRule,
  target: Optional[float] = None,
  *,
  ranked: bool = True,
) -> str:
  """Renders one task's results.

  Args:
    named: The runs, by the letters that denote them.
    rule: The selection rule.
    target: As for `tables`.
    ranked: Whether to mark the best value of every column, if all runs are
      finished.
  """
  runs = list(named.values())
  ranked = ranked and len(runs) > 1 and all(run.finished for run in runs)
  each = [sections.Configuration(r.method, r.settings, [r]) for r in runs]
  criterion = sections.Criterion(rule, runs[0].metric, runs[0].rises)
  columns = [
    c if ranked else dataclasses.replace(c, less=None)
    for c in results_lib.columns(each, criterion, target)
  ]
  words = {
    '': list(named),
    'Method': [run.method for run in runs],
    'Rounds': [
      f'{run.rounds}'
      + ('' if run.finished else f' of {run.settings["total_rounds"]}')
      for run in runs
    ],
  }
  window = {scores.window(run.rounds) for run in runs}
  over = 'tenth of the rounds'
  if len(window) == 1:
    over = f'{window.pop()} rounds' if window != {1} else 'round'
  lines = [
    results_lib.as_text(results_lib.Results(words, columns)),
    '',
    f'training and validation are means over the last {over}'
    + ('; * better than all others' * ranked),
    '',
  ]
  settings = pd.DataFrame([r.settings for r in runs], dtype=object)
  rows = [
    [f'--{n}', *('-' if pd.isna(v) else f'{v}' for v in settings[n])]
    for n in settings
    if settings[n].map(repr).nunique() > 1 and settings[n].notna().any()
  ]
  if rows:
    differs = formatting.aligned([['', *named], *rows], left=1)
    lines += ['what differs', *differs, '']
  lines += [f'{label}  {run.path}' for label, run in named.items()]
  return '\n'.join(lines)
