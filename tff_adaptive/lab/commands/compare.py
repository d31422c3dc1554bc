"""`main.py compare`: results of runs side by side."""

import pathlib
import sys
from collections.abc import Sequence
from typing import Literal

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.report import compare
from tff_adaptive.lab.report import scores

USAGE = """compare RUN...

Shows results side by side. RUN is a run's folder, or one with runs in it."""
TARGET = parameters.Parameter(
  'target',
  float,
  None,
  'Value of the validation metric, or of the loss in a task without one, until '
  'which rounds and seconds are counted. The best that all runs reach, unless '
  'given.',
)


def build_options() -> options_lib.Options:
  """Builds the flags of `main.py compare`."""
  return options_lib.Options(
    TARGET,
    parameters.Parameter(
      'format',
      Literal['text', 'csv', 'markdown', 'latex'],
      'text',
      "text: every run, and methods' means over seeds. The others: the means "
      'alone, with intervals, for spreadsheets and papers (LaTeX with '
      'booktabs).',
    ),
    parameters.Parameter(
      'select',
      Literal.__getitem__(tuple(scores.RULES)),
      None,
      'By which rule the configuration of a method is chosen (sweep --help '
      "explains them); the sweep's own unless given, otherwise "
      + scores.DEFAULTS
      + '.',
    ),
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py compare RUN...`; returns the exit code."""
  values, words = build_options().read(arguments)
  if not words:
    raise errors.SettingsError(
      'compare takes the folders of runs, or of a sweep; none was given.'
    )
  runs, left_out = compare.find([pathlib.Path(word) for word in words])
  for complaint in left_out:
    print(f'Left out: {complaint}', file=sys.stderr)
  form, select = values['format'], values['select']
  if form == 'text':
    print(compare.tables(runs, values['target'], select))
  else:
    print(compare.means(runs, form, values['target'], select), end='')
  return 0
