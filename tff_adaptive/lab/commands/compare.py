"""`main.py compare`: results of runs side by side."""

import pathlib
import sys
from collections.abc import Sequence
from typing import Literal

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import compare
from tff_adaptive.lab.report import scores

USAGE = """compare RUN...

Compares results of runs. RUN is the folder of a run, or a folder that contains
runs.
        """
TARGET = parameters.Parameter(
  'target',
  float,
  None,
  'Target value of the validation metric (of the loss, for a task without '
  'one) up to which rounds and seconds are counted; by default the best value '
  'that every run reaches.',
)
SELECT = parameters.Parameter(
  'select',
  Literal.__getitem__(tuple(scores.RULES)),
  None,
  'Rule that selects the configuration of each method (see sweep --help); '
  "by default the sweep's own, otherwise " + scores.DEFAULTS + '.',
)


def build_options() -> options_lib.Options:
  """Builds the flags of `main.py compare`."""
  return options_lib.Options(
    TARGET,
    metric_names.DIRECTION,
    parameters.Parameter(
      'format',
      Literal['text', 'csv', 'markdown', 'latex'],
      'text',
      'text: every run, and means over seeds per method. Other formats: only '
      'the means, with confidence intervals, for spreadsheets and papers '
      '(LaTeX with booktabs).',
    ),
    SELECT,
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py compare RUN...`; returns the exit code."""
  values, words = build_options().read(arguments)
  if not words:
    raise errors.SettingsError(
      'compare needs one or more folders of runs, or of a sweep; none was '
      'given.'
    )
  runs, left_out = compare.find(
    [pathlib.Path(word) for word in words],
    metric_names.parse_directions(values['metric_direction']),
  )
  for complaint in left_out:
    print(f'Left out: {complaint}', file=sys.stderr)
  form, select = values['format'], values['select']
  if form == 'text':
    print(compare.tables(runs, values['target'], select))
  else:
    print(compare.means(runs, form, values['target'], select), end='')
  return 0
