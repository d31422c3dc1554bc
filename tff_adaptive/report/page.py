"""One page about many runs: a verdict, tables, figures.

Here is what the page says; `page.html` has how it is written and `page.js` how
it behaves. The page is a single file that opens from disk: its figures and what
draws them (Plotly) are inside it, once, and a policy in its head lets the
browser run these two scripts and load nothing.
"""

import base64
import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import jinja2
import markupsafe
from plotly import offline

from tff_adaptive import errors
from tff_adaptive.algorithms import methods
from tff_adaptive.recording import files
from tff_adaptive.recording import formatting
from tff_adaptive.recording import metric_names
from tff_adaptive.recording import styles
from tff_adaptive.report import charts
from tff_adaptive.report import figures as plots
from tff_adaptive.report import interactive
from tff_adaptive.report import runs as results
from tff_adaptive.report import scores
from tff_adaptive.report import sections
from tff_adaptive.report import static
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
_HERE = pathlib.Path(__file__).parent
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
class _Table:
  head: Sequence[str]
  rows: Sequence[Sequence[_Cell]]


@dataclasses.dataclass(frozen=True)
class _Key:
  """What stands for a method below a figure.

  Attributes:
    method: Its name.
    svg: A piece of its line.
    light: Its colour on a light page.
    dark: The same on a dark one.
  """

  method: str
  svg: markupsafe.Markup
  light: str
  dark: str


@dataclasses.dataclass(frozen=True)
class _Shown:
  """A figure as the page shows it.

  Attributes:
    id: By which the page's script finds it.
    caption: What it shows.
    height: In pixels.
    keys: Of the methods in it; none where a figure is of one method only.
  """

  id: str
  caption: str
  height: int
  keys: Sequence[_Key]


@dataclasses.dataclass(frozen=True)
class _Part:
  """A section as the page shows it.

  Attributes:
    heading: Its heading.
    verdict: Which method is best, if any has a result.
    shared: The flags of all its runs.
    table: Of results, if any configuration is finished.
    settings: Of the best configuration of every method.
    missing: Methods without a result.
    figures: The figures by heading.
    clients: What trained models are worth to single clients.
    final: What else is known of the trained models.
    folded: Those that are shown when asked for.
    constant: What is the same in every round, in words.
  """

  heading: str
  verdict: Optional[verdicts.Verdict]
  shared: Sequence[str]
  table: Optional[_Table]
  settings: Optional[_Table]
  missing: Sequence[str]
  figures: Mapping[str, Sequence[_Shown]]
  clients: Optional[_Table]
  final: Optional[_Table]
  folded: Mapping[str, Sequence[_Shown]]
  constant: str


def _as_flags(settings: Mapping[str, Any], names: Sequence[str]) -> list[str]:
  """Writes settings as a command line has them."""
  return [f'--{n}={settings[n]}' for n in names if settings.get(n) is not None]


def _named_flags(section: sections.Section) -> list[str]:
  """Lists the flags that tell configurations apart, learning rates first."""
  varying = [f for f in sections.varied(section) if f not in sections.SETTING]
  return list(dict.fromkeys((*_RATES, *varying)))


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
  central = judge.best(
    [c for m, c in best.items() if not methods.has_clients(m.partition(' ')[0])]
  )
  head = ['method', 'seeds']
  head += [heading.format(metric=metric) for _, heading, _ in measures]
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
    cells = [_Cell(method), _Cell(f'{len(configuration.runs)}')]
    cells += [
      _measure_cell(configuration, m, top, judge) for m, top in tops.items()
    ]
    if central is not None:
      gap = central.mean(judge.measure) - configuration.mean(judge.measure)
      cells.append(_Cell(f'{gap:+.4f}'))
    rows.append(cells)
  return _Table(head, rows)


