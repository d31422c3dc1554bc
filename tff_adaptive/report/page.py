"""One page about many runs: figures, tables, the best of every method.

Here is what the page says; `page.html` has how it is written. The page is a
single file that opens from disk: figures are inside it, there is no script, and
a policy in its head forbids the browser to load anything.
"""

import base64
import dataclasses
import io
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import jinja2

from tff_adaptive import errors
from tff_adaptive.algorithms import methods
from tff_adaptive.recording import files
from tff_adaptive.recording import formatting
from tff_adaptive.recording import metric_names
from tff_adaptive.report import figures as plots
from tff_adaptive.report import runs as results
from tff_adaptive.report import scores
from tff_adaptive.report import sections
from tff_adaptive.report import sweeps

_RATES = ('client_learning_rate', 'server_learning_rate', 'server_adaptivity')
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
)


@dataclasses.dataclass(frozen=True)
class _Cell:
  """A cell of a table.

  Attributes:
    text: What it says; a dash where it is empty.
    best: Whether it is the best of its column.
    words: Whether it may be long, and break.
    code: Whether it is set as flags are.
  """

  text: str
  best: bool = False
  words: bool = False
  code: bool = False


@dataclasses.dataclass(frozen=True)
class _Table:
  head: Sequence[str]
  rows: Sequence[Sequence[_Cell]]


@dataclasses.dataclass(frozen=True)
class _Part:
  """A section as the page shows it.

  Attributes:
    heading: Its heading.
    setting: Its flags in a line.
    table: Of results, if any configuration is finished.
    missing: Methods without one.
    figures: The figures with their SVG images in base 64, by heading.
  """

  heading: str
  setting: str
  table: Optional[_Table]
  missing: Sequence[str]
  figures: Mapping[str, Sequence[tuple[plots.Figure, str]]]


def _flag_words(flags: Mapping[str, Any]) -> str:
  """Writes flags and their values in a line."""
  return ', '.join(f'{name}={value}' for name, value in flags.items())


def _result_table(
  section: sections.Section,
  best: Mapping[str, sections.Configuration],
  judge: sections.Judge,
) -> _Table:
  """Tabulates methods by measures, the best of every column in bold.

  Args:
    section: All configurations of the methods.
    best: The best configuration of every method that has one.
    judge: Says what is better.
  """
  measures = [m for m in _MEASURES if any(best[n].values(m[0]) for n in best)]
  metric = metric_names.short(section.metric) if section.metric else 'metric'
  varying = [f for f in sections.varied(section) if f not in sections.SETTING]
  flags = [f for f in _RATES if f not in varying] + varying
  central = judge.best(
    [c for m, c in best.items() if not methods.has_clients(m.partition(' ')[0])]
  )
  head = ['method', 'runs']
  head += [heading.format(metric=metric) for _, heading, _ in measures]
  if central is not None:
    head.append('gap to centralized')
  head.append('configuration')
  tops = {
    measure: scores.unique_best(
      [c.mean(measure) for c in best.values()],
      less=not judge.more_is_better if less is None else less,
    )
    for measure, _, less in measures
  }
  rows = []
  for method in sorted(best, key=lambda m: scores.mean(judge.score(best[m]))):
    configuration = best[method]
    cells = [_Cell(method), _Cell(f'{len(configuration.runs)}')]
    cells += [_measure_cell(configuration, m, top) for m, top in tops.items()]
    if central is not None:
      gap = central.mean(judge.measure) - configuration.mean(judge.measure)
      cells.append(_Cell(f'{gap:+.4f}'))
    settings = configuration.settings
    words = _flag_words(
      {f: settings[f] for f in flags if settings.get(f) is not None}
    )
    cells.append(_Cell(words, words=True, code=True))
    rows.append(cells)
  return _Table(head, rows)


def _measure_cell(
  configuration: sections.Configuration, measure: str, top: Optional[float]
) -> _Cell:
  values = configuration.values(measure)
  if not values:
    return _Cell('\N{EN DASH}')
  return _Cell(
    _spread(values, of=len(configuration.runs)),
    best=scores.mean(values) == top,
  )


def _spread(values: Sequence[float], of: int) -> str:
  """Writes a mean over seeds, and how far they are from each other.

  Two seeds leave one degree of freedom, and an interval that says nothing:
  there is their range instead.

  Args:
    values: The seeds'.
    of: How many seeds there are, with those that have no value.
  """
  text = formatting.number(scores.mean(values))
  low, high = formatting.number(min(values)), formatting.number(max(values))
  notes = []
  if len(values) >= scores.SEEDS_FOR_AN_INTERVAL and low != high:
    text += f' ± {scores.interval(values):.2g}'
  elif low != high:
    notes = [f'{low} to {high}', f'n = {len(values)}']
  if len(values) < of:
    notes = [*notes[:1], f'n = {len(values)}']
  return text + (f' ({", ".join(notes)})' if notes else '')


