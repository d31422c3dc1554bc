"""`main.py report`: a page with figures and tables of many runs."""

import pathlib
import sys
from collections.abc import Sequence
from typing import Literal

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.commands import compare
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.report import scores

USAGE = """report DIR

Writes DIR/report.html, one page that needs no network, its figures as PDF, SVG
and PNG, and its table of results as CSV, Markdown and LaTeX. DIR is a sweep's
folder, or any folder with runs in it."""


def build_options() -> options_lib.Options:
  """Builds the flags of `main.py report`."""
  return options_lib.Options(
    parameters.Parameter(
      'select',
      Literal.__getitem__(tuple(scores.RULES)),
      None,
      'By which rule configurations are chosen (sweep --help explains them); '
      "the sweep's own unless given, otherwise " + scores.DEFAULTS + '.',
    ),
    compare.TARGET,
    parameters.Parameter(
      'single_runs',
      bool,
      False,
      'Draw every run as a line of its own, in place of means over seeds with '
      'a band.',
    ),
    parameters.Parameter(
      'reference',
      str,
      None,
      'The method that has a colour beside the best five in a report on more '
      'than eight methods; fedavg unless given.',
    ),
    parameters.Parameter(
      'output', str, None, 'Folder to write to; DIR unless given.'
    ),
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py report DIR`; returns the exit code."""
  values, words = build_options().read(arguments)
  if len(words) != 1:
    raise errors.SettingsError(
      f'report takes one folder, got {" ".join(words) or "none"}.'
    )
  # Imports jinja2 and SciPy, which other commands do not need.
  from tff_adaptive.lab.report.web import page  # pylint: disable=g-import-not-at-top

  output = values['output']
  path, complaints = page.write(
    pathlib.Path(words[0]),
    select=values['select'],
    output=None if output is None else pathlib.Path(output),
    apart=values['single_runs'],
    reference=values['reference'],
    target=values['target'],
  )
  for complaint in complaints:
    print(f'Left out: {complaint}', file=sys.stderr)
  print(f'report   {path}')
  print(f'figures  {path.parent / "figures"}')
  print(f'tables   {path.parent / "tables"}')
  return 0
