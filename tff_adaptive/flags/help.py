"""The help that the flags give of themselves."""

import textwrap
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.flags import declaration as flag_table


def usual(table: flag_table.Table) -> str:
  """The flags that most people need, by group."""
  lines = []
  for title, group in table.general.items():
    lines.append(f'{title}:')
    for parameter in group:
      if parameter.name not in flag_table.RARE:
        lines.extend(_entry(parameter.name, parameter, parameter.default))
  lines.append('Hyperparameters (main.py list says who takes which):')
  for name in (
    'client_learning_rate',
    'server_learning_rate',
    'client_lr_schedule',
    'server_lr_schedule',
    'client_weighting',
    'proximal_strength',
    'aggregator',
    'dp_clip_norm',
    'dp_noise_multiplier',
  ):
    lines.extend(_entry(name, table.algorithm[name].parameter))
  lines.append(
    '  --client_{optimizer}_{argument}, '
    '--server_{optimizer}_{argument}, --{task}_{argument}'
  )
  lines.append('      Such as --server_adam_beta_1 and --digits_alpha.')
  lines.append('')
  lines.append(
    '--flagfile=FILE reads flags from a file; --helpfull lists all of them.'
  )
  return '\n'.join(lines)


def full(table: flag_table.Table) -> str:
  """All flags."""
  lines = [usual(table), '', 'Less often needed:']
  for parameter in table.independent():
    if parameter.name in flag_table.RARE:
      lines.extend(_entry(parameter.name, parameter, parameter.default))
  lines += ['', 'All hyperparameters:']
  for flags, title in (
    (table.algorithm, None),
    (table.optimizer, 'Of one optimizer only:'),
    (table.task, 'Of one task only:'),
  ):
    if title:
      lines.append(title)
    for flag in sorted(flags.values(), key=lambda f: f.name):
      default = ... if flag.owner is None else flag.parameter.default
      lines.extend(_entry(flag.name, flag.parameter, default))
  return '\n'.join(lines)


def _entry(
  name: str, parameter: parameters.Parameter, default: Any = ...
) -> list[str]:
  """A flag's lines in the help."""
  lines = [f'  --{name}']
  if parameter.choices is not None:
    lines[0] += '={' + ','.join(parameter.choices) + '}'
  text = parameter.help
  unsaid = (None, ..., False, parameters.REQUIRED)
  if not any(default is value for value in unsaid):
    text = f'{text} Default: {default}.'
  lines.extend(
    textwrap.wrap(text, 76, initial_indent=' ' * 6, subsequent_indent=' ' * 6)
  )
  return lines
