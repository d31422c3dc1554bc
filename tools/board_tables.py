"""A writer of what the recorded entries of the board say together.

  python tools/board_tables.py

`main.py board --output_dir=results/board` makes entries, of one method or more;
this writes the tables and pictures in results/board, and the tables of
docs/board.md, which lie between two comments:

  <!-- board GROUP -->
  <!-- end -->

It takes a minute, for intervals: too long to be a part of tools/make_docs.py.
Sentences around the tables are written by hand, and
tests/board/test_recorded.py says which of them have become wrong.
"""

import functools
import pathlib
import re
import sys
from collections.abc import Sequence

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top
from tff_adaptive import errors  # noqa: E402
from tff_adaptive.lab.board import entries  # noqa: E402
from tff_adaptive.lab.board import page  # noqa: E402
from tff_adaptive.lab.board import pictures  # noqa: E402
from tff_adaptive.lab.board import references  # noqa: E402
from tff_adaptive.lab.board import standings as standings_lib  # noqa: E402
from tff_adaptive.lab.board import workloads  # noqa: E402
from tff_adaptive.lab.recording import files  # noqa: E402

FOLDER = _ROOT / 'results' / 'board'
PAGE = _ROOT / 'docs' / 'board.md'
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
_PART = re.compile(r'(<!-- board (\w+) -->\n).*?(<!-- end -->)', re.DOTALL)


@functools.cache
def _recorded() -> tuple[Sequence[entries.Entry], references.References]:
  known, complaints = entries.find(FOLDER / 'entries')
  if complaints:
    raise errors.SettingsError(' '.join(complaints))
  return known, references.read(FOLDER / references.FILE)


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


def untuned_of(standings: standings_lib.Standings) -> dict[str, str]:
  """Returns the scores of the defaults, as text by printed name."""
  rows = standings_lib.untuned_table(standings).rows
  return {row[0]: row[1] for row in rows}


def tables_of(standings: standings_lib.Standings) -> tuple[str, str]:
  """Returns the main table as CSV, and as the page has it."""
  table = standings_lib.main_table(standings)
  untuned = untuned_of(standings)
  lines = [
    '| place | method | score | 95 % interval | untuned | speed | misses '
    '| diverged |',
    '|---|---|---|---|---|---|---|---|',
  ]
  for place, method, score, low, high, *others in table.rows:
    cells = [place, method, score, f'{low} to {high}', untuned[method], *others]
    lines.append(f'| {" | ".join(cells)} |')
  return page.as_csv(table), '\n'.join(lines)


def main() -> None:
  """Writes all of it."""
  parts = {}
  for group, (table, picture) in FILES.items():
    standings = standings_of(group)
    csv, parts[group] = tables_of(standings)
    files.write_atomically(FOLDER / table, csv.encode('utf-8'))
    drawn = pictures.as_svg(pictures.draw(standings)['budgets'])
    files.write_atomically(FOLDER / picture, drawn.encode('utf-8'))

  def fill(match: re.Match[str]) -> str:
    return f'{match[1]}\n{parts[match[2]]}\n\n{match[3]}'

  text = _PART.sub(fill, PAGE.read_text(encoding='utf-8'))
  files.write_atomically(PAGE, text.encode('utf-8'))
  agreement = standings_lib.agreement(standings_of(*GROUPS))
  low, high = agreement.interval
  print(
    f'Ranks agree by {agreement.correlation:.2f} ({low:.2f} to {high:.2f}) '
    f'over {agreement.methods} methods.'
  )


if __name__ == '__main__':
  main()
