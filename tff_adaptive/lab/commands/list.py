"""`main.py list`: available choices, or a preset as a flag file."""

import itertools
import textwrap
from collections.abc import Sequence

import tasks
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import runtime_flags


def _task(name: str) -> str:
  info = tasks.info(name)
  if info.own:
    return f'{tasks.summary(name)} (from {info.place}).'
  text = f'{info.summary} {info.model}. {info.clients}.'
  files = f' Reads {", ".join(info.files)} in --cache_dir.'
  return text + files if info.files else text


def _arguments(side: str, name: str) -> str:
  """Lists an optimizer's hyperparameters with their defaults."""
  return ', '.join(
    optimizers.public_name(side, argument, name)
    + ('' if p.required or p.default is None else f'={p.default}')
    for argument, p in optimizers.parameters_of(side, name).items()
  )


def listing() -> str:
  """Renders tasks, algorithms, optimizers, presets and runtimes as text."""
  own = 'A user-defined function that returns a task.'
  folders = itertools.groupby(presets.names(), lambda n: n.rpartition('/')[0])
  sections: dict[str, dict[str, str]] = {
    'Tasks (--task)': {
      **{name: _task(name) for name in tasks.names()},
      'MODULE:FUNCTION': own,
    },
    'Algorithms (--algorithm)': {
      name: method.summary for name, method in methods.table().items()
    },
    **{
      f'{side.title()} optimizers (--{side}_optimizer)': {
        name: _arguments(side, name) for name in optimizers.names(side)
      }
      for side in optimizers.SIDES
    },
    'Published settings (--preset=PAPER/TASK/METHOD)': {
      f'{folder}/': ', '.join(n.rpartition('/')[2] for n in names)
      for folder, names in folders
    },
    'Runtimes (--runtime)': dict.fromkeys(runtime_flags.RUNTIMES, ''),
  }
  lines = []
  for title, entries in sections.items():
    lines += ['', title]
    for name, text in entries.items():
      lines += textwrap.wrap(
        f'{name:<21} {text}',
        79,
        initial_indent='  ',
        subsequent_indent=' ' * 24,
        break_on_hyphens=False,
      )
  return '\n'.join(lines[1:])


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py list [PRESET]`; returns the exit code."""
  if len(arguments) > 1 or (arguments and arguments[0].startswith('-')):
    raise errors.SettingsError(
      'list takes no flags and at most one preset name, got '
      f'{" ".join(arguments)}.'
    )
  if not arguments:
    print(listing())
    return 0
  print(presets.load(arguments[0]).text())
  return 0
