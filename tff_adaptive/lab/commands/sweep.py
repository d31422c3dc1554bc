"""`main.py sweep`: many runs, over axes or a paper's grid."""

from collections.abc import Sequence

from tff_adaptive.lab.report import compare
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.sweep import flags

USAGE = """sweep --axis=FLAG=V1,V2,... [--axis=...] [--flag=value ...]

Runs every combination of the axes, or a paper's grid, and reports the best one.
The flags of a run (main.py --help) apply to all runs. Further flags:
        """
build_options = flags.build_options


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py sweep`; returns the exit code."""
  sweep = flags.parse(arguments)
  if sweep.dry_run:
    print(flags.describe(sweep))
    return 0
  # Imports Optuna, which is slow and not needed by other commands.
  from tff_adaptive.lab.sweep import launch  # pylint: disable=g-import-not-at-top
  from tff_adaptive.lab.sweep import outcomes  # pylint: disable=g-import-not-at-top

  rows = launch.run(sweep)
  found, _ = runs.find(sweep.folder)
  finished = [row for row in rows if row.status == outcomes.FINISHED]
  here = [run.name for run in found if run.finished]
  names = [row.name for row in finished]
  if away := sweeps.describe_away(sweep.folder, names, here):
    print(away)
  print(compare.summary(found, scores.RULES[sweep.select]))
  for row in finished:
    if row.outcome.reason:
      print(f'{row.name}: {row.outcome.reason}')
  print(f'table    {sweep.folder / "results.csv"}')
  print(f'report   python main.py report {sweep.folder}')
  return 0 if finished else 1
