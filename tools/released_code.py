"""The papers' released code beside the presets: tables, and what holds them.

docs/released_code/PAPER.csv has a row for every setting: its value in the
released code, with repository, commit, path and line; the flag that it is here
and the presets that have it, as patterns of their names; the value `ours`; and
the verdict, 'same' where both values are equal, or else 'departs', with the
reason, or 'not found'. tools/make_docs.py writes the tables of the pages from
it, and tests/test_released_code.py holds the presets to it.
"""

import csv
import fnmatch
import functools
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import resolving
from tff_adaptive.lab.flags import settings as settings_lib

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'docs' / 'released_code'
COLUMNS = (
  'setting',
  'value',
  'repository',
  'commit',
  'path',
  'line',
  'flag',
  'presets',
  'ours',
  'verdict',
  'reason',
)
# Flags, and files of some folder.
_CODE = re.compile(r'(--[\w=.]+|\w+/[\w/]+(?:\.\w+)?)')
# A setting, by column.
Row: TypeAlias = Mapping[str, str]


def papers() -> list[str]:
  return sorted(path.stem for path in FOLDER.glob('*.csv'))


def read(paper: str) -> list[Row]:
  """Reads a paper's settings, in the file's order.

  Raises:
    ValueError: If a row has other columns.
  """
  path = FOLDER / f'{paper}.csv'
  with open(path, newline='', encoding='utf-8') as file:
    reader = csv.DictReader(file, strict=True)
    rows: list[Row] = list(reader)
  for row in rows:
    # Too many cells are under None, too few are None.
    if tuple(row) != COLUMNS or None in row.values():
      raise ValueError(f'{path}: expected the columns {COLUMNS}, got {row}.')
  return rows


def table(paper: str, *verdicts: str) -> str:
  """Renders settings in Markdown, and their number.

  Args:
    paper: The table's name.
    *verdicts: Those of the settings, with _ for a blank.
  """
  chosen = {verdict.replace('_', ' ') for verdict in verdicts}
  rows = [row for row in read(paper) if row['verdict'] in chosen]
  alike = chosen == {'same'}
  heading = ['setting', 'released code', 'where', 'here']
  heading += ['note' if alike else 'why']
  lines = [
    f'{len(rows)} settings.',
    '',
    f'| {" | ".join(heading)} |',
    '|---|---|---|---|---|',
  ]
  for row in rows:
    cells = [row['setting'], row['value']]
    here = '' if alike and row['flag'] else _escaped(row['ours'])
    if row['flag']:
      here = f'{here}{" " if here else ""}`--{row["flag"]}` of {_globs(row)}'
    shown = [*map(_escaped, cells), _link(row), here, _escaped(row['reason'])]
    lines.append(f'| {" | ".join(shown)} |')
  return '\n'.join(lines)


def disagreements(rows: Iterable[Row]) -> Iterator[str]:
  """Finds presets that do not have what the table says they have.

  Yields:
    A sentence for each.
  """
  for row in rows:
    if not row['flag']:
      continue
    names = _matching(row['presets'])
    if not names:
      yield f'{row["setting"]}: no preset is called {row["presets"]!r}.'
    for name in names:
      found = _value(_settings(name), row['flag'])
      if not _equal(found, row['ours']):
        yield (
          f'{row["setting"]}: --preset={name} has --{row["flag"]}={found}, the '
          f'table {row["ours"]}.'
        )


def _matching(patterns: str) -> list[str]:
  return [
    name
    for name in presets.names()
    if any(fnmatch.fnmatchcase(name, p) for p in patterns.split())
  ]


@functools.cache
def _settings(name: str) -> settings_lib.Settings:
  return resolving.settings(preset=name)


def _value(settings: settings_lib.Settings, flag: str) -> Any:
  """Returns a flag's value; 'not a flag of this run' if there is none."""
  value = settings.identity.get(flag, 'not a flag of this run')
  # As the flag is written.
  return -1 if flag == 'num_validation_examples' and value is None else value


def _equal(found: Any, text: str) -> bool:
  try:
    return float(found) == float(text)
  except (TypeError, ValueError):
    return str(found) == text


def _globs(row: Row) -> str:
  return ', '.join(f'`{pattern}`' for pattern in row['presets'].split())


def _link(row: Row) -> str:
  """Links the lines in the released code; empty for a row without lines."""
  if not row['line']:
    return ''
  first, _, last = row['line'].partition('-')
  place = f'L{first}-L{last}' if last else f'L{first}'
  url = f'https://github.com/{row["repository"]}/blob/{row["commit"]}'
  name = _escaped(pathlib.PurePosixPath(row['path']).name)
  return f'[{name}, {row["line"]}]({url}/{row["path"]}#{place})'


def _escaped(text: str) -> str:
  """Escapes Markdown; flags and names of files become code."""
  parts = _CODE.split(text)
  for i in range(0, len(parts), 2):
    for character in r'|*_<[':
      parts[i] = parts[i].replace(character, f'\\{character}')
  return ''.join(f'`{p}`' if i % 2 else p for i, p in enumerate(parts))
