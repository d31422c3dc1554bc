"""Tables of the results of methods, for the page, a terminal or a paper."""

import csv
import dataclasses
import io
import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

from tff_adaptive.algorithms import methods
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.report import runs as runs_lib
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import spreads
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.report import verdict as verdicts

# Headings of the columns that are not measures.
_FIRST = ('Method', 'Settings tried', 'Seeds')
# Measure, heading, and whether lower is better (`None`: depends on the metric).
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
class Column:
  """A column of numbers.

  Attributes:
    heading: The heading, such as 'Test accuracy (%)'.
    cells: One cell per method.
    share: Whether numbers are in percent.
    less: Whether lower is better; `None` if the column is not ranked.
  """

  heading: str
  cells: Sequence[Optional[spreads.Spread]]
  share: bool = False
  less: Optional[bool] = None

  def texts(self) -> list[tuple[str, str]]:
    """Formats the cells with equal decimals, as (number, interval)."""
    places = spreads.decimals(self.cells, share=self.share)
    return [spreads.texts(cell, places) for cell in self.cells]

  def best(self) -> Optional[int]:
    """Returns the index of the unique best number; `None` if there is none."""
    if self.less is None:
      return None
    there = [(c.mean, i) for i, c in enumerate(self.cells) if c is not None]
    if len(there) < 2:
      return None
    _, place = (min if self.less else max)(there)
    texts = [text for text, _ in self.texts()]
    return None if texts.count(texts[place]) > 1 else place


@dataclasses.dataclass(frozen=True)
class Results:
  """The results of one experiment, the best method first.

  Attributes:
    methods: Printed names of the methods.
    tried: Number of configurations tried, per method.
    seeds: Number of runs behind the results, per method, as text.
    columns: The columns of numbers.
  """

  methods: Sequence[str]
  tried: Sequence[int]
  seeds: Sequence[str]
  columns: Sequence[Column]

  def head(self) -> list[str]:
    """Lists the headings."""
    return [*_FIRST, *(column.heading for column in self.columns)]


def tabulate(
  section: sections.Section,
  best: Mapping[str, sections.Configuration],
  judge: sections.Judge,
  target: Optional[float] = None,
) -> Results:
  """Tabulates methods by measures.

  Args:
    section: All configurations of the methods.
    best: The best configuration of every method that has one.
    judge: The judge of the experiment.
    target: Value of the validation metric (or loss) until which rounds and
      seconds are counted; the best that all runs reach, unless given.
  """
  order = verdicts.ranked(best, judge)
  chosen = [best[method] for method in order]
  metric = metric_names.short(section.metric) if section.metric else 'metric'
  columns = []
  for measure, words, less in _MEASURES:
    is_metric = measure.endswith('/metric')
    share = is_metric and metric_names.is_share(section.metric or '')
    bounds = scores.measure_bounds(measure, judge.metric)
    cells = [
      spreads.spread(
        c.values(measure), bounds, planned=len(c.runs), share=share
      )
      for c in chosen
    ]
    if any(cells):
      columns.append(
        Column(
          printed_names.heading(
            words.format(metric=metric), section.metric if is_metric else None
          ),
          cells,
          share,
          not judge.more_is_better if less is None else less,
        )
      )
  columns += _until(chosen, judge, target)
  columns += _gaps(chosen, judge)
  printed = printed_names.methods(list(section.by_method))
  return Results(
    [printed[method] for method in order],
    [len(section.by_method[method]) for method in order],
    [c.seeds for c in chosen],
    columns,
  )


def _until(
  chosen: Sequence[sections.Configuration],
  judge: sections.Judge,
  target: Optional[float],
) -> list[Column]:
  """Returns columns of rounds and seconds until a level is reached."""
  level = target
  if level is None:
    level = runs_lib.common_level([run for c in chosen for run in c.runs])
  if level is None:
    return []
  shown = f'{100 * level:.4g} %' if judge.is_share else formatting.number(level)
  ways: dict[str, Callable[[runs_lib.Run, float], Optional[float]]] = {
    'Rounds': runs_lib.Run.rounds_to,
    'Seconds': runs_lib.Run.seconds_to,
    'Virtual seconds': runs_lib.Run.virtual_seconds_to,
  }
  columns = []
  for words, way in ways.items():
    cells = []
    for configuration in chosen:
      found = [way(run, level) for run in configuration.runs]
      cells.append(
        spreads.spread(
          [value for value in found if value is not None],
          (0.0, math.inf),
          planned=len(found),
        )
      )
    if any(cells):
      heading = f'{words} to {shown} {judge.label}'
      columns.append(Column(heading, cells, less=True))
  return columns


def _gaps(
  chosen: Sequence[sections.Configuration], judge: sections.Judge
) -> list[Column]:
  """Returns a column of gaps to the best centralized training, if any."""
  central = judge.best(
    [c for c in chosen if not methods.has_clients(c.method.partition(' ')[0])]
  )
  if central is None:
    return []
  top = central.mean(judge.measure)
  cells = [
    spreads.spread(
      [top - configuration.mean(judge.measure)],
      (-math.inf, math.inf),
      share=judge.is_share,
    )
    for configuration in chosen
  ]
  return [
    Column(
      printed_names.heading('gap to centralized', judge.metric),
      cells,
      judge.is_share,
    )
  ]


