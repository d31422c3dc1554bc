"""Prints the size of each room: statements without docstrings, and modules.

python tools/weigh.py [ROOT ...]

With two roots, the second one's figures stand beside the first one's.
"""

import ast
import collections
import pathlib
import sys

# The most statements that a room may have; "all" counts package, tasks and
# main.py.
BUDGETS = {
  'sweep': 900,
  'report': 750,
  'recording': 1250,
  'training': 2200,
  'flags, commands': 1350,
  'board': 750,
  'tasks': 3900,
  'runtime': 3100,
  'library': 4700,
  'top level': 900,
  'all': 20_000,
  'modules': 300,
  'test lines': 32_000,
  'words of docs/*.md': 26_000,
  'words of README.md': 1_200,
}
_LIBRARY = {'optimizers', 'processes', 'algorithms', 'privacy'}
_SAME_ROOM = {'flags': 'flags, commands', 'commands': 'flags, commands'}


def statements(source: str) -> int:
  """Counts the statements of a module, docstrings left out."""
  found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)]
  return sum(
    not (
      isinstance(n, ast.Expr)
      and isinstance(n.value, ast.Constant)
      and isinstance(n.value.value, str)
    )
    for n in found
  )


def _room(path: pathlib.PurePath) -> str:
  parts = path.parts
  if parts[0] == 'tasks':
    return 'tasks'
  if parts[0] != 'tff_adaptive' or len(parts) == 2:
    return 'top level'
  if parts[1] == 'lab':
    return _SAME_ROOM.get(parts[2], parts[2]) if len(parts) > 3 else 'top level'
  return 'library' if parts[1] in _LIBRARY else parts[1]


def weigh(root: pathlib.Path) -> dict[str, int]:
  """Counts statements room by room, modules, lines of tests, words of docs."""
  counts: dict[str, int] = collections.Counter()
  modules = 0
  paths = [root / 'main.py']
  for folder in ('tff_adaptive', 'tasks'):
    paths += sorted((root / folder).rglob('*.py'))
  for path in paths:
    count = statements(path.read_text(encoding='utf-8'))
    counts[_room(path.relative_to(root))] += count
    modules += count > 0
  total = sum(counts.values())
  ordered = dict(sorted(counts.items(), key=lambda item: -item[1]))
  tests = (root / 'tests').rglob('*.py')
  pages = {'docs/*.md': (root / 'docs').glob('*.md')}
  pages['README.md'] = [root / 'README.md']
  return {
    **ordered,
    'all': total,
    'modules': modules,
    'test lines': sum(p.read_text('utf-8').count('\n') for p in tests),
    **{
      f'words of {name}': sum(len(p.read_text('utf-8').split()) for p in paths)
      for name, paths in pages.items()
    },
  }


def main(roots: list[str]) -> None:
  weighed = [weigh(pathlib.Path(root)) for root in roots or ['.']]
  for name in weighed[-1]:
    columns = ''.join(f'{counts.get(name, 0):8,}' for counts in weighed)
    budget = BUDGETS.get(name)
    print(f'{name:20}{columns}' + (f'   of {budget:,}' if budget else ''))


if __name__ == '__main__':
  main(sys.argv[1:])
