"""The report page: verdicts, tables and figures over many runs.

This module determines the content, `page.html` its markup and `page.js` its
behaviour. The page is a single file that opens from disk. It embeds its figures
and Vega, and a content security policy in its head lets the browser run these
two scripts and load nothing else.
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

from tff_adaptive import drawing
from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import panels
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import columns as columns_lib
from tff_adaptive.lab.report import figures as plots
from tff_adaptive.lab.report import results as results_lib
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import seeds
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.report import tables
from tff_adaptive.lab.report import tuning
from tff_adaptive.lab.report import verdict as verdicts
from tff_adaptive.lazy import vl_convert

_HERE = pathlib.Path(__file__).parent
# With more than `_MOST_COLOURS` methods, only the `_BEST` best have colours.
_MOST_COLOURS = 8
_BEST = 5
# The default reference, which always has a colour.
_REFERENCE = 'fedavg'


@dataclasses.dataclass(frozen=True)
class _Key:
  """A method's entry in the legend of a figure.

  Attributes:
    method: The method's name.
    style: The style of its line.
    dark: Its colour in the dark theme.
  """

  method: str
  style: styles.Style
  dark: str


@dataclasses.dataclass(frozen=True)
class _Shown:
  """A figure on the page.

  Attributes:
    id: The identifier for the page's script.
    caption: The caption.
    height: The height in pixels.
    keys: The legend; empty for a figure of a single method.
  """

  id: str
  caption: str
  height: int
  keys: Sequence[_Key]


@dataclasses.dataclass(frozen=True)
class _Part:
  """A section of the page.

  Attributes:
    heading: The heading.
    verdict: The verdict, if any method has a result.
    shared: The flags that all its runs share.
    table: The table of results, if any configuration has finished.
    settings: The table of the best configurations' settings.
    missing: Methods without a result.
    figures: Figures by heading.
    clients: The table of the trained models' quality on single clients.
    final: The table of further columns of the last round.
    folded: Figures by heading that are shown on demand.
    constant: Columns that are the same in every round, in words.
  """

  heading: str
  verdict: Optional[verdicts.Verdict]
  shared: Sequence[str]
  table: Optional[tables.Table]
  settings: Optional[tables.Table]
  missing: Sequence[str]
  figures: Mapping[str, Sequence[_Shown]]
  clients: Optional[tables.Table]
  final: Optional[tables.Table]
  folded: Mapping[str, Sequence[_Shown]]
  constant: str


def _draw(
  section: sections.Section,
  best: Mapping[str, sections.Configuration],
  judge: sections.Judge,
) -> list[charts.Figure]:
  """Builds the charts of a section that have names of their own."""
  by_method = {
    method: [c.as_chosen() for c in configurations]
    for method, configurations in section.by_method.items()
  }
  figures: list[Optional[charts.Figure]] = [
    *plots.curves(best, judge),
    plots.against_time(best, judge),
    plots.against_bytes(best, judge),
    *(
      tuning.heat_map(method, configurations, judge)
      for method, configurations in by_method.items()
    ),
    tuning.best_server_rates(by_method, judge),
    tuning.adaptivity(by_method, judge),
    tuning.sorted_sweeps(by_method, judge),
    *plots.step_sizes(best),
    *plots.single_clients(best, judge),
  ]
  return [f for f in figures if f is not None]


def _key(line: charts.Line) -> _Key:
  return _Key(line.method, line.style, styles.DARK[line.style.colour])


@dataclasses.dataclass
class _Drawing:
  """The figures and tables drawn so far.

  Attributes:
    prefix: Prefix of the names of a section's figures.
    colours: Colours by method; other methods are grey.
    files: Pictures for papers, by file name.
    tables: Tables for papers, by file name.
    described: Vega-Lite specifications of figures, by identifier.
  """

  prefix: str = ''
  colours: Mapping[str, str] = dataclasses.field(default_factory=dict)
  files: dict[str, bytes] = dataclasses.field(default_factory=dict)
  tables: dict[str, bytes] = dataclasses.field(default_factory=dict)
  described: dict[str, Any] = dataclasses.field(default_factory=dict)

  def add(self, chart: charts.Figure, *, pictures: bool = True) -> _Shown:
    """Draws a chart for the page and, if asked for, for papers."""
    name = f'{self.prefix}{chart.name}'
    chart = charts.printed(chart, self.colours)
    if pictures:
      drawn = drawing.images(panels.for_files(chart))
      for form, picture in drawn.items():
        self.files[f'{name}.{form}'] = picture
    self.described[name] = panels.for_page(chart)
    lines: dict[str, charts.Line] = {}
    for line in chart.lines if isinstance(chart, charts.Chart) else ():
      lines.setdefault(line.method, line)
    return _Shown(
      name,
      chart.caption,
      self.described[name]['height'],
      [_key(line) for line in lines.values()],
    )

  def add_table(self, found: results_lib.Results) -> None:
    """Writes a table for papers, in every format."""
    for ending, write_ in results_lib.FORMATS.values():
      text = formatting.printable(write_(found))
      self.tables[f'{self.prefix}results.{ending}'] = text.encode('utf-8')


def _differing(
  section: sections.Section, every: Sequence[sections.Section]
) -> list[str]:
  """Lists the flags that differ from another section of the same task."""
  settings = [s.setting for s in every]
  mine = section.setting
  same = [s for s in settings if s.get('task') == mine.get('task')]
  return [k for k in mine if any(s.get(k) != mine[k] for s in same)]


@dataclasses.dataclass(frozen=True)
class _Look:
  """The options of a report's appearance.

  Attributes:
    rule: The rule that selects configurations.
    apart: Whether figures show runs one by one instead of means over seeds.
    reference: The method that always has a colour.
    target: The level until which rounds and seconds are counted, if given.
    colours: Colours of all methods, if there are enough.
  """

  rule: scores.SelectionRule
  apart: bool
  reference: str
  target: Optional[float]
  colours: Mapping[str, str]


def _colours(order: Sequence[str], reference: str) -> dict[str, str]:
  """Assigns colours to methods; if many, to the best and the reference.

  Args:
    order: The methods, the best first.
    reference: A method that always gets a colour.
  """
  chosen = list(order)
  if len(order) > _MOST_COLOURS:
    chosen = [*order[:_BEST], *(m for m in order[_BEST:] if m == reference)]
  return styles.colours(chosen)


def _show(
  section: sections.Section,
  differing: Sequence[str],
  look: _Look,
  drawn: _Drawing,
) -> _Part:
  """Builds a section of the page.

  Args:
    section: Its runs.
    differing: Flags that differ from other sections of its task.
    look: The options of the report.
    drawn: Collects the section's figures and tables.

  Returns:
    The section.
  """
  judge = sections.Judge(look.rule, section.metric, section.rises)
  task = section.setting.get('task', 'runs')
  words = verdicts.settings_words(section.setting, differing, task)
  found = judge.best_of(section.by_method)
  order = verdicts.ranked(found, judge)
  best = {m: dataclasses.replace(found[m], apart=look.apart) for m in order}
  drawn.colours = look.colours or _colours(order, look.reference)
  table = None
  if best:
    shown_table = results_lib.tabulate(section, best, judge, look.target)
    drawn.add_table(shown_table)
    table = tables.of_results(shown_table)
  flags = tables.named_flags(section)
  shown: dict[str, list[_Shown]] = {}
  for chart in _draw(section, best, judge):
    shown.setdefault(chart.title, []).append(drawn.add(chart))
  clients = tables.of_clients(best, judge)
  if clients is not None:
    shown.setdefault(plots.SINGLE_CLIENTS, [])
  more, constant, final = columns_lib.everything_else(
    best, ('train/loss', judge.column)
  )
  for chart in more.pop(columns_lib.CLIENTS, []):
    shown.setdefault(chart.title, []).append(drawn.add(chart))
  return _Part(
    heading=f'{task}, {words}' if words else task,
    verdict=verdicts.reach(section, best, judge, flags),
    shared=tables.as_flags(section.setting, list(section.setting)),
    table=table,
    settings=tables.of_settings(best, flags, judge) if best else None,
    missing=[
      printed_names.method(m) for m in section.by_method if m not in best
    ],
    figures=shown,
    clients=clients,
    final=tables.of_last_rounds(best, final, judge),
    folded={
      heading: [drawn.add(chart, pictures=False) for chart in found]
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
  apart: bool = False,
  reference: Optional[str] = None,
  target: Optional[float] = None,
  directions: Optional[Mapping[str, bool]] = None,
) -> tuple[pathlib.Path, list[str]]:
  """Writes the report.

  Args:
    folder: The folder that contains runs, at any depth.
    select: Name of a selection rule; the sweep's own unless given.
    output: The folder to write to; `folder` unless given.
    apart: Whether figures show runs one by one instead of means over seeds.
    reference: The method that always has a colour, whatever its rank; FedAvg
      unless given.
    target: Value of the validation metric (or loss) until which rounds and
      seconds are counted; the best that all runs reach, unless given.
    directions: Whether higher is better, by metric; see `runs.load`.

  Returns:
    The path of the page, and a sentence about each run that could not be read.

  Raises:
    SettingsError: If there are no runs with results, or none of the method
      `reference`.
  """
  runs, complaints = results.find(folder, directions)
  runs = [run for run in runs if run.rows]
  if not runs:
    raise errors.SettingsError(
      complaints[0] if complaints else f'There is no run in {folder}.'
    )
  sweep = sweeps.read(folder)
  rule = results.rule_of(runs, select)
  output = output or folder
  files.check_writable(output, '--output')
  every = sections.sections(runs)
  everyone = list(dict.fromkeys(m for s in every for m in s.by_method))
  if reference is not None and reference not in everyone:
    raise errors.SettingsError(
      f'--reference must be a method of these runs, {", ".join(everyone)}, got '
      f'{reference!r}.'
    )
  few = len(everyone) <= _MOST_COLOURS
  colours = styles.colours(everyone) if few else {}
  look = _Look(rule, apart, reference or _REFERENCE, target, colours)
  drawn = _Drawing()
  parts = []
  for number, section in enumerate(every, start=1):
    drawn.prefix = '' if len(every) == 1 else f'{number}_'
    parts.append(_show(section, _differing(section, every), look, drawn))
  script = (_HERE / 'page.js').read_text(encoding='utf-8')
  vega = vl_convert.javascript_bundle()  # type: ignore[call-arg]
  page = _template().render(
    title=f'Results in {folder.resolve().name}',
    runs=runs,
    rule=rule,
    parts=parts,
    unfinished=tables.of_unfinished(folder, sweep, runs),
    complaints=complaints,
    concerns=[(run.name, text) for run in runs for text in run.concerns],
    over_seeds=seeds.APART if apart else seeds.OVER_SEEDS,
    single_clients=plots.SINGLE_CLIENTS,
    data={
      'figures': drawn.described,
      'dark': styles.DARK,
      'theme': drawing.THEME,
    },
    policy=markupsafe.Markup(f'{_digest(vega)} {_digest(script)}'),
    vega=markupsafe.Markup(vega),
    script=markupsafe.Markup(script),
  )
  return _save(output, page, drawn), complaints


def _digest(script: str) -> str:
  """Returns a script's hash for the page's content security policy."""
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


def _save(output: pathlib.Path, page: str, drawn: _Drawing) -> pathlib.Path:
  """Writes figures, tables and the page; returns the page's path."""
  for name, found in (('figures', drawn.files), ('tables', drawn.tables)):
    below = output / name
    files.make_folder(below)
    for file, content in found.items():
      files.write_atomically(below / file, content)
  path = output / 'report.html'
  files.write_atomically(path, formatting.printable(page).encode('utf-8'))
  return path
