"""Tables of the results of methods, for the page, a terminal or a paper."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import runs as runs_lib
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lazy import pandas as pd

# Measure, heading, and whether lower is better; `None` if that depends on the
# metric, or if a measure that is not of the metric is not ranked.
_MEASURES: tuple[tuple[str, str, Optional[bool]], ...] = (
  ('train/loss', 'training loss', True),
  ('validation/loss', 'validation loss', True),
  ('validation/metric', 'validation {metric}', None),
  ('best/metric', 'best validation {metric}', None),
  ('test/metric', 'test {metric}', None),
  ('test/loss', 'test loss', True),
  ('megabytes', 'megabytes sent', True),
  ('first_seconds', 'seconds of round 1', None),
  ('seconds', 'seconds after round 1', True),
  ('virtual_seconds', 'virtual seconds', True),
)
_UNTIL = {
  'Rounds': 'round',
  'Seconds': 'seconds',
  'Virtual seconds': metric_names.VIRTUAL_SECONDS,
}
_TRIED, _SEEDS, _BEHIND = 'Settings tried', 'Seeds', 'Behind the best'
_DASH = '\N{EN DASH}'


@dataclasses.dataclass(frozen=True)
class Column:
  """A column of numbers.

  Attributes:
    heading: The heading, such as 'Test accuracy (%)'.
    cells: One cell per method.
    share: Whether numbers are in percent.
    less: Whether lower is better; `None` if the column is not ranked.
    most_decimals: The largest number of decimals.
    of_cost: Whether the numbers are costs, rather than the model's quality.
  """

  heading: str
  cells: Sequence[Optional[scores.Mean]]
  share: bool = False
  less: Optional[bool] = None
  most_decimals: int = 6
  of_cost: bool = False

  def texts(self) -> list[tuple[str, str]]:
    """Formats the cells with equal decimals, as (number, interval)."""
    scale = 100.0 if self.share else 1.0
    there = [c for c in self.cells if c is not None]
    sizes = [abs(scale * c.mean) for c in there if c.mean]
    # Two digits of the intervals, or four of the numbers, but no number as 0.
    widths = [
      scale * (c.high - c.low) / 2
      for c in there
      if c.low is not None and c.high is not None and c.count > 2
    ]
    decimals = 0
    if sizes and not self._whole:
      middle = statistics.median(widths) if any(widths) else 0.0
      decimals = (
        1 - math.floor(math.log10(middle))
        if middle
        else 3 - math.floor(math.log10(statistics.median(sizes)))
      )
      visible = -math.floor(math.log10(min(sizes)))
      decimals = min(max(decimals, visible, 0), self.most_decimals)
      if self.share:
        decimals = min(max(decimals, 1), 2)
    return [
      (_DASH, '') if c is None else c.text(decimals, scale) for c in self.cells
    ]

  @property
  def _whole(self) -> bool:
    """Whether all numbers are whole, as rounds are."""
    ends = [e for c in self.cells if c for e in (c.mean, c.low, c.high)]
    return not self.share and all(e is None or e % 1 == 0 for e in ends)

  def best(self) -> Optional[int]:
    """Returns the index of the unique best number; `None` if there is none."""
    there = [(c.mean, i) for i, c in enumerate(self.cells) if c is not None]
    if self.less is None or len(there) < 2:
      return None
    # A level that few of its seeds reach is not reached sooner.
    if self.of_cost and any(c and c.count < c.planned for c in self.cells):
      return None
    _, place = (min if self.less else max)(there)
    texts = [text for text, _ in self.texts()]
    return None if texts.count(texts[place]) > 1 else place


@dataclasses.dataclass(frozen=True)
class Results:
  """The results of one experiment, the best method first.

  Attributes:
    words: The first columns, of words, by heading: the method, numbers of
      settings and of seeds, and how far a method is behind the best.
    columns: The columns of numbers.
  """

  words: Mapping[str, Sequence[str]]
  columns: Sequence[Column]

  @property
  def parts(self) -> list[Results]:
    """Tables of quality and of costs, which fit on a page; or the whole."""
    costs = [column for column in self.columns if column.of_cost]
    others = [column for column in self.columns if not column.of_cost]
    if not costs or not others:
      return [self]
    return [
      Results({w: c for w, c in self.words.items() if w not in left}, columns)
      for left, columns in (((_TRIED, _SEEDS), others), ((_BEHIND,), costs))
    ]

  @property
  def head(self) -> list[str]:
    """The headings."""
    return [*self.words, *(column.heading for column in self.columns)]

  def rows(
    self,
    mark: Callable[[str], str] = lambda text: text,
    escape: Callable[[str], str] = lambda text: text,
    beside: Callable[[str], str] = lambda text: text,
  ) -> list[list[str]]:
    """Formats the rows.

    Args:
      mark: Marks the best number of a column.
      escape: Escapes text.
      beside: Formats intervals.
    """
    columns = [list(map(escape, cells)) for cells in self.words.values()]
    for column in self.columns:
      best = column.best()
      cells = []
      for i, (text, note) in enumerate(column.texts()):
        shown = mark(escape(text)) if i == best else escape(text)
        cells.append(f'{shown} {beside(escape(note))}' if note else shown)
      columns.append(cells)
    return [list(row) for row in zip(*columns, strict=True)]

  def frame(self) -> pd.DataFrame:
    """Returns unrounded numbers; ends of intervals have own columns."""
    table: dict[str, Sequence[Any]] = {
      heading: [formatting.spreadsheet_cell(c) for c in cells]
      for heading, cells in self.words.items()
    }
    for column in self.columns:
      scale = 100.0 if column.share else 1.0
      for end in ('mean', 'low', 'high'):
        name = column.heading + ('' if end == 'mean' else f', {end}')
        table[name] = [
          math.nan if c is None or (v := getattr(c, end)) is None else scale * v
          for c in column.cells
        ]
      counts = pd.array([c and c.count for c in column.cells], dtype='Int64')
      table[f'{column.heading}, runs'] = counts
    return pd.DataFrame(table)


def tabulate(
  section: sections.Section,
  best: sections.Best,
  criterion: sections.Criterion,
  target: Optional[float] = None,
) -> Results:
  """Tabulates methods by measures.

  Args:
    section: All configurations of the methods.
    best: The best configuration of every method that has one, the best first.
    criterion: The criterion of the experiment.
    target: Value of the validation metric (or loss) until which rounds and
      seconds are counted; the best that all runs reach, unless given.
  """
  chosen = list(best.values())
  printed = formatting.methods(list(section.by_method))
  return Results(
    {
      'Method': [printed[method] for method in best],
      _TRIED: [f'{len(section.by_method[m])}' for m in best],
      _SEEDS: [c.seeds for c in chosen],
      _BEHIND: behind(best, criterion),
    },
    columns(chosen, criterion, target),
  )


def columns(
  chosen: Sequence[sections.Configuration],
  criterion: sections.Criterion,
  target: Optional[float] = None,
) -> list[Column]:
  """Returns the columns of numbers, a cell per configuration."""
  found = []
  for measure, words, less in _MEASURES:
    is_metric = measure.endswith('/metric')
    cells = [
      scores.mean_of(
        c.values(measure),
        metric_names.bounds((criterion.metric or '') if is_metric else 'loss'),
        planned=len(c.runs),
      )
      for c in chosen
    ]
    if less is None and is_metric and criterion.rises is not None:
      less = not criterion.rises
    if any(cells):
      heading = formatting.heading(
        words.format(metric=criterion.quality),
        criterion.metric if is_metric else None,
      )
      share = is_metric and criterion.is_share
      most = 2 if measure.endswith('seconds') else 6
      of_cost = '/' not in measure
      found.append(Column(heading, cells, share, less, most, of_cost))
  return [*found, *_until(chosen, criterion, target), *_gaps(chosen, criterion)]


def behind(best: sections.Best, criterion: sections.Criterion) -> list[str]:
  """Describes by how much each method is behind the best, and how sure that is.

  Differences of runs with the same seeds are taken in pairs. Training on pooled
  data does not compete.

  Args:
    best: The best configuration of every method, the best method first.
    criterion: The criterion of the experiment.
  """
  measure, more = criterion.comparison(best)
  factor = 1.0
  if measure.endswith('/metric') and criterion.is_share:
    factor = 100.0
  found = []
  first: Optional[sections.Configuration] = None
  for configuration in best.values():
    if not configuration.federated or not configuration.values(measure):
      found.append(_DASH)
    elif first is None:
      first = configuration
      found.append('best')
    else:
      found.append(_gap(first, configuration, measure, factor, more))
  return found


def _gap(
  first: sections.Configuration,
  other: sections.Configuration,
  measure: str,
  factor: float,
  more: bool,
) -> str:
  if formatting.number(first.mean(measure)) == formatting.number(
    other.mean(measure)
  ):
    return 'equal'
  sign = factor if more else -factor
  gap = sign * (first.mean(measure) - other.mean(measure))
  ends = scores.difference(first.by_seed(measure), other.by_seed(measure))
  if ends is None:
    return f'{gap:.2g}, too few seeds to tell'
  low, high = sorted(sign * end for end in ends)
  [texts] = Column('', [scores.Mean(gap, low, high, 3, 3)]).texts()
  shown = ' '.join(texts).rstrip()
  return shown if low > 0 else f'{shown}, perhaps by chance'


def _until(
  chosen: Sequence[sections.Configuration],
  criterion: sections.Criterion,
  target: Optional[float],
) -> list[Column]:
  """Returns columns of rounds and seconds until a level is reached."""
  level = target
  if level is None:
    level = runs_lib.common_level([run for c in chosen for run in c.runs])
  if level is None:
    return []
  shown = (
    f'{100 * level:.4g} %' if criterion.is_share else formatting.number(level)
  )
  columns = []
  for words, column in _UNTIL.items():
    cells = []
    for configuration in chosen:
      found = [run.until(level, column) for run in configuration.runs]
      cells.append(
        scores.mean_of(
          [value for value in found if value is not None],
          (0.0, math.inf),
          planned=len(found),
        )
      )
    # Not for a level of models that are not trained.
    if any(cell and cell.mean for cell in cells):
      heading = f'{words} to {shown} {criterion.label}'
      columns.append(
        Column(heading, cells, less=True, most_decimals=2, of_cost=True)
      )
  return columns


def _gaps(
  chosen: Sequence[sections.Configuration], criterion: sections.Criterion
) -> list[Column]:
  """Returns a column of gaps to the best centralized training, if any."""
  central = criterion.best([c for c in chosen if not c.federated])
  if central is None:
    return []
  top = central.mean(criterion.measure)
  sign = 1.0 if criterion.more_is_better else -1.0
  cells = [
    scores.mean_of([sign * (top - c.mean(criterion.measure))]) for c in chosen
  ]
  heading = formatting.heading('gap to centralized', criterion.metric)
  return [Column(heading, cells, criterion.is_share)]


def as_csv(results: Results) -> str:
  """Formats results as CSV, with unrounded numbers."""
  text: str = results.frame().to_csv(
    index=False, float_format='%.6g', lineterminator='\n'
  )
  return text


def as_markdown(results: Results) -> str:
  """Formats results as a Markdown table, the best of every column in bold."""
  rows = [results.head, ['---', *['---:'] * (len(results.head) - 1)]]
  rows += results.rows(lambda text: f'**{text}**', _markdown)
  return ''.join(f'| {" | ".join(row)} |\n' for row in rows)


def as_latex(results: Results) -> str:
  """Formats results as a LaTeX tabular, which needs \\usepackage{booktabs}."""
  rows = results.rows(
    lambda text: f'\\textbf{{{text}}}',
    formatting.latex,
    lambda text: f'{{\\scriptsize {text}}}',
  )
  head = map(formatting.latex, results.head)
  return formatting.latex_table(pd.DataFrame(rows, columns=list(head)))


def as_text(results: Results) -> str:
  """Formats results for the terminal, the best numbers with a star.

  There is a row per method, or a column if that is narrower.
  """
  table = [results.head, *results.rows(lambda text: f'{text}*')]
  forms = [
    formatting.aligned(cells, left=1)
    for cells in (table, list(zip(*table, strict=True)))
  ]
  return '\n'.join(min(forms, key=lambda lines: max(map(len, lines))))


def _markdown(text: str) -> str:
  """Escapes Markdown's special characters; nothing here needs brackets."""
  for letter in '\\`*_|<':
    text = text.replace(letter, f'\\{letter}')
  return ' '.join(formatting.printable(text).split())


# File ending and writer, by name of the format.
FORMATS: Mapping[str, tuple[str, Callable[[Results], str]]] = {
  'csv': ('csv', as_csv),
  'markdown': ('md', as_markdown),
  'latex': ('tex', as_latex),
}
