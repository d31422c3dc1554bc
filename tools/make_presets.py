"""A writer of the flag files in tff_adaptive/presets/, from papers' tables.

  python tools/make_presets.py           writes them
  python tools/make_presets.py --check   says which differ from the tables

A preset is left out while the program has no such task, algorithm or flag;
run this again once it has.
"""

import pathlib
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top
import tasks  # noqa: E402
from tff_adaptive import algorithms  # noqa: E402
from tff_adaptive.flags import parsing as flags_lib  # noqa: E402
from tff_adaptive.flags import presets  # noqa: E402
from tools.paper_presets import fedada2  # noqa: E402
from tools.paper_presets import kim2024  # noqa: E402
from tools.paper_presets import mukherjee2023  # noqa: E402
from tools.paper_presets import preset  # noqa: E402
from tools.paper_presets import reddi2021  # noqa: E402


def rows() -> list[preset.Row]:
  """Lists every preset of the tables that this program can run."""
  parser = flags_lib.Flags()
  known = set(parser.values)
  return [
    row
    for paper in (reddi2021, kim2024, mukherjee2023, fedada2)
    for row in paper.rows()
    if row.flags['task'] in tasks.names()
    and row.flags['algorithm'] in algorithms.names()
    and set(row.flags) <= known
  ]


def main(arguments: list[str]) -> int:
  folder = presets.FOLDER
  check = arguments == ['--check']
  if arguments and not check:
    print(__doc__)
    return 2
  expected = {folder / f'{row.name}.flags': row.text() for row in rows()}
  there = set(folder.rglob('*.flags'))
  wrong = [
    path
    for path, text in expected.items()
    if path not in there or path.read_text(encoding='utf-8') != text
  ]
  for path in sorted({*wrong, *(there - set(expected))}):
    print(path.relative_to(_ROOT))
    if check:
      continue
    if path in expected:
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(expected[path], encoding='utf-8')
    else:
      path.unlink()
  return 1 if check and (wrong or there - set(expected)) else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
