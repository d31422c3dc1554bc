"""One page about many runs: figures, tables, the best of every method.

Here is what the page says; `report_page` has how it is written.
"""

import io
import pathlib
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Optional

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import options as options_lib
from tff_adaptive.recording import files
from tff_adaptive.report import judging
from tff_adaptive.report import page as report_page
from tff_adaptive.report import runs as results
from tff_adaptive.report import sections as report_sections
from tff_adaptive.report import selection
from tff_adaptive.report import table as report_table
from tff_adaptive.sweep import store as sweep_store

USAGE = """report DIR

Writes DIR/report.html, one page that needs no network, and its figures as SVG
and PNG. DIR is a sweep's folder, or any folder with runs in it."""
_RULES = Literal.__getitem__(tuple(selection.RULES))


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


def draw(
  section: report_sections.Section, judge: judging.Judge
) -> tuple[list[Any], dict[str, Any]]:
  """The figures of a section, and the best configuration of every method."""
  from tff_adaptive.report import figures as plots  # pylint: disable=g-import-not-at-top

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


def _not_finished(
  folder: pathlib.Path, runs: Sequence[results.Run]
) -> list[str]:
  """A table of the runs that have no result, and why."""
  rows: list[tuple[str, str, str]] = []
  if _is_sweep(folder):
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
    return []
  cells = [
    [
      report_page.cell(name),
      report_page.cell(status),
      report_page.cell(reason, words=True),
    ]
    for name, status, reason in rows
  ]
  return [
    report_page.heading(2, 'Runs without a result'),
    report_page.table(['run', 'status', 'reason'], cells),
  ]


def _is_sweep(folder: pathlib.Path) -> bool:
  return files.RunFolder(folder).sweep.is_file()


def _choose_rule(folder: pathlib.Path, select: Optional[str]) -> selection.Rule:
  if select is None and _is_sweep(folder):
    with sweep_store.Store(folder) as store:
      select = store.get('select')
    if select is not None and select not in selection.RULES:
      raise errors.SettingsError(
        f'{store.path} names the rule {select!r}, which there is not; give one '
        'with --select.'
      )
  return selection.RULES[select or selection.DEFAULT]


def _introduction(
  title: str, runs: Sequence[results.Run], rule: selection.Rule
) -> list[str]:
  finished = sum(run.finished for run in runs)
  return [
    report_page.heading(1, title),
    f'<p>{len(runs)} runs, {finished} of them finished. Configurations are '
    f'chosen by <code>{report_page.escape(rule.name)}</code>: '
    f'{report_page.escape(rule.help)}. '
    'Training and validation figures are means over the last 100 rounds, or '
    'over the last tenth of a run shorter than 1000; ± is half a 95&nbsp;% '
    'confidence interval over seeds.</p>',
  ]


def _section_parts(
  section: report_sections.Section,
  shared: Sequence[str],
  rule: selection.Rule,
  prefix: str,
) -> tuple[list[str], dict[str, bytes]]:
  """A section of the page.

  Args:
    section: Its runs.
    shared: Flags that all sections have in common.
    rule: By which configurations are chosen.
    prefix: Of the names of its figures' files.

  Returns:
    The parts of the page, and the figures by the names of their files.
  """
  judge = judging.Judge(rule, section.metric)
  differs = report_page.words(
    {
      k: v
      for k, v in section.setting.items()
      if k not in shared and k != 'task'
    }
  )
  name = section.setting.get('task', 'runs')
  figures, best = draw(section, judge)
  parts = [
    report_page.heading(2, f'{name} ({differs})' if differs else name),
    report_page.note(report_page.words(section.setting), code=True),
    report_page.heading(3, 'Results'),
  ]
  if best:
    parts.append(report_table.table(section, best, judge))
  missing = [m for m in section.by_method if m not in best]
  if missing:
    parts.append(
      report_page.note(
        f'No configuration finished on all seeds: {", ".join(missing)}.'
      )
    )
  made: dict[str, bytes] = {}
  shown: dict[str, list[str]] = {}
  for figure in figures:
    svg = _image(figure.figure, 'svg')
    made[f'{prefix}{figure.name}.svg'] = svg
    made[f'{prefix}{figure.name}.png'] = _image(figure.figure, 'png')
    shown.setdefault(figure.title, []).append(
      report_page.picture(svg, figure.caption)
    )
  for title, pictures in shown.items():
    parts += [
      report_page.heading(3, title),
      *report_page.side_by_side(pictures),
    ]
  return parts, made


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
  rule = _choose_rule(folder, select)
  output = output or folder
  files.check_writable(output, '--output')
  title = f'Results in {folder.resolve().name}'
  body = _introduction(title, runs, rule)
  every = report_sections.sections(runs)
  shared = [
    k
    for k in every[0].setting
    if len({repr(s.setting.get(k)) for s in every}) == 1
  ]
  made: dict[str, bytes] = {}
  for number, section in enumerate(every, start=1):
    prefix = '' if len(every) == 1 else f'{number}_'
    parts, figures = _section_parts(section, shared, rule, prefix)
    body += parts
    made |= figures
  body += _not_finished(folder, runs)
  if complaints:
    body.append(report_page.heading(2, 'Folders that could not be read'))
    body += report_page.items(complaints)
  return _save(output, report_page.page(title, body), made), complaints


def _save(
  output: pathlib.Path, page: str, figures: Mapping[str, bytes]
) -> pathlib.Path:
  """Writes the figures and the page that has them; returns the page."""
  pictures = output / 'figures'
  files.make_folder(pictures)
  for file, content in figures.items():
    files.write_atomically(pictures / file, content)
  path = output / 'report.html'
  files.write_atomically(path, page.encode('utf-8'))
  return path


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
