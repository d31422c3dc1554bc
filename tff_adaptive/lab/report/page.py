"""The report page: tables and figures over many runs.

This module determines the content, and `page.html` its markup. The page is a
single file that opens from disk. It embeds its figures and Vega, and a content
security policy in its head lets the browser run these scripts and load nothing
else.
"""

import base64
import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import jinja2
import markupsafe

from tff_adaptive import drawing
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import compare
from tff_adaptive.lab.report import figures as figures_lib
from tff_adaptive.lab.report import results as results_lib
from tff_adaptive.lab.report import runs as runs_lib
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lazy import vl_convert

_HERE = pathlib.Path(__file__).parent
# Suffixes of columns about single clients, with their headings.
_OVER_CLIENTS = {
  'mean': 'mean over clients',
  'std': 'standard deviation',
  'p10': '10 % are below',
  'p50': 'half are below',
  'p90': '90 % are below',
  'worst_decile': 'mean of the worst tenth',
}
# Draws figures one after the other, those in folds when they are opened, where
# they have a width.
_SCRIPT = """
const {figures, theme} =
  JSON.parse(document.getElementById('figures').textContent);
async function draw(plots) {
  for (const plot of plots) {
    if (plot.view || plot.closest('details:not([open])')) continue;
    // Interpreted, because the page forbids to compile more of it.
    const embedded = await vegaEmbed(plot, figures[plot.dataset.figure],
      {config: theme, ast: true, renderer: 'canvas',
       downloadFileName: plot.dataset.figure,
       actions: {export: true, source: false, compiled: false, editor: false}});
    plot.view = embedded.view;
  }
}
const every = document.querySelectorAll('[data-figure]');
for (const fold of document.querySelectorAll('details')) {
  fold.addEventListener('toggle', () => draw(every));
}
draw(every).then(() => { document.documentElement.dataset.drawn = 'yes'; });
"""


@dataclasses.dataclass
class _Drawing:
  """The figures and tables drawn so far.

  Attributes:
    prefix: Prefix of the names of a section's figures.
    colours: Colours by method; other methods are grey.
    files: Pictures and tables for papers, by their path.
    figures: Vega-Lite specifications for the page, by name.
    captions: The figures' captions, by name.
  """

  prefix: str = ''
  colours: Mapping[str, str] = dataclasses.field(default_factory=dict)
  files: dict[str, bytes] = dataclasses.field(default_factory=dict)
  figures: dict[str, Any] = dataclasses.field(default_factory=dict)
  captions: dict[str, str] = dataclasses.field(default_factory=dict)

  def add(self, figure: charts.Figure, *, pictures: bool = True) -> str:
    """Draws a figure for the page and, if asked for, for papers."""
    name = f'{self.prefix}{figure.name}'
    if isinstance(figure, charts.Chart):
      colours = {m: self.colours.get(m, styles.GREY) for m in figure.methods}
      figure = dataclasses.replace(figure, colours=colours)
    if pictures:
      drawn = drawing.images(charts.specification(figure))
      for form, picture in drawn.items():
        self.files[f'figures/{name}.{form}'] = picture
    self.figures[name] = charts.specification(
      figure, width='container', interactive=True
    )
    self.captions[name] = figure.caption
    return name


def _show(
  section: sections.Section,
  heading: str,
  criterion: sections.Criterion,
  drawn: _Drawing,
  *,
  apart: bool,
  target: Optional[float],
) -> dict[str, Any]:
  """Builds a section of the page and collects its figures and tables."""
  best = criterion.best_of(section.by_method)
  table = None
  shown: dict[str, list[str]] = {}
  folded: dict[str, list[str]] = {}
  constant: Mapping[str, float] = {}
  clients = None
  if best:
    table = results_lib.tabulate(section, best, criterion, target)
    for ending, write_ in results_lib.FORMATS.values():
      text = formatting.printable(write_(table))
      drawn.files[f'tables/{drawn.prefix}results.{ending}'] = text.encode()
    by_method = {
      method: [c.as_chosen() for c in configurations]
      for method, configurations in section.by_method.items()
    }
    for figure in (
      *figures_lib.curves(best, criterion, apart=apart),
      *figures_lib.against_time(best, criterion, apart=apart),
      *figures_lib.against_bytes(best, criterion, apart=apart),
      *figures_lib.tuning(by_method, criterion),
      *figures_lib.step_sizes(best),
      *figures_lib.single_clients(best, criterion, apart=apart),
    ):
      shown.setdefault(figure.title, []).append(drawn.add(figure))
    more, constant = figures_lib.everything_else(
      best, ('train/loss', criterion.column), apart=apart
    )
    folded = {
      heading: [drawn.add(figure, pictures=False) for figure in found]
      for heading, found in more.items()
    }
    clients = _of_clients(best, criterion)
  flags = section.varied()
  names = formatting.methods(list(section.by_method))
  return dict(
    heading=heading,
    results=table,
    clients=clients,
    settings=[
      (
        names[method],
        section.words_of(c),
        _as_flags(c.settings, flags),
      )
      for method, c in best.items()
    ],
    shared=_as_flags(section.setting, list(section.setting)),
    missing=[names[m] for m in section.by_method if m not in best],
    figures=shown,
    folded=folded,
    constant=', '.join(
      f'{words} {formatting.number(value)}' for words, value in constant.items()
    ),
  )


