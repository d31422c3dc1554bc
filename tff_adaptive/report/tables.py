"""The tables of a report."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive.algorithms import methods
from tff_adaptive.recording import formatting
from tff_adaptive.recording import metric_names
from tff_adaptive.report import columns as columns_lib
from tff_adaptive.report import figures as plots
from tff_adaptive.report import runs as results
from tff_adaptive.report import scores
from tff_adaptive.report import sections
from tff_adaptive.report import sweeps
from tff_adaptive.report import verdict as verdicts

_RATES = ('client_learning_rate', 'server_learning_rate', 'server_adaptivity')
# Columns of the table of single clients: the ends of their names, and headings.
_OVER_CLIENTS = {
  'mean': 'mean over clients',
  'std': 'standard deviation',
  'p10': '10 % are below',
  'p50': 'half are below',
  'p90': '90 % are below',
  'worst_decile': 'mean of the worst tenth',
}
# Columns of the table of results: measure, heading, less is better (None: as
# the metric).
_MEASURES: tuple[tuple[str, str, Optional[bool]], ...] = (
  ('train/loss', 'training loss', True),
  ('validation/metric', 'validation {metric}', None),
  ('best/metric', 'best validation {metric}', None),
  ('test/metric', 'test {metric}', None),
  ('test/loss', 'test loss', True),
  ('megabytes', 'megabytes sent', True),
  ('seconds', 'seconds', True),
  ('virtual_seconds', 'virtual seconds', True),
)


@dataclasses.dataclass(frozen=True)
class Cell:
  """A cell of a table.

  Attributes:
    text: What it says; a dash where it is empty.
    note: What stands below it, smaller.
    best: Whether it is the best of its column.
    words: Whether it may be long, and break.
    flags: Flags with their values, in place of a text.
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
  """Writes settings as a command line has them."""
  return [f'--{n}={settings[n]}' for n in names if settings.get(n) is not None]


def named_flags(section: sections.Section) -> list[str]:
  """Lists the flags that tell configurations apart, learning rates first."""
  varying = [f for f in sections.varied(section) if f not in sections.SETTING]
  return list(dict.fromkeys((*_RATES, *varying)))


def of_results(
  section: sections.Section,
  best: Mapping[str, sections.Configuration],
  judge: sections.Judge,
) -> Table:
  """Tabulates methods by measures, the best of every column in bold.

  Args:
    section: All configurations of the methods.
    best: The best configuration of every method that has one.
    judge: Says what is better.
  """
  measures = [m for m in _MEASURES if any(best[n].values(m[0]) for n in best)]
  metric = metric_names.short(section.metric) if section.metric else 'metric'
  central = judge.best(
    [c for m, c in best.items() if not methods.has_clients(m.partition(' ')[0])]
  )
  head = ['method', 'settings tried', 'seeds']
  head += [heading.format(metric=metric) for _, heading, _ in measures]
  level = results.common_level([run for c in best.values() for run in c.runs])
  if level is not None:
    quality = metric if section.metric else 'loss'
    head.append(f'virtual seconds to {quality} {formatting.number(level)}')
  if central is not None:
    head.append('gap to centralized')
  tops = {
    measure: scores.unique_best(
      [c.mean(measure) for c in best.values()],
      less=not judge.more_is_better if less is None else less,
    )
    for measure, _, less in measures
  }
  rows = []
  for method in verdicts.ranked(best, judge):
    configuration = best[method]
    cells = [
      Cell(method),
      Cell(f'{len(section.by_method[method])}'),
      Cell(configuration.seeds),
    ]
    cells += [
      _measure_cell(configuration, m, top, judge) for m, top in tops.items()
    ]
    if level is not None:
      cells.append(_time_cell(configuration, level))
    if central is not None:
      gap = central.mean(judge.measure) - configuration.mean(judge.measure)
      cells.append(Cell(f'{gap:+.4f}'))
    rows.append(cells)
  return Table(head, rows)


def _time_cell(configuration: sections.Configuration, level: float) -> Cell:
  """Tells the virtual time until a level was reached."""
  found = [run.virtual_seconds_to(level) for run in configuration.runs]
  times = [seconds for seconds in found if seconds is not None]
  shown = verdicts.spread(times, (0.0, math.inf), of=len(found))
  text, _, note = shown.partition(' ')
  return Cell(text, note)


def _measure_cell(
  configuration: sections.Configuration,
  measure: str,
  top: Optional[float],
  judge: sections.Judge,
) -> Cell:
  values = configuration.values(measure)
  if not values:
    return Cell('\N{EN DASH}')
  bounds = scores.measure_bounds(measure, judge.metric)
  shown = verdicts.spread(values, bounds, of=len(configuration.runs))
  text, _, note = shown.partition(' ')
  return Cell(text, note, best=scores.mean(values) == top)


def of_clients(
  best: Mapping[str, sections.Configuration], judge: sections.Judge
) -> Optional[Table]:
  """Tabulates what the trained models are worth to single clients."""
  metric = judge.metric or 'loss'
  bounds = metric_names.bounds(metric)
  rows = []
  for group, after in plots.CLIENT_GROUPS.items():
    for method in verdicts.ranked(best, judge):
      runs = best[method].runs
      last = [run.rows[-1] for run in runs]
      found = [
        [row[name] for row in last if (name := f'{group}/{metric}/{s}') in row]
        for s in _OVER_CLIENTS
      ]
      if any(found):
        cells = [Cell(f'{method}, {after}' if after else method)]
        for values in found:
          shown = (
            verdicts.spread(values, bounds, of=len(runs)) if values else ''
          )
          text, _, note = shown.partition(' ')
          cells.append(Cell(text or '\N{EN DASH}', note))
        rows.append(cells)
  head = ['method', *_OVER_CLIENTS.values()]
  return Table(head, rows) if rows else None


def of_last_rounds(
  best: Mapping[str, sections.Configuration],
  columns: Sequence[str],
  judge: sections.Judge,
) -> Optional[Table]:
  """Tabulates columns that only the last round has, a row a column."""
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
  return Table(['', *order], rows) if rows else None


def of_settings(
  best: Mapping[str, sections.Configuration],
  flags: Sequence[str],
  judge: sections.Judge,
) -> Table:
  """Tabulates the settings of every method, in words and as flags.

  Args:
    best: The best configuration of every method that has one.
    flags: Those that are shown.
    judge: Says what is better.
  """
  rows = []
  for method in verdicts.ranked(best, judge):
    settings = best[method].settings
    words = verdicts.settings_words(settings, flags, settings.get('task'))
    rows.append(
      [
        Cell(method),
        Cell(words, words=True),
        Cell('', words=True, flags=as_flags(settings, flags)),
      ]
    )
  return Table(['method', 'in words', 'as flags'], rows)


def of_unfinished(
  folder: pathlib.Path,
  sweep: Optional[sweeps.SweepRecord],
  runs: Sequence[results.Run],
) -> Optional[Table]:
  """Lists the runs that have no result, and why."""
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
