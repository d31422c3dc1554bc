"""Settings that papers published, by name, without TensorFlow.

A preset is a flag file PAPER/TASK/METHOD.flags below tff_adaptive/presets/,
which absl's own --flagfile reads as well. Its comments of the form
`# key: text` say where the settings come from and which number they gave there.
"""

import dataclasses
import difflib
import functools
import pathlib
import re
from typing import Optional

from tff_adaptive import errors
from tff_adaptive import parameters

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'presets'
_SUFFIX = '.flags'


@dataclasses.dataclass(frozen=True)
class Preset:
  """A published experiment.

  Attributes:
    name: PAPER/TASK/METHOD.
    flags: Its flags by name, as text.
    source: The paper, and where in it the settings are.
    published: The number that the paper reports for them, in words, if it
      reports one.
    note: Where the settings depart from the paper, if they do.
  """

  name: str
  flags: dict[str, str]
  source: str
  published: Optional[str] = None
  note: Optional[str] = None

  def describe(self) -> str:
    """Says what the paper reports, for --dry_run."""
    lines = [f'preset       {self.name}', f'source       {self.source}']
    if self.published is None:
      lines.append('reported     the paper gives no number for this setting')
    else:
      lines.append(f'reported     {self.published}')
    if self.note is not None:
      lines.append(f'note         {self.note}')
    return '\n'.join(lines)


def names() -> list[str]:
  """Lists the presets that there are."""
  return list(_names_below(FOLDER))


@functools.cache  # The papers' grids load dozens of presets.
def _names_below(folder: pathlib.Path) -> tuple[str, ...]:
  # Not `with_suffix`: names may have dots, as in alpha_0.1.
  return tuple(
    sorted(
      path.relative_to(folder).as_posix().removesuffix(_SUFFIX)
      for path in folder.glob(f'*/*/*{_SUFFIX}')
    )
  )


def load(name: str) -> Preset:
  """Reads a preset.

  Raises:
    ParameterError: If there is none of that name.
    SettingsError: If its file is damaged.
  """
  known = names()
  if name not in known:
    raise parameters.ParameterError(
      'preset',
      '{}={name} is no preset; {hint}.',
      name=name,
      hint=_nearest(name, known),
    )
  path = FOLDER / f'{name}{_SUFFIX}'
  comments: dict[str, str] = {}
  flags: dict[str, str] = {}
  for number, line in enumerate(
    path.read_text(encoding='utf-8').splitlines(), start=1
  ):
    comment = re.fullmatch(r'# (source|published|note): (.+)', line)
    flag = re.fullmatch(r'--(\w+)=(.*)', line)
    if comment:
      comments[comment.group(1)] = comment.group(2)
    elif flag and flag.group(1) not in flags:
      flags[flag.group(1)] = flag.group(2)
    elif line and not line.startswith('#'):
      raise errors.SettingsError(
        f'{path} is damaged in line {number}: it must be --flag=value, each '
        f'flag once, got {line!r}.'
      )
  if 'source' not in comments:
    raise errors.SettingsError(f'{path} does not say its source.')
  return Preset(name=name, flags=flags, **comments)


def _nearest(name: str, known: list[str]) -> str:
  """Suggests the nearest names, or those one level up."""
  close = difflib.get_close_matches(name, known, n=3, cutoff=0.75)
  folder = name.strip('/')
  if below := _below(folder, known):
    return f'below it there are {", ".join(below)}'
  if close:
    return 'did you mean ' + ' or '.join(close)
  if below := _below(folder.rpartition('/')[0], known):
    return f'beside it there are {", ".join(below)}'
  folders = sorted({k.rpartition('/')[0] for k in known})
  return f'they are named METHOD below {", ".join(folders)}'


def _below(folder: str, known: list[str]) -> list[str]:
  """Lists the names one level below a folder of presets."""
  depth = folder.count('/') + 2
  inside = [k for k in known if folder and k.startswith(f'{folder}/')]
  return sorted({'/'.join(k.split('/')[:depth]) for k in inside})
