"""The tables of the report."""

import dataclasses
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.report import columns as columns_lib
from tff_adaptive.lab.report import figures as plots
from tff_adaptive.lab.report import results as results_lib
from tff_adaptive.lab.report import runs as runs_lib
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import spreads
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.report import verdict as verdicts

_RATES = ('client_learning_rate', 'server_learning_rate', 'server_adaptivity')
# Suffixes of columns about single clients, with their headings.
_OVER_CLIENTS = {
  'mean': 'mean over clients',
  'std': 'standard deviation',
  'p10': '10 % are below',
  'p50': 'half are below',
  'p90': '90 % are below',
  'worst_decile': 'mean of the worst tenth',
}


@dataclasses.dataclass(frozen=True)
class Cell:
  """A cell of a table.

  Attributes:
    text: The text.
    note: A smaller line below the text.
    best: Whether it is the best of its column.
    words: Whether the text may be long and wrap.
    flags: Flags with their values, shown in place of a text.
  """

  text: str
  note: str = ''
  best: bool = False
  words: bool = False
  flags: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Table:
  head: Sequence[str]
  rows: Sequence[Sequence[Cell]]


def as_flags(settings: Mapping[str, Any], names: Sequence[str]) -> list[str]:
  """Formats settings as command-line flags."""
  return [f'--{n}={settings[n]}' for n in names if settings.get(n) is not None]


def named_flags(section: sections.Section) -> list[str]:
  """Lists the flags that distinguish configurations, learning rates first."""
  varying = [f for f in sections.varied(section) if f not in sections.SETTING]
  return list(dict.fromkeys((*_RATES, *varying)))


def of_results(found: results_lib.Results) -> Table:
  """Builds the table of methods by measures, the best of columns in bold."""
  columns = []
  for column in found.columns:
    top = column.best()
    columns.append(
      [
        Cell(text, note, best=i == top)
        for i, (text, note) in enumerate(column.texts())
      ]
    )
  rows = [
    [
      Cell(method),
      Cell(f'{found.tried[i]}'),
      Cell(found.seeds[i]),
      *(column[i] for column in columns),
    ]
    for i, method in enumerate(found.methods)
  ]
  return Table(found.head(), rows)


def of_clients(
  best: Mapping[str, sections.Configuration], judge: sections.Judge
) -> Optional[Table]:
  """Builds the table of the trained models' quality on single clients."""
  metric = judge.metric or 'loss'
  bounds = metric_names.bounds(metric)
  names = printed_names.methods(best)
  found: dict[str, list[Optional[spreads.Spread]]] = {}
  for group, after in plots.CLIENT_GROUPS.items():
    for method in verdicts.ranked(best, judge):
      runs = best[method].runs
      last = [run.rows[-1] for run in runs]
      cells = [
        spreads.spread(
          [
            row[name]
            for row in last
            if (name := f'{group}/{metric}/{s}') in row
          ],
          bounds,
          planned=len(runs),
          share=judge.is_share,
        )
        for s in _OVER_CLIENTS
      ]
      if any(cells):
        name = names[method]
        found[f'{name}, {after}' if after else name] = cells
  if not found:
    return None
  columns = [
    results_lib.Column(heading, cells, judge.is_share).texts()
    for heading, cells in zip(
      _OVER_CLIENTS.values(), zip(*found.values(), strict=True), strict=True
    )
  ]
  rows = [
    [Cell(name), *(Cell(*column[i]) for column in columns)]
    for i, name in enumerate(found)
  ]
  unit = ' (%)' if judge.is_share else ''
  head = [f'{heading}{unit}' for heading in _OVER_CLIENTS.values()]
  return Table(['Method', *head], rows)


def of_last_rounds(
  best: Mapping[str, sections.Configuration],
  columns: Sequence[str],
  judge: sections.Judge,
) -> Optional[Table]:
  """Builds the table of columns that only the last round has, one per row."""
  order = verdicts.ranked(best, judge)
  rows = []
  for column in columns:
    cells = [Cell(columns_lib.column_words(column))]
    for method in order:
      runs = best[method].runs
      last = [run.rows[-1] for run in runs]
      values = [row[column] for row in last if column in row]
      if values:
        bounds = metric_names.bounds(column)
        shown = verdicts.spread(values, bounds, of=len(runs))
        text, _, note = shown.partition(' ')
        cells.append(Cell(text, note))
      else:
        cells.append(Cell('\N{EN DASH}'))
    rows.append(cells)
  names = printed_names.methods(order)
  return Table(['', *names.values()], rows) if rows else None


def of_settings(
  best: Mapping[str, sections.Configuration],
  flags: Sequence[str],
  judge: sections.Judge,
) -> Table:
  """Builds the table of every method's settings, in words and as flags.

  Args:
    best: The best configuration of every method that has one.
    flags: The flags to show.
    judge: The judge of the experiment.
  """
  rows = []
  names = printed_names.methods(best)
  for method in verdicts.ranked(best, judge):
    settings = best[method].settings
    words = verdicts.settings_words(settings, flags, settings.get('task'))
    rows.append(
      [
        Cell(names[method]),
        Cell(words, words=True),
        Cell('', words=True, flags=as_flags(settings, flags)),
      ]
    )
  return Table(['Method', 'in words', 'as flags'], rows)


def of_unfinished(
  folder: pathlib.Path,
  sweep: Optional[sweeps.SweepRecord],
  runs: Sequence[runs_lib.Run],
) -> Optional[Table]:
  """Builds the table of runs without a result, with the reasons."""
  if sweep is not None:
    rows = sweeps.read_unfinished(folder)
  else:
    rows = [
      (run.name, f'after round {run.rounds}', '')
      for run in runs
      if not run.finished
    ]
  if not rows:
    return None
  return Table(
    ['run', 'status', 'reason'],
    [
      [Cell(name), Cell(status), Cell(reason, words=True)]
      for name, status, reason in rows
    ],
  )