def _as_flags(settings: Mapping[str, Any], names: Sequence[str]) -> list[str]:
  """Formats settings as command-line flags."""
  return [f'--{n}={settings[n]}' for n in names if settings.get(n) is not None]


def _of_clients(
  best: sections.Best, criterion: sections.Criterion
) -> Optional[results_lib.Results]:
  """Builds the table of the trained models' quality on single clients."""
  names = formatting.methods(list(best))
  found: dict[str, list[Optional[scores.Mean]]] = {}
  for group, after in figures_lib.CLIENT_GROUPS.items():
    for method, configuration in best.items():
      last = [run.rows[-1] for run in configuration.runs]
      columns = [
        f'{group}/{criterion.metric or "loss"}/{s}' for s in _OVER_CLIENTS
      ]
      cells = [
        scores.mean_of(
          [row[column] for row in last if column in row],
          criterion.bounds,
          planned=len(last),
        )
        for column in columns
      ]
      if any(cells):
        name = names[method]
        found[f'{name}, {after}' if after else name] = cells
  if not found:
    return None
  unit = ' (%)' if criterion.is_share else ''
  return results_lib.Results(
    {'Method': list(found)},
    [
      results_lib.Column(f'{heading}{unit}', cells, criterion.is_share)
      for heading, cells in zip(
        _OVER_CLIENTS.values(), zip(*found.values(), strict=True), strict=True
      )
    ],
  )


def _unfinished(
  folder: pathlib.Path, runs: Sequence[runs_lib.Run]
) -> Sequence[tuple[str, str, str]]:
  """Lists name, status and reason of runs without a result."""
  if sweeps.read(folder) is not None:
    return sweeps.read_unfinished(folder)
  return [
    (run.name, f'after round {run.rounds}', '')
    for run in runs
    if not run.finished
  ]


def write(
  folder: pathlib.Path,
  *,
  select: Optional[str] = None,
  output: Optional[pathlib.Path] = None,
  apart: bool = False,
  target: Optional[float] = None,
  directions: Optional[Mapping[str, bool]] = None,
) -> tuple[pathlib.Path, list[str]]:
  """Writes the report.

  Args:
    folder: The folder that contains runs, at any depth.
    select: Name of a selection rule; the sweep's own unless given.
    output: The folder to write to; `folder` unless given.
    apart: Whether figures show runs one by one instead of means over seeds.
    target: Value of the validation metric (or loss) until which rounds and
      seconds are counted; the best that all runs reach, unless given.
    directions: Whether higher is better, by metric; see `runs.load`.

  Returns:
    The path of the page, and a sentence about each run that could not be read.

  Raises:
    SettingsError: If there are no runs with results.
  """
  runs, complaints = compare.find([folder], directions)
  rule = runs_lib.rule_of(runs, select)
  output = output or folder
  files.check_writable(output, '--output')
  every = sections.sections(runs)
  drawn = _Drawing()
  parts = []
  for number, section in enumerate(every, start=1):
    criterion = section.criterion(rule)
    drawn.prefix = '' if len(every) == 1 else f'{number}_'
    order = list(criterion.best_of(section.by_method))
    drawn.colours = styles.colours(order[: styles.MOST])
    heading = section.heading(every)
    parts.append(
      _show(section, heading, criterion, drawn, apart=apart, target=target)
    )
  vega = vl_convert.javascript_bundle()  # type: ignore[call-arg]
  page = _template().render(
    title=f'Results in {folder.resolve().name}',
    runs=runs,
    rule=rule,
    parts=parts,
    unfinished=_unfinished(folder, runs),
    complaints=complaints,
    concerns=[(run.name, text) for run in runs for text in run.concerns],
    over_seeds=figures_lib.APART if apart else figures_lib.OVER_SEEDS,
    single_clients=figures_lib.SINGLE_CLIENTS,
    captions=drawn.captions,
    data={'figures': drawn.figures, 'theme': drawing.THEME},
    policy=markupsafe.Markup(f'{_digest(vega)} {_digest(_SCRIPT)}'),
    vega=markupsafe.Markup(vega),
    script=markupsafe.Markup(_SCRIPT),
  )
  path = output / 'report.html'
  drawn.files[path.name] = formatting.printable(page).encode()
  for name, content in drawn.files.items():
    files.make_folder((output / name).parent)
    files.write_atomically(output / name, content)
  # Sections have numbers if there are several: those of an earlier report go.
  known = set(map(_without_number, drawn.files))
  for there in [*output.glob('tables/*'), *output.glob('figures/*')]:
    name = there.relative_to(output).as_posix()
    if name not in drawn.files and _without_number(name) in known:
      with files.writing(there):
        there.unlink()
  return path, complaints


def _without_number(name: str) -> str:
  return re.sub(r'/[1-9]\d?_', '/', name)


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
