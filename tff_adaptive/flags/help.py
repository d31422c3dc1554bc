"""The help that the flags give of themselves."""

import dataclasses
from typing import Any

from tff_adaptive.flags import availability
from tff_adaptive.flags import flag_table
from tff_adaptive.flags import options
from tff_adaptive.flags import runtime_flags

# What comes from the flag of a name on.
_TITLES = {
  'preset': 'What to train:',
  'total_rounds': 'How long, and on whom:',
  'target_epsilon': 'Privacy (with --dp_clip_norm and --dp_noise_multiplier):',
  'rounds_per_eval': 'Looking at it:',
  'cache_dir': 'Data and machine:',
}
# General flags that only the full help shows.
_RARE = (
  'dp_sampling',
  'dp_accounting',
  'client_states',
  'client_state_mib',
  'max_rejected_clients',
  'record',
  'evaluate_clients',
  'client_test_share',
  'finetune_epochs',
  'finetune_learning_rate',
  'evaluate_clients_under_dp',
  'target_metric',
  'patience',
  'ema_decay',
  'client_steps_per_round',
  *availability.FLAGS,
  'initial_weights',
  'freeze',
  'validation_share',
  'validation_sample',
  *runtime_flags.RARE,
)
# More are not listed by name where a text is theirs.
_MOST_TAKERS = 8
# Hyperparameters that the short help shows.
_USUAL = (
  'client_learning_rate',
  'server_learning_rate',
  'client_lr_schedule',
  'server_lr_schedule',
  'client_weighting',
  'proximal_strength',
  'aggregator',
  'dp_clip_norm',
  'dp_noise_multiplier',
)


def usual(table: flag_table.FlagTable) -> str:
  """Renders the flags that most people need, by group."""
  return '\n'.join([*_usual(table), *_of_own(table)])


def _usual(table: flag_table.FlagTable) -> list[str]:
  lines = []
  for name, flag in table.general.items():
    if name in _TITLES:
      lines.append(_TITLES[name])
    if name not in _RARE:
      lines += options.entry(flag.parameter)
  lines.append('Hyperparameters (main.py list says who takes which):')
  for name in _USUAL:
    lines += _shared(table.algorithm[name])
  lines.append(
    '  --client_{optimizer}_{argument}, '
    '--server_{optimizer}_{argument}, --{task}_{argument}'
  )
  lines.append('      Such as --server_adam_beta_1 and --digits_alpha.')
  lines.append('')
  lines.append(
    '--flagfile=FILE reads flags from a file; --helpfull lists all of them.'
  )
  return lines


def full(table: flag_table.FlagTable) -> str:
  """Renders all flags."""
  lines = [*_usual(table), '', 'Less often needed:']
  for name in _RARE:
    lines += options.entry(table.general[name].parameter)
  lines += ['', 'All hyperparameters:']
  for _, flag in sorted(table.algorithm.items()):
    lines += _by_taker(flag)
  for title, flags in (
    ('Of one optimizer only:', table.optimizer),
    ('Of one task only:', table.task),
  ):
    lines.append(title)
    for _, flag in sorted(flags.items()):
      lines += options.entry(flag.parameter)
  return '\n'.join([*lines, *_of_own(table)])


def _shared(flag: flag_table.Flag) -> list[str]:
  """Renders a flag whose default depends on who takes it."""
  return options.entry(flag.parameter, default=None)


def _by_taker(flag: flag_table.Flag) -> list[str]:
  """Renders it with what the flag means to each taker, if they differ."""
  meanings: dict[str, list[tuple[str, Any]]] = {}
  for taker, parameter in flag.takers:
    meanings.setdefault(parameter.help, []).append((taker, parameter.default))
  if len(meanings) < 2:
    return _shared(flag)
  lines = options.entry(dataclasses.replace(flag.parameter, help=''))[:1]
  for text, told in meanings.items():
    takers, defaults = (list(dict.fromkeys(column)) for column in zip(*told))
    who = 'the other methods'
    if len(takers) <= _MOST_TAKERS:
      who = ', '.join(takers)
    named = dataclasses.replace(flag.parameter, help=f'{who}: {text}')
    default = defaults[0] if len(defaults) == 1 else None
    lines += options.entry(named, default=default)[1:]
  return lines


def _of_own(table: flag_table.FlagTable) -> list[str]:
  """Renders the flags of the user's own tasks that are known."""
  lines = []
  for task, flags in table.own.items():
    lines += ['', f'Of --task={task}:']
    lines += [line for f in flags for line in options.entry(f.parameter)]
  return lines
