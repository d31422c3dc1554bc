"""One page about many runs: figures, tables, the best of every method.

The page is a single file that opens from disk: figures are inside it, there is
no script, and a policy in its head forbids the browser to load anything.
"""

import base64
import dataclasses
import html
import io
import math
import pathlib
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive.experiment import errors
from tff_adaptive.experiment import files
from tff_adaptive.experiment import grids
from tff_adaptive.experiment import methods
from tff_adaptive.experiment import options as options_lib
from tff_adaptive.experiment import progress
from tff_adaptive.experiment import results
from tff_adaptive.experiment import selection
from tff_adaptive.experiment import sweep_store

USAGE = """report DIR

Writes DIR/report.html, one page that needs no network, and its figures as SVG
and PNG. DIR is a sweep's folder, or any folder with runs in it."""
_RULES = Literal.__getitem__(tuple(selection.RULES))
# Settings that make an experiment another one, so that its runs have a section
# of their own, beside those of the task.
_SETTING = (
  'task',
  'data',
  'total_rounds',
  'clients_per_round',
  'client_epochs_per_round',
  'client_batch_size',
  'max_elements_per_client',
)
# Columns of the table of results: measure, heading, less is better (None: as
# the metric), digits.
_TABLE: tuple[tuple[str, str, Optional[bool]], ...] = (
  ('train/loss', 'training loss', True),
  ('validation/metric', 'validation {metric}', None),
  ('best/metric', 'best validation {metric}', None),
  ('test/metric', 'test {metric}', None),
  ('test/loss', 'test loss', True),
  ('megabytes', 'megabytes sent', True),
  ('seconds', 'seconds', True),
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #111; background: #fff;
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid
  #999; } h3 { margin-bottom: .3rem; }
.row { display: flex; flex-wrap: wrap; gap: 0 1rem; }
figure { margin: 0 0 1.5rem; } img { max-width: 100%; height: auto; }
figcaption, .note { color: #444; font-size: .9rem; max-width: 46rem; }
.row figcaption { max-width: 32rem; } table { font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid
  #ddd; white-space: nowrap; } th { border-bottom: 2px solid #444;
  white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child, th:last-child, td.words { text-align: left; }
td.words { white-space: normal; font-size: .85rem; min-width: 16rem; }
.best { font-weight: 700; } code { font-size: .9em; }
"""


def build_options() -> options_lib.Options:
  """The flags of `main.py report`."""
  return options_lib.Options(
    parameters.Parameter(
      'select',
      _RULES,
      None,
      'By which rule configurations are chosen (sweep --help explains them); '
      "the sweep's own unless given, otherwise " + selection.DEFAULT + '.',
    ),
    parameters.Parameter(
      'output', str, None, 'Folder to write to; DIR unless given.'
    ),
  )


@dataclasses.dataclass(frozen=True)
class Section:
  """The runs of one experiment: a task with one setting.

  Attributes:
    setting: What they share, by flag.
    by_method: Configurations by method.
    metric: The task's first measure of quality, if it has one.
  """

  setting: Mapping[str, Any]
  by_method: Mapping[str, Sequence[Any]]
  metric: Optional[str]


def sections(runs: Sequence[results.Run]) -> list[Section]:
  """Sorts runs by experiment, method and configuration."""
  from tff_adaptive.experiment import plots  # pylint: disable=g-import-not-at-top

  groups: dict[tuple, dict[str, dict[tuple, list[results.Run]]]] = {}
  for run in runs:
    task = run.settings.get('task')
    setting = tuple(
      (k, v)
      for k, v in run.settings.items()
      if (k in _SETTING or k.startswith(f'{task}_')) and v is not None
    )
    methods = groups.setdefault(setting, {})
    configurations = methods.setdefault(run.method, {})
    configurations.setdefault(_key(run.configuration), []).append(run)
  result = []
  for setting, methods in groups.items():
    by_method = {
      method: [
        plots.Configuration(
          method,
          {k: v for k, v in same[0].settings.items() if k not in grids.SEEDS},
          [run for run in same if run.finished],
          all(run.finished for run in same),
        )
        for same in configurations.values()
      ]
      for method, configurations in methods.items()
    }
    metrics = [
      run.metric
      for configurations in by_method.values()
      for c in configurations
      for run in c.runs
      if run.metric
    ]
    result.append(
      Section(dict(setting), by_method, metrics[0] if metrics else None)
    )
  return result


def _key(configuration: tuple) -> tuple:
  """Something that can be a key, whatever JSON held."""
  return tuple((k, repr(v)) for k, v in configuration)


def _escape(value: Any) -> str:
  return html.escape(str(value), quote=True)


def varied(section: Section) -> list[str]:
  """Flags that differ between configurations of a method."""
  names: dict[str, None] = {}
  for configurations in section.by_method.values():
    for flag in configurations[0].settings:
      seen = {repr(c.settings.get(flag)) for c in configurations}
      if len(seen) > 1:
        names[flag] = None
  return list(names)


def _table(section: Section, best: Mapping[str, Any], judge: Any) -> str:
  """Methods by measures, the best of every column in bold."""
  from tff_adaptive.experiment import plots  # pylint: disable=g-import-not-at-top

  columns = [c for c in _TABLE if any(best[m].values(c[0]) for m in best)]
  metric = progress.short(section.metric) if section.metric else 'metric'
  flags = [f for f in varied(section) if f not in _SETTING]
  rates = ['client_learning_rate', 'server_learning_rate', 'server_adaptivity']
  flags = [f for f in rates if f not in flags] + flags
  central = judge.best(
    [c for m, c in best.items() if m.partition(' ')[0] == methods.CENTRALIZED]
  )
  head = ['method', 'runs']
  head += [heading.format(metric=metric) for _, heading, _ in columns]
  if central is not None:
    head.append('gap to centralized')
  head.append('configuration')
  tops = {}
  for measure, _, less in columns:
    if less is None:
      less = not judge.more_is_better
    means = [best[m].mean(measure) for m in best]
    means = [v for v in means if math.isfinite(v)]
    # Where all are equal none is best.
    several = len(set(means)) > 1 or len(best) == 1
    tops[measure] = (min if less else max)(means) if several else None
  lines = ['<div class="scroll"><table>', '<thead><tr>']
  lines += [f'<th scope="col">{_escape(h)}</th>' for h in head]
  lines.append('</tr></thead><tbody>')
  order = sorted(best, key=lambda m: results.mean(judge.scores(best[m])))
  for method in order:
    configuration = best[method]
    lines.append(
      f'<tr><td>{_escape(method)}</td><td>{len(configuration.runs)}</td>'
    )
    for measure, _, _ in columns:
      values = configuration.values(measure)
      if not values:
        lines.append('<td>&ndash;</td>')
        continue
      mean = results.mean(values)
      text = _escape(progress.number(mean))
      if plots.interval(values):
        text += f' ± {_escape(f"{plots.interval(values):.2g}")}'
      mark = ' class="best"' if mean == tops[measure] else ''
      lines.append(f'<td{mark}>{text}</td>')
    if central is not None:
      gap = central.mean(judge.shown) - configuration.mean(judge.shown)
      lines.append(f'<td>{_escape(f"{gap:+.4f}")}</td>')
    words = ', '.join(
      f'{f}={configuration.settings[f]}'
      for f in flags
      if configuration.settings.get(f) is not None
    )
    lines.append(f'<td class="words"><code>{_escape(words)}</code></td></tr>')
  lines.append('</tbody></table></div>')
  return '\n'.join(lines)


def draw(section: Section, judge: Any) -> tuple[list[Any], dict[str, Any]]:
  """The figures of a section, and the best configuration of every method."""
  from tff_adaptive.experiment import plots  # pylint: disable=g-import-not-at-top

  best = {}
  for method, configurations in section.by_method.items():
    chosen = judge.best(configurations)
    if chosen is not None:
      best[method] = chosen
  figures = [
    plots.curves(best, section.metric),
    plots.against_bytes(best, section.metric),
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


def _not_finished(folder: pathlib.Path, runs: Sequence[results.Run]) -> str:
  """A table of the runs that have no result, and why."""
  rows: list[tuple[str, str, str]] = []
  if (folder / 'sweep.sqlite').is_file():
    with sweep_store.Store(folder) as store:
      rows = [
        (r['name'], r['status'], r['reason'] or '')
        for r in store.rows()
        if r['status'] != sweep_store.FINISHED
      ]
  else:
    rows = [
      (run.name, f'after round {run.rounds}', '')
      for run in runs
      if not run.finished
    ]
  if not rows:
    return ''
  lines = [
    '<h2>Runs without a result</h2>',
    '<div class="scroll"><table><thead><tr><th scope="col">run</th>'
    '<th scope="col">status</th><th scope="col">reason</th></tr></thead>'
    '<tbody>',
  ]
  for name, status, reason in rows:
    lines.append(
      f'<tr><td>{_escape(name)}</td><td class="words">{_escape(status)}</td>'
      f'<td class="words">{_escape(reason)}</td></tr>'
    )
  lines.append('</tbody></table></div>')
  return '\n'.join(lines)


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
  from tff_adaptive.experiment import plots  # pylint: disable=g-import-not-at-top

  runs, complaints = results.find(folder)
  runs = [run for run in runs if run.rows]
  if not runs:
    raise errors.SettingsError(
      complaints[0] if complaints else f'There is no run in {folder}.'
    )
  if select is None and (folder / 'sweep.sqlite').is_file():
    with sweep_store.Store(folder) as store:
      select = store.get('select')
  rule = selection.RULES[select or selection.DEFAULT]
  output = output or folder
  files.check_writable(output)
  pictures = output / 'figures'
  title = f'Results in {folder.resolve().name}'
  finished = sum(run.finished for run in runs)
  body = [
    f'<h1>{_escape(title)}</h1>',
    f'<p>{len(runs)} runs, {finished} of them finished. Configurations are '
    f'chosen by <code>{_escape(rule.name)}</code>: {_escape(rule.help)}. '
    'Training and validation figures are means over the last 100 rounds, or '
    'over the last tenth of a run shorter than 1000; ± is half a 95&nbsp;% '
    'confidence interval over seeds.</p>',
  ]
  every = sections(runs)
  shared = [
    k
    for k in every[0].setting
    if len({repr(s.setting.get(k)) for s in every}) == 1
  ]
  made: dict[str, bytes] = {}
  for number, section in enumerate(every, start=1):
    judge = plots.Judge(rule, section.metric)
    differs = ', '.join(
      f'{k}={v}'
      for k, v in section.setting.items()
      if k not in shared and k != 'task'
    )
    name = section.setting.get('task', 'runs')
    heading = f'{name} ({differs})' if differs else name
    body.append(f'<h2>{_escape(heading)}</h2>')
    words = ', '.join(f'{k}={v}' for k, v in section.setting.items())
    body.append(f'<p class="note"><code>{_escape(words)}</code></p>')
    figures, best = draw(section, judge)
    body.append('<h3>Results</h3>')
    if best:
      body.append(_table(section, best, judge))
    missing = [m for m in section.by_method if m not in best]
    if missing:
      body.append(
        '<p class="note">No configuration finished on all seeds: '
        f'{_escape(", ".join(missing))}.</p>'
      )
    shown: dict[str, list[str]] = {}
    for figure in figures:
      file = figure.name if len(every) == 1 else f'{number}_{figure.name}'
      svg = _image(figure.figure, 'svg')
      made[f'{file}.svg'] = svg
      made[f'{file}.png'] = _image(figure.figure, 'png')
      data = base64.b64encode(svg).decode('ascii')
      shown.setdefault(figure.title, []).append(
        f'<figure><img alt="{_escape(figure.caption)}" '
        f'src="data:image/svg+xml;base64,{data}">'
        f'<figcaption>{_escape(figure.caption)}</figcaption></figure>'
      )
    for heading, pictured in shown.items():
      body.append(f'<h3>{_escape(heading)}</h3>')
      body.append('<div class="row">')
      body += pictured
      body.append('</div>')
  body.append(_not_finished(folder, runs))
  if complaints:
    body.append('<h2>Folders that could not be read</h2><ul>')
    body += [f'<li>{_escape(c)}</li>' for c in complaints]
    body.append('</ul>')
  page = '\n'.join(
    [
      '<!DOCTYPE html>',
      '<html lang="en"><head><meta charset="utf-8">',
      '<meta http-equiv="Content-Security-Policy" content="default-src '
      "'none'; img-src data:; style-src 'unsafe-inline'\">",
      '<meta name="viewport" content="width=device-width, initial-scale=1">',
      f'<title>{_escape(title)}</title>',
      f'<style>{_STYLE}</style></head><body>',
      *body,
      '</body></html>',
      '',
    ]
  )
  try:
    pictures.mkdir(parents=True, exist_ok=True)
  except OSError as e:
    raise errors.RunError(
      f'{pictures} cannot be written: {e.strerror or e}.'
    ) from e
  for file, content in made.items():
    files.write_atomically(pictures / file, content)
  path = output / 'report.html'
  files.write_atomically(path, page.encode('utf-8'))
  return path, complaints


def main(arguments: Sequence[str]) -> int:
  """`main.py report DIR`; returns the exit code."""
  values, words = build_options().read(arguments)
  if len(words) != 1:
    raise errors.SettingsError(
      f'report takes one folder, got {" ".join(words) or "none"}.'
    )
  output = values['output']
  path, complaints = write(
    pathlib.Path(words[0]),
    select=values['select'],
    output=None if output is None else pathlib.Path(output),
  )
  for complaint in complaints:
    print(f'Left out: {complaint}', file=sys.stderr)
  print(f'report   {path}')
  print(f'figures  {path.parent / "figures"}')
  return 0
