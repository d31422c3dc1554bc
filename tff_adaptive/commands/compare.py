"""`main.py compare`: runs side by side."""

import pathlib
import sys
from collections.abc import Sequence

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import options as options_lib
from tff_adaptive.report import compare

USAGE = """compare RUN...

Shows results side by side. RUN is a run's folder, or one with runs in it."""


def build_options() -> options_lib.Options:
  """Builds the flags of `main.py compare`."""
  return options_lib.Options(
    parameters.Parameter(
      'target',
      float,
      None,
      'Value of the validation metric, or of the loss in a task without one; '
      'of runs with virtual time, that until it was reached is told. The best '
      'value that all runs reach, unless given.',
    )
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
  print(compare.tables(runs, values['target']))
  return 0
