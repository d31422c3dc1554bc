"""A writer of the tables and pictures in results/board, from its entries.

  python tools/board_tables.py

`main.py board --output_dir=results/board` makes entries, of one method or more.
Intervals take a minute; tools/make_docs.py then writes the page from the
tables.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Sequence

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top
from tff_adaptive import drawing  # noqa: E402
from tff_adaptive import errors  # noqa: E402
from tff_adaptive.lab.board import entries  # noqa: E402
from tff_adaptive.lab.board import page  # noqa: E402
from tff_adaptive.lab.board import pictures  # noqa: E402
from tff_adaptive.lab.board import references  # noqa: E402
from tff_adaptive.lab.board import standings as standings_lib  # noqa: E402
from tff_adaptive.lab.board import workloads  # noqa: E402
from tff_adaptive.lab.recording import files  # noqa: E402

FOLDER = _ROOT / 'results' / 'board'
# The table and the picture of each group. A method has a place in them once it
# is entered on all workloads of the group.
FILES = {
  'core': ('board.csv', 'budgets.svg'),
  'federated': ('federated.csv', 'federated.svg'),
}
GROUPS = {
  group: [workload.name for workload in workloads.GROUPS[group]]
  for group in FILES
}


@functools.cache
def _recorded() -> tuple[Sequence[entries.Entry], references.References]:
  known, complaints = entries.find(FOLDER / 'entries')
  if complaints:
    raise errors.SettingsError(' '.join(complaints))
  return known, references.read(references.FROZEN)


@functools.cache
def standings_of(*groups: str) -> standings_lib.Standings:
  """Returns the standings of the recorded entries, which are read once.

  Args:
    *groups: Keys of `GROUPS`, whose workloads are taken together.

  Raises:
    SettingsError: If an entry, or the targets, cannot be read.
  """
  names = [name for group in groups for name in GROUPS[group]]
  return standings_lib.of_entries(*_recorded(), names)


def csv_of(standings: standings_lib.Standings) -> str:
  """Renders the main table as CSV, with the scores of the defaults."""
  untuned = standings_lib.untuned_table(standings).rows
  of_defaults = {row[0]: row[1] for row in untuned}
  table = standings_lib.main_table(standings)
  at = table.head.index('high') + 1
  return page.as_csv(
    dataclasses.replace(
      table,
      head=[*table.head[:at], 'untuned', *table.head[at:]],
      rows=[[*r[:at], of_defaults[r[1]], *r[at:]] for r in table.rows],
    )
  )


def main() -> None:
  """Writes all of it."""
  for group, (table, picture) in FILES.items():
    standings = standings_of(group)
    files.write_atomically(FOLDER / table, csv_of(standings).encode('utf-8'))
    drawn = drawing.image(pictures.draw(standings)['budgets'], 'svg')
    files.write_atomically(FOLDER / picture, drawn)


if __name__ == '__main__':
  main()