def _draw(
  section: sections.Section, judge: sections.Judge
) -> tuple[list[plots.Figure], dict[str, sections.Configuration]]:
  """Draws the figures of a section, from the best of every method."""
  best = {}
  for method, configurations in section.by_method.items():
    chosen = judge.best(configurations)
    if chosen is not None:
      best[method] = chosen
  figures = [
    plots.curves(best, judge),
    plots.against_bytes(best, judge),
    *(
      plots.heat_map(method, configurations, judge)
      for method, configurations in section.by_method.items()
    ),
    plots.best_server_rates(section.by_method, judge),
    plots.adaptivity(section.by_method, judge),
    plots.sorted_sweeps(section.by_method, judge),
    plots.step_sizes(best),
  ]
  return [f for f in figures if f is not None], best


def _image(figure: Any, format_: str) -> bytes:
  import matplotlib  # pylint: disable=g-import-not-at-top

  buffer = io.BytesIO()
  # The same data give the same file: neither dates nor random names in it.
  with matplotlib.rc_context({'svg.hashsalt': 'report'}):
    metadata = {'Date': None} if format_ == 'svg' else {}
    figure.savefig(buffer, format=format_, metadata=metadata)
  return buffer.getvalue()


def _unfinished(
  folder: pathlib.Path,
  sweep: Optional[sweeps.SweepRecord],
  runs: Sequence[results.Run],
) -> Optional[_Table]:
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
  return _Table(
    ['run', 'status', 'reason'],
    [
      [_Cell(name), _Cell(status), _Cell(reason, words=True)]
      for name, status, reason in rows
    ],
  )


def _choose_rule(
  folder: pathlib.Path,
  sweep: Optional[sweeps.SweepRecord],
  select: Optional[str],
) -> scores.SelectionRule:
  if select is None:
    select = scores.DEFAULT if sweep is None else sweep.select
  if select not in scores.RULES:
    raise errors.SettingsError(
      f'{files.RunFolder(folder).sweep} names the rule {select!r:.40}, which '
      'there is not; give one with --select.'
    )
  return scores.RULES[select]


def _show(
  section: sections.Section,
  shared: Sequence[str],
  rule: scores.SelectionRule,
  prefix: str,
) -> tuple[_Part, dict[str, bytes]]:
  """Draws a section.

  Args:
    section: Its runs.
    shared: Flags that all sections have in common.
    rule: By which configurations are chosen.
    prefix: Of the names of its figures' files.

  Returns:
    The section as the page shows it, and the figures by the names of their
    files.
  """
  judge = sections.Judge(rule, section.metric)
  differs = _flag_words(
    {
      k: v
      for k, v in section.setting.items()
      if k not in shared and k != 'task'
    }
  )
  name = section.setting.get('task', 'runs')
  figures, best = _draw(section, judge)
  made: dict[str, bytes] = {}
  shown: dict[str, list[tuple[plots.Figure, str]]] = {}
  for figure in figures:
    svg = _image(figure.figure, 'svg')
    made[f'{prefix}{figure.name}.svg'] = svg
    made[f'{prefix}{figure.name}.png'] = _image(figure.figure, 'png')
    encoded = base64.b64encode(svg).decode('ascii')
    shown.setdefault(figure.title, []).append((figure, encoded))
  part = _Part(
    heading=f'{name} ({differs})' if differs else name,
    setting=_flag_words(section.setting),
    table=_result_table(section, best, judge) if best else None,
    missing=[m for m in section.by_method if m not in best],
    figures=shown,
  )
  return part, made


def write(
  folder: pathlib.Path,
  *,
  select: Optional[str] = None,
  output: Optional[pathlib.Path] = None,
) -> tuple[pathlib.Path, list[str]]:
  """Writes the report.

  Args:
    folder: With runs in it, at any depth.
    select: A rule's name; the sweep's own unless given.
    output: Where to write; `folder` unless given.

  Returns:
    The page, and a sentence about each run that could not be read.

  Raises:
    SettingsError: If there are no runs with results.
  """
  runs, complaints = results.find(folder)
  runs = [run for run in runs if run.rows]
  if not runs:
    raise errors.SettingsError(
      complaints[0] if complaints else f'There is no run in {folder}.'
    )
  sweep = sweeps.read(folder)
  rule = _choose_rule(folder, sweep, select)
  output = output or folder
  files.check_writable(output, '--output')
  every = sections.sections(runs)
  shared = [
    k
    for k in every[0].setting
    if len({repr(s.setting.get(k)) for s in every}) == 1
  ]
  made: dict[str, bytes] = {}
  parts = []
  for number, section in enumerate(every, start=1):
    prefix = '' if len(every) == 1 else f'{number}_'
    part, drawn = _show(section, shared, rule, prefix)
    parts.append(part)
    made |= drawn
  page = _template().render(
    title=f'Results in {folder.resolve().name}',
    runs=runs,
    rule=rule,
    parts=parts,
    unfinished=_unfinished(folder, sweep, runs),
    complaints=complaints,
  )
  return _save(output, page, made), complaints


def _template() -> jinja2.Template:
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
  )
  return environment.get_template('page.html')


def _save(
  output: pathlib.Path, page: str, figures: Mapping[str, bytes]
) -> pathlib.Path:
  """Writes the figures and the page that has them; returns the page."""
  pictures = output / 'figures'
  files.make_folder(pictures)
  for file, content in figures.items():
    files.write_atomically(pictures / file, content)
  path = output / 'report.html'
  files.write_atomically(path, formatting.printable(page).encode('utf-8'))
  return path