def as_csv(results: Results) -> str:
  """Formats results as CSV, with unrounded numbers.

  The ends of intervals have columns of their own; intervals of two seeds are
  their range. A cell without a number is empty.
  """
  head = [*_FIRST]
  for column in results.columns:
    ends = (f'{column.heading}, {end}' for end in ('low', 'high', 'runs'))
    head += [column.heading, *ends]
  buffer = io.StringIO()
  writer = csv.writer(buffer, lineterminator='\n')
  writer.writerow(head)
  for i, method in enumerate(results.methods):
    row = [sweeps.cell(method), results.tried[i], results.seeds[i]]
    for column in results.columns:
      cell = column.cells[i]
      if cell is None:
        row += [''] * 4
      else:
        ends = (
          '' if end is None else f'{end:.6g}' for end in (cell.low, cell.high)
        )
        row += [f'{cell.mean:.6g}', *ends, cell.count]
    writer.writerow(row)
  return buffer.getvalue()


def joined(tables: Mapping[str, str]) -> str:
  """Joins tables of `as_csv` into one, with a column for their titles."""
  read = {
    t: list(csv.DictReader(io.StringIO(text))) for t, text in tables.items()
  }
  heads = (name for rows in read.values() for row in rows for name in row)
  buffer = io.StringIO()
  writer = csv.DictWriter(
    buffer,
    ['Experiment', *dict.fromkeys(heads)],
    restval='',
    lineterminator='\n',
  )
  writer.writeheader()
  for title, rows in read.items():
    writer.writerows({'Experiment': sweeps.cell(title), **row} for row in rows)
  return buffer.getvalue()


def as_markdown(results: Results) -> str:
  """Formats results as a Markdown table, the best of every column in bold."""
  rows = [results.head(), ['---', *['---:'] * (len(results.head()) - 1)]]
  rows += _rows(results, lambda text: f'**{text}**', _markdown)
  return ''.join(f'| {" | ".join(row)} |\n' for row in rows)


def as_latex(results: Results) -> str:
  """Formats results as a LaTeX tabular, which needs \\usepackage{booktabs}."""
  head = [_latex(heading) for heading in results.head()]
  rows = _rows(
    results,
    lambda text: f'\\textbf{{{text}}}',
    _latex,
    beside=lambda text: f'{{\\scriptsize {text}}}',
  )
  lines = [
    '% \\usepackage{booktabs}',
    f'\\begin{{tabular}}{{l{"r" * (len(head) - 1)}}}',
    '\\toprule',
    f'{" & ".join(head)} \\\\',
    '\\midrule',
    *(f'{" & ".join(row)} \\\\' for row in rows),
    '\\bottomrule',
    '\\end{tabular}',
  ]
  return '\n'.join(lines) + '\n'


def as_text(results: Results) -> str:
  """Formats results for the terminal, the best of every column with a star."""
  rows = _rows(results, lambda text: f'{text}*', lambda text: text)
  return '\n'.join(formatting.aligned([results.head(), *rows], left=1))


def _rows(
  results: Results,
  mark: Callable[[str], str],
  escape: Callable[[str], str],
  beside: Callable[[str], str] = lambda text: text,
) -> list[list[str]]:
  """Formats rows; `mark` marks the best and `beside` formats intervals."""
  columns = []
  for column in results.columns:
    top = column.best()
    cells = []
    for i, (text, note) in enumerate(column.texts()):
      shown = escape(text)
      shown = mark(shown) if i == top else shown
      cells.append(f'{shown} {beside(escape(note))}' if note else shown)
    columns.append(cells)
  return [
    [
      escape(method),
      f'{results.tried[i]}',
      results.seeds[i],
      *(column[i] for column in columns),
    ]
    for i, method in enumerate(results.methods)
  ]


def _markdown(text: str) -> str:
  """Escapes Markdown's special characters; nothing here needs brackets."""
  for letter in '\\`*_|<':
    text = text.replace(letter, f'\\{letter}')
  return ' '.join(formatting.printable(text).split())


_LATEX = {
  '\\': r'\textbackslash{}',
  '{': r'\{',
  '}': r'\}',
  '%': r'\%',
  '&': r'\&',
  '#': r'\#',
  '$': r'\$',
  '_': r'\_',
  '~': r'\textasciitilde{}',
  '^': r'\textasciicircum{}',
  '\N{EN DASH}': '--',
  '\N{GREEK CAPITAL LETTER DELTA}': r'$\Delta$',
  '\N{SUPERSCRIPT TWO}': r'$^2$',
}


def _latex(text: str) -> str:
  text = ' '.join(formatting.printable(text).split())
  return ''.join(_LATEX.get(letter, letter) for letter in text)


# File ending and writer, by name of the format.
FORMATS: Mapping[str, tuple[str, Callable[[Results], str]]] = {
  'csv': ('csv', as_csv),
  'markdown': ('md', as_markdown),
  'latex': ('tex', as_latex),
}
