"""`main.py list`: available choices, or a preset as a flag file."""

import textwrap
from collections.abc import Sequence

import tasks
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.flags import options
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import runtime_flags


def _wrapped(head: str, text: str) -> list[str]:
  return textwrap.wrap(
    text, 79, initial_indent=f'  {head:<22}', subsequent_indent=' ' * 24
  )


def _default(parameter: parameters.Parameter) -> str:
  if parameter.required or parameter.default is None:
    return parameter.name
  return f'{parameter.name}={parameter.default}'


def listing() -> str:
  """Renders tasks, algorithms, optimizers, presets and runtimes as text."""
  lines = ['Tasks (--task)']
  for name in tasks.names():
    info = tasks.info(name)
    if info.own:
      lines += _wrapped(name, f'{tasks.summary(name)} (from {info.place}).')
      continue
    lines += _wrapped(name, f'{info.summary} {info.model}. {info.clients}.')
    if info.files:
      lines += _wrapped('', f'Reads {", ".join(info.files)} in --cache_dir.')
  lines += _wrapped(
    'MODULE:FUNCTION', 'A user-defined function that returns a task.'
  )
  lines += ['', 'Algorithms (--algorithm)']
  for name, method in methods.table().items():
    lines += _wrapped(name, method.summary)
  for side in optimizers.SIDES:
    lines += [
      '',
      f'{side.title()} optimizers (--{side}_optimizer)',
    ]
    for name in optimizers.names(side):
      accepted = optimizers.parameters_of(side, name)
      shown = (
        _default(p.named(optimizers.public_name(side, p.name, name)))
        for p in accepted.values()
      )
      lines += _wrapped(name, ', '.join(shown))
  lines += ['', 'Published settings (--preset=PAPER/TASK/METHOD)']
  below: dict[str, list[str]] = {}
  for name in presets.names():
    folder, _, last = name.rpartition('/')
    below.setdefault(folder, []).append(last)
  for folder, names in below.items():
    lines.append(f'  {folder}/')
    lines += _wrapped('', ', '.join(names))
  lines += [
    '',
    'Runtimes (--runtime)',
    '  ' + ', '.join(runtime_flags.RUNTIMES),
  ]
  return '\n'.join(lines)


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
  try:
    print(presets.load(arguments[0]).text())
  except parameters.ParameterError as e:
    raise options.refusal(e) from e
  return 0
