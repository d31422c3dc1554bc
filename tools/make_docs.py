"""A writer of what the code or recorded files decide: rules, flags, tables.

  python tools/make_docs.py           writes them
  python tools/make_docs.py --check   says which pages differ from the code

A page of docs/ or results/ marks such a part by two comments, between which
nothing is written by hand:

  <!-- generate WHAT ARGUMENTS -->
  <!-- end -->

A method without a page gets one, and a line in the site's navigation.
"""

import inspect
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top
from tff_adaptive import algorithms  # noqa: E402
from tff_adaptive import optimizers  # noqa: E402
from tff_adaptive import parameters  # noqa: E402
from tff_adaptive.algorithms import common  # noqa: E402
from tff_adaptive.algorithms import configuration  # noqa: E402
from tff_adaptive.algorithms import methods  # noqa: E402
from tff_adaptive.optimizers import schedules  # noqa: E402
from tff_adaptive.privacy import mechanism  # noqa: E402
from tools import recorded  # noqa: E402
from tools import released_code  # noqa: E402

DOCS = _ROOT / 'docs'
_PART = re.compile(
  r'(<!-- generate ([^\n]*?) -->\n).*?(<!-- end -->)', re.DOTALL
)


def _shared() -> dict[str, parameters.Parameter]:
  """Lists the hyperparameters that no method's page needs to repeat."""
  schedule = parameters.parameters_of(schedules.Schedule)
  shared = {
    f'{side}_{name}': parameter
    for side in optimizers.SIDES
    for name, parameter in schedule.items()
  }
  shared |= parameters.parameters_of(common.Common)
  shared |= parameters.parameters_of(mechanism.Aggregation)
  return shared


def _cell(text: str) -> str:
  return text.replace('|', r'\|').replace('*', r'\*').replace('_', r'\_')


def _table(rows: Mapping[str, parameters.Parameter]) -> str:
  lines = ['| flag | default | accepted | |', '|---|---|---|---|']
  for name, parameter in rows.items():
    default = parameter.default
    unsaid = parameter.required or default in (None, '')
    shown = '' if unsaid else f'`{default}`'
    accepted = parameter.accepted
    lines.append(
      f'| `--{name}` | {shown} | {_cell(accepted)} | {_cell(parameter.help)} |'
    )
  return '\n'.join(lines)


def _rule(name: str) -> str:
  return f'```text\n{algorithms.describe(name)}\n```'


def _flags(name: str) -> str:
  shared = _shared()
  method = methods.find(name)
  return _table(
    {
      public: slot.parameter
      for public, slot in configuration.slots_of(
        method, configuration.optimizers_of(method)
      ).items()
      if public not in shared
      or public in method.defaults
      or slot.components[0] == 'own'
    }
  )


def _shared_flags() -> str:
  rows = _shared()
  # --clients_per_round says it on the command line.
  del rows['dp_clients_per_round']
  return _table(rows)


def _optimizers(side: str) -> str:
  parts = []
  for name in optimizers.names(side):
    rows = {}
    for argument, parameter in optimizers.parameters_of(side, name).items():
      rows[optimizers.public_name(side, argument, name)] = parameter
    description = optimizers.entry_of(side, name).description
    rule = inspect.cleandoc(description.__doc__ or '')
    parts += [f'### `--{side}_optimizer={name}`', f'```text\n{rule}\n```']
    parts.append(_table(rows))
  return '\n\n'.join(parts)


def _index() -> str:
  lines: list[str] = []
  family = ''
  for name in algorithms.names():
    method = methods.find(name)
    if method.family != family:
      family = method.family
      lines += ['', f'### {family}', '']
      lines += ['| name | | client optimizers | server optimizers |']
      lines += ['|---|---|---|---|']
    cells = [f'[{name}]({name}.md)', method.summary]
    for side in optimizers.SIDES:
      own = getattr(method, side)
      others = [n for n in method.accepted(side) if n != own]
      if not others:
        cells.append(f'its own, `{own}`')
      elif side in method.accepts:
        cells.append(f'`{own}`; or {", ".join(others)}')
      else:
        cells.append(f'`{own}`; or any')
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines).strip()


def _methods() -> str:
  """Renders the table of what each method does and costs a client."""
  lines = [
    '| name | client | server | down | up | keeps | holds |',
    '|---|---|---|---|---|---|---|',
  ]
  for name in algorithms.names():
    method = methods.find(name)
    costs = method.costs
    cells = (
      name,
      method.client_words,
      method.server_words,
      costs.down,
      costs.up,
      costs.keeps,
      costs.memory,
    )
    lines.append('|' + '|'.join(f' {c} ' if c else ' ' for c in cells) + '|')
  return '\n'.join(lines)


def _navigation() -> str:
  """Renders the pages of methods, by family, for the site's navigation."""
  lines = []
  family = ''
  for name in algorithms.names():
    if methods.find(name).family != family:
      family = methods.find(name).family
      lines.append(f'      - {family}:')
    lines.append(f'          - {name}: algorithms/{name}.md')
  return '\n'.join(lines)


_WRITERS: Mapping[str, Callable[..., str]] = {
  'rule': _rule,
  'flags': _flags,
  'shared_flags': _shared_flags,
  'optimizers': _optimizers,
  'index': _index,
  'methods': _methods,
  'released_code': released_code.table,
  **recorded.WRITERS,
}
_PAGE = """# {name}

## Rule

<!-- generate rule {name} -->
<!-- end -->

## Flags

<!-- generate flags {name} -->
<!-- end -->

Also accepted: [every method's flags](flags.md) and those of other
[optimizers](optimizers.md) that the method allows.
"""


def generate(text: str) -> str:
  """Returns a page's text with its generated parts as the code has them now."""

  def fill(match: re.Match[str]) -> str:
    what, *arguments = match.group(2).split()
    return f'{match.group(1)}\n{_WRITERS[what](*arguments)}\n\n{match.group(3)}'

  return _PART.sub(fill, text)


def _pages() -> Iterator[tuple[pathlib.Path, str]]:
  """Yields every page with the text that it should have."""
  for name in algorithms.names():
    path = DOCS / 'algorithms' / f'{name}.md'
    if not path.exists():
      yield path, generate(_PAGE.format(name=name))
  results = sorted((_ROOT / 'results').glob('*/README.md'))
  for path in [_ROOT / 'README.md', *sorted(DOCS.rglob('*.md')), *results]:
    yield path, generate(path.read_text(encoding='utf-8'))
  yield DOCS / 'assets' / 'writers.svg', recorded.picture()
  path = _ROOT / 'mkdocs.yml'
  yield (
    path,
    re.sub(
      r'(# generate methods\n).*?(      # end)',
      rf'\g<1>{_navigation()}\n\g<2>',
      path.read_text(encoding='utf-8'),
      flags=re.DOTALL,
    ),
  )


def stale(write: bool) -> list[pathlib.Path]:
  """Finds the pages that differ from the code, and writes them on request."""
  found = []
  for path, expected in _pages():
    text = path.read_text(encoding='utf-8') if path.exists() else ''
    if expected != text:
      found.append(path)
      if write:
        path.write_text(expected, encoding='utf-8')
  return found


def main(arguments: list[str]) -> int:
  check = arguments == ['--check']
  if arguments and not check:
    print(__doc__)
    return 2
  pages = stale(write=not check)
  for path in pages:
    print(path.relative_to(_ROOT))
  return 1 if check and pages else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
