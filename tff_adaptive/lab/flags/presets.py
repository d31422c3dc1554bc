"""Published settings by name, without TensorFlow.

The papers' tables are in `flags/papers`; presets are built from their rows on
first use.
"""

import difflib
import functools
from collections.abc import Mapping

from tff_adaptive import parameters
from tff_adaptive.lab.flags.papers import fedada2
from tff_adaptive.lab.flags.papers import kim2024
from tff_adaptive.lab.flags.papers import mukherjee2023
from tff_adaptive.lab.flags.papers import reddi2021
from tff_adaptive.lab.flags.papers.preset import Preset as Preset


@functools.cache
def _table() -> Mapping[str, Preset]:
  papers = (reddi2021, kim2024, mukherjee2023, fedada2)
  return {row.name: row for paper in papers for row in paper.rows()}


def names() -> list[str]:
  """Lists the names of all presets."""
  return sorted(_table())


def load(name: str) -> Preset:
  """Returns the preset of a name.

  Raises:
    ParameterError: If there is no preset of that name.
  """
  if name not in _table():
    raise parameters.ParameterError(
      'preset',
      '{}={name} is not a preset; {hint}.',
      name=name,
      hint=_nearest(name, names()),
    )
  return _table()[name]


def _nearest(name: str, known: list[str]) -> str:
  """Suggests similar names, or those one level up."""
  close = difflib.get_close_matches(name, known, n=3, cutoff=0.75)
  folder = name.strip('/')
  if below := _below(folder, known):
    return f'it contains {", ".join(below)}'
  if close:
    return 'did you mean ' + ' or '.join(close)
  if below := _below(folder.rpartition('/')[0], known):
    return f'its siblings are {", ".join(below)}'
  folders = sorted({k.rpartition('/')[0] for k in known})
  return f'presets are named METHOD below {", ".join(folders)}'


def _below(folder: str, known: list[str]) -> list[str]:
  """Lists the names one level below a folder of presets."""
  depth = folder.count('/') + 2
  inside = [k for k in known if folder and k.startswith(f'{folder}/')]
  return sorted({'/'.join(k.split('/')[:depth]) for k in inside})