def _measure_cell(
  configuration: sections.Configuration,
  measure: str,
  top: Optional[float],
  judge: sections.Judge,
) -> _Cell:
  values = configuration.values(measure)
  if not values:
    return _Cell('\N{EN DASH}')
  bounds = scores.measure_bounds(measure, judge.metric)
  shown = verdicts.spread(values, bounds, of=len(configuration.runs))
  text, _, note = shown.partition(' ')
  return _Cell(text, note, best=scores.mean(values) == top)


def _clients_table(
  best: Mapping[str, sections.Configuration], judge: sections.Judge
) -> Optional[_Table]:
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
        cells = [_Cell(f'{method}, {after}' if after else method)]
        for values in found:
          shown = (
            verdicts.spread(values, bounds, of=len(runs)) if values else ''
          )
          text, _, note = shown.partition(' ')
          cells.append(_Cell(text or '\N{EN DASH}', note))
        rows.append(cells)
  head = ['method', *_OVER_CLIENTS.values()]
  return _Table(head, rows) if rows else None


def _final_table(
  best: Mapping[str, sections.Configuration],
  columns: Sequence[str],
  judge: sections.Judge,
) -> Optional[_Table]:
  """Tabulates columns that only the last round has, a row a column."""
  order = verdicts.ranked(best, judge)
  rows = []
  for column in columns:
    cells = [_Cell(plots.column_words(column))]
    for method in order:
      runs = best[method].runs
      last = [run.rows[-1] for run in runs]
      values = [row[column] for row in last if column in row]
      if values:
        bounds = metric_names.bounds(column)
        shown = verdicts.spread(values, bounds, of=len(runs))
        text, _, note = shown.partition(' ')
        cells.append(_Cell(text, note))
      else:
        cells.append(_Cell('\N{EN DASH}'))
    rows.append(cells)
  return _Table(['', *order], rows) if rows else None


def _settings_table(
  best: Mapping[str, sections.Configuration],
  flags: Sequence[str],
  judge: sections.Judge,
) -> _Table:
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
        _Cell(method),
        _Cell(words, words=True),
        _Cell('', words=True, flags=_as_flags(settings, flags)),
      ]
    )
  return _Table(['method', 'in words', 'as flags'], rows)


def _choose(
  section: sections.Section, judge: sections.Judge
) -> dict[str, sections.Configuration]:
  """Chooses the best configuration of every method that has one."""
  best = {}
  for method, configurations in section.by_method.items():
    chosen = judge.best(configurations)
    if chosen is not None:
      best[method] = chosen
  return best


def _draw(
  section: sections.Section,
  best: Mapping[str, sections.Configuration],
  judge: sections.Judge,
) -> list[charts.Figure]:
  """Draws the figures of a section that have names of their own."""
  figures: list[Optional[charts.Figure]] = [
    *plots.curves(best, judge),
    plots.against_time(best, judge),
    plots.against_bytes(best, judge),
    *(
      plots.heat_map(method, configurations, judge)
      for method, configurations in section.by_method.items()
    ),
    plots.best_server_rates(section.by_method, judge),
    plots.adaptivity(section.by_method, judge),
    plots.sorted_sweeps(section.by_method, judge),
    *plots.step_sizes(best),
    *plots.single_clients(best, judge),
  ]
  return [f for f in figures if f is not None]


def _key(method: str) -> _Key:
  light = styles.of_method(method)['color']
  svg = markupsafe.Markup(interactive.key(method))
  return _Key(method, svg, light, styles.DARK[light])


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


