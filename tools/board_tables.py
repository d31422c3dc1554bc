"""A writer of the tables and pictures in results/board, from its entries.

  python tools/board_tables.py

`main.py board --output_dir=results/board` makes entries, of one method or more.
Intervals take a minute; tools/make_docs.py then writes the page from the
tables.
"""

import functools
import pathlib
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top
from tff_adaptive import drawing  # noqa: E402
from tff_adaptive import errors  # noqa: E402
from tff_adaptive.lab.board import entries  # noqa: E402
from tff_adaptive.lab.board import leaderboard  # noqa: E402
from tff_adaptive.lab.board import page  # noqa: E402
from tff_adaptive.lab.board import references  # noqa: E402
from tff_adaptive.lab.board import workloads  # noqa: E402
from tff_adaptive.lab.recording import files  # noqa: E402
from tff_adaptive.lab.recording import formatting  # noqa: E402

FOLDER = _ROOT / 'results' / 'board'
# A method is on the leaderboard of a group once it is entered on all of the
# group's workloads.
GROUPS = {
  group: [workload.name for workload in workloads.GROUPS[group]]
  for group in ('core', 'ten', 'federated')
}


@functools.cache
def board_of(group: str) -> leaderboard.Leaderboard:
  """Returns the leaderboard of the recorded entries.

  Args:
    group: A key of `GROUPS`.

  Raises:
    SettingsError: If an entry, or the targets, cannot be read.
  """
  version = workloads.version_of(workloads.GROUPS[group])
  known, complaints = entries.find(FOLDER / entries.FOLDERS[version])
  if complaints:
    raise errors.SettingsError(' '.join(complaints))
  targets = references.read(references.FROZEN)
  return leaderboard.build(known, targets, GROUPS[group])


def tables_of(group: str) -> dict[str, str]:
  """Renders the tables of a group as CSV, by the names of their files."""
  board = board_of(group)
  tables = {'': leaderboard.main_table(board)}
  if group != 'federated':
    tables['_apart'] = leaderboard.apart_table(board)
    tables['_cases'] = leaderboard.case_table(board)
  return {
    f'{group}{n}.csv': formatting.csv_table(table)
    for n, table in tables.items()
    if not table.empty
  }


def main() -> None:
  """Writes all of it."""
  for group in GROUPS:
    for name, text in tables_of(group).items():
      files.write_atomically(FOLDER / name, text.encode('utf-8'))
    drawn = page.draw(board_of(group))
    for name in ('scores', 'budgets') if group != 'federated' else ('scores',):
      image = drawing.image(drawn[name], 'svg')
      files.write_atomically(FOLDER / f'{group}_{name}.svg', image)


if __name__ == '__main__':
  main()
