"""Published settings by name, read from `flags/papers`, without TensorFlow."""

import dataclasses
import difflib
import functools
import itertools
import pathlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from tff_adaptive import parameters

_PAPERS = pathlib.Path(__file__).with_name('papers')
# Entries that are no flags.
_NO_FLAGS = {'published', 'measure', 'source'}


@dataclasses.dataclass(frozen=True)
class Preset:
  """A published experiment.

  Attributes:
    name: PAPER/TASK/METHOD.
    flags: Its flags by name, as text.
    source: The paper, and the place of the settings in it.
    published: The result that the paper reports, as text, if any.
    note: Departures of the settings from the paper, if any.
  """

  name: str
  flags: Mapping[str, str]
  source: str
  published: Optional[str] = None
  note: Optional[str] = None

  def text(self) -> str:
    """Renders a flag file, readable by absl's --flagfile."""
    about = {
      name: getattr(self, name) for name in ('source', 'published', 'note')
    }
    return '\n'.join(
      [
        *(f'# {name}: {text}' for name, text in about.items() if text),
        *(f'--{name}={text}' for name, text in self.flags.items()),
      ]
    )

  def describe(self) -> str:
    """Describes the preset and the reported result, for --dry_run."""
    about = {
      'preset': self.name,
      'source': self.source,
      'reported': self.published
      or 'the paper gives no number for this setting',
      'note': self.note,
    }
    return '\n'.join(
      f'{name:<12} {text}' for name, text in about.items() if text
    )


@functools.cache
def _presets() -> Mapping[str, Preset]:
  files = sorted(_PAPERS.glob('*.toml'))
  return {preset.name: preset for file in files for preset in _read(file)}


def _read(file: pathlib.Path) -> Iterator[Preset]:
  """Yields a paper's presets; papers/README.md describes the file."""
  paper = tomllib.loads(file.read_text(encoding='utf-8'))

  def compose(names: str) -> Iterator[tuple[str, Any]]:
    for part in (paper['parts'].get(name, {}) for name in names.split()):
      yield from compose(part.get('parts', ''))
      yield from ((key, part[key]) for key in part if key != 'parts')

  for table in paper['tables']:
    for row, cells in table['rows'].items():
      task, *words = row.split()
      columns = table['columns'].split()
      for column, cell in itertools.zip_longest(columns, cells, fillvalue=''):
        place = dict(task=task, row=' '.join(words), column=column)
        found = {'task': task, 'validation_split': 'test', **table}
        notes = []
        for key, value in (
          *compose(table['parts'].format(**place)),
          *zip(table.get('cells', '').split(), cell.split()),
        ):
          text = f'{value:.6g}' if isinstance(value, float) else f'{value}'
          if key == 'note':
            notes.append(text.format(**place))
          elif text != '-':
            found[key.format(**place)] = text.format(**place)
        kind = [table['kind']] if 'kind' in table else []
        published = found.get('published')
        yield Preset(
          '/'.join((file.stem, task, '_'.join([column, *kind, *words]))),
          {k: v for k, v in found.items() if k not in _NO_FLAGS | table.keys()},
          f'{paper["paper"]}, {found["source"]}',
          published and f'{published} ({found["measure"]})',
          '; '.join(notes) or None,
        )


def names() -> list[str]:
  """Lists the names of all presets."""
  return sorted(_presets())


def load(name: str) -> Preset:
  """Returns the preset of a name.

  Raises:
    ParameterError: If there is no preset of that name.
  """
  if name not in _presets():
    inside = [n for n in names() if n.startswith(f'{name.strip("/")}/')]
    close = inside or difflib.get_close_matches(name, names(), n=3, cutoff=0.7)
    hint = 'main.py list names them'
    if close:
      hint = f'similar ones are {", ".join(close[:8])}'
    raise parameters.ParameterError(
      'preset', '{}={name} is not a preset; {hint}.', name=name, hint=hint
    )
  return _presets()[name]