@dataclasses.dataclass
class _Drawing:
  """The figures that were drawn until now.

  Attributes:
    prefix: Of the names of a section's figures.
    files: Pictures for papers, by the names of their files.
    described: Plotly's figures, by the names that the page's script knows.
  """

  prefix: str = ''
  files: dict[str, bytes] = dataclasses.field(default_factory=dict)
  described: dict[str, Any] = dataclasses.field(default_factory=dict)

  def add(self, chart: charts.Figure, *, pictures: bool = True) -> _Shown:
    """Draws a chart for the page and, if asked for, for papers."""
    name = f'{self.prefix}{chart.name}'
    if pictures:
      figure = static.draw(chart)
      for ending in ('svg', 'png'):
        self.files[f'{name}.{ending}'] = static.image(figure, ending)
    described = interactive.draw(chart)
    self.described[name] = described
    several = chart.methods if isinstance(chart, charts.Chart) else []
    return _Shown(
      name,
      chart.caption,
      described['layout']['height'],
      [_key(method) for method in several],
    )


def _differing(
  section: sections.Section, every: Sequence[sections.Section]
) -> list[str]:
  """Names the flags by which a section is not another one of its task."""
  settings = [s.setting for s in every]
  mine = section.setting
  same = [s for s in settings if s.get('task') == mine.get('task')]
  return [k for k in mine if any(s.get(k) != mine[k] for s in same)]


def _show(
  section: sections.Section,
  differing: Sequence[str],
  rule: scores.SelectionRule,
  drawing: _Drawing,
) -> _Part:
  """Draws a section.

  Args:
    section: Its runs.
    differing: Flags that others of its task have otherwise.
    rule: By which configurations are chosen.
    drawing: Gets the section's figures.

  Returns:
    The section as the page shows it.
  """
  judge = sections.Judge(rule, section.metric)
  task = section.setting.get('task', 'runs')
  words = verdicts.settings_words(section.setting, differing, task)
  best = _choose(section, judge)
  flags = _named_flags(section)
  shown: dict[str, list[_Shown]] = {}
  for chart in _draw(section, best, judge):
    shown.setdefault(chart.title, []).append(drawing.add(chart))
  clients = _clients_table(best, judge)
  if clients is not None:
    shown.setdefault(plots.SINGLE_CLIENTS, [])
  more, constant, final = plots.everything_else(
    best, ('train/loss', judge.column)
  )
  for chart in more.pop(plots.CLIENTS, []):
    shown.setdefault(chart.title, []).append(drawing.add(chart))
  return _Part(
    heading=f'{task}, {words}' if words else task,
    verdict=verdicts.reach(section, best, judge, flags),
    shared=_as_flags(section.setting, list(section.setting)),
    table=_result_table(section, best, judge) if best else None,
    settings=_settings_table(best, flags, judge) if best else None,
    missing=[m for m in section.by_method if m not in best],
    figures=shown,
    clients=clients,
    final=_final_table(best, final, judge),
    folded={
      heading: [drawing.add(chart, pictures=False) for chart in found]
      for heading, found in more.items()
    },
    constant=', '.join(
      f'{words} {formatting.number(value)}' for words, value in constant.items()
    ),
  )


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
  drawing = _Drawing()
  parts = []
  for number, section in enumerate(every, start=1):
    drawing.prefix = '' if len(every) == 1 else f'{number}_'
    parts.append(_show(section, _differing(section, every), rule, drawing))
  script = (_HERE / 'page.js').read_text(encoding='utf-8')
  plotly = offline.get_plotlyjs()
  page = _template().render(
    title=f'Results in {folder.resolve().name}',
    runs=runs,
    rule=rule,
    parts=parts,
    unfinished=_unfinished(folder, sweep, runs),
    complaints=complaints,
    over_seeds=plots.OVER_SEEDS,
    single_clients=plots.SINGLE_CLIENTS,
    data={'figures': drawing.described, 'dark': styles.DARK},
    policy=markupsafe.Markup(f'{_digest(plotly)} {_digest(script)}'),
    plotly=markupsafe.Markup(plotly),
    script=markupsafe.Markup(script),
  )
  return _save(output, page, drawing.files), complaints


def _digest(script: str) -> str:
  """Names a script in a page's policy, which then runs no other."""
  digest = hashlib.sha256(script.encode('utf-8')).digest()
  return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _template() -> jinja2.Template:
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_HERE),
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
