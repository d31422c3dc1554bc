"""`main.py report`: a page with figures and tables of many runs."""

import pathlib
import sys
from collections.abc import Sequence

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.commands import compare
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.recording import metric_names

USAGE = """report DIR

Writes DIR/report.html, one page that needs no network, its figures as PDF, SVG
and PNG, and its table of results as CSV, Markdown and LaTeX. DIR is the folder
of a sweep, or any folder that contains runs.
        """


def build_options() -> options_lib.Options:
  """Builds the flags of `main.py report`."""
  return options_lib.Options(
    compare.SELECT,
    compare.TARGET,
    metric_names.DIRECTION,
    parameters.Parameter(
      'single_runs',
      bool,
      False,
      'Draw one line per run, instead of means over seeds with confidence '
      'bands.',
    ),
    parameters.Parameter('output', str, None, 'Output folder; by default DIR.'),
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py report DIR`; returns the exit code."""
  values, words = build_options().read(arguments)
  if len(words) != 1:
    raise errors.SettingsError(
      f'report takes one folder, got {" ".join(words) or "none"}.'
    )
  # Imports jinja2 and SciPy, which other commands do not need.
  from tff_adaptive.lab.report import page  # pylint: disable=g-import-not-at-top

  output = values['output']
  path, complaints = page.write(
    pathlib.Path(words[0]),
    select=values['select'],
    output=None if output is None else pathlib.Path(output),
    apart=values['single_runs'],
    target=values['target'],
    directions=metric_names.parse_directions(values['metric_direction']),
  )
  for complaint in complaints:
    print(f'Left out: {complaint}', file=sys.stderr)
  print(f'report   {path}')
  for name in ('figures', 'tables'):
    if (path.parent / name).exists():  # Not of unfinished runs alone.
      print(f'{name:<8} {path.parent / name}')
  return 0
