"""`main.py train`, or `main.py` alone: one run.

Importing this module imports no TensorFlow.
"""

from collections.abc import Sequence

from tff_adaptive.lab import training
from tff_adaptive.lab.commands import dry_run
from tff_adaptive.lab.commands import summary
from tff_adaptive.lab.flags import parsing
from tff_adaptive.lab.recording import files


def main(arguments: Sequence[str]) -> int:
  """Runs or resumes an experiment; returns the exit code."""
  parsed = parsing.Flags().parse(arguments)
  if parsed.dry_run:
    print(dry_run.describe(parsed.settings, parsed.preset))
    return 0
  result = training.run(parsed.settings)
  folder = files.RunFolder(parsed.settings.folder)
  print(summary.summary(result.rows, folder, result.seconds))
  return 0
