"""The help that the flags give of themselves."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import plan
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
  """The flags that most people need, by group."""
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
  return '\n'.join(lines)


def full(table: flag_table.FlagTable) -> str:
  """All flags."""
  lines = [usual(table), '', 'Less often needed:']
  for name in _RARE:
    lines += options.entry(table.general[name].parameter)
  lines += ['', 'All hyperparameters:']
  meanings = _meanings()
  for name, flag in sorted(table.algorithm.items()):
    lines += _shared(flag, meanings[name])
  for title, flags in (
    ('Of one optimizer only:', table.optimizer),
    ('Of one task only:', table.task),
  ):
    lines.append(title)
    for _, flag in sorted(flags.items()):
      lines += options.entry(flag.parameter)
  return '\n'.join(lines)


def _shared(
  flag: flag_table.Flag, meanings: Sequence['_Meaning'] = ()
) -> list[str]:
  """The entry of a flag whose default depends on who takes it.

  Args:
    flag: The flag.
    meanings: What it means to whom, where that is to be told.
  """
  if len(meanings) < 2:
    return options.entry(flag.parameter, default=None)
  lines = options.entry(dataclasses.replace(flag.parameter, help=''))[:1]
  for meaning in meanings:
    (default, *others) = meaning.defaults
    takers = ', '.join(meaning.takers)
    if len(meaning.takers) > _MOST_TAKERS:
      takers = 'the other methods'
    told = dataclasses.replace(flag.parameter, help=f'{takers}: {meaning.text}')
    lines += options.entry(told, default=None if others else default)[1:]
  return lines


@dataclasses.dataclass
class _Meaning:
  """What a hyperparameter means to some.

  Attributes:
    text: What they say of it.
    takers: Who they are.
    defaults: Their defaults, each once.
  """

  text: str
  takers: list[str] = dataclasses.field(default_factory=list)
  defaults: list[Any] = dataclasses.field(default_factory=list)


def _meanings() -> dict[str, list[_Meaning]]:
  """What each hyperparameter means to the methods and optimizers."""
  found: dict[str, dict[str, _Meaning]] = {}

  def add(name: str, taker: str, parameter: parameters.Parameter) -> None:
    texts = found.setdefault(name, {})
    meaning = texts.setdefault(parameter.help, _Meaning(parameter.help))
    if taker not in meaning.takers:
      meaning.takers.append(taker)
    if parameter.default not in meaning.defaults:
      meaning.defaults.append(parameter.default)

  for method in methods.table():
    chosen = plan.choose(method)
    for name, slot in chosen.slots.items():
      # An optimizer speaks for itself, below.
      if not (
        slot.piece in optimizers.SIDES
        and chosen.optimizer[slot.piece] in optimizers.names(slot.piece)
      ):
        add(name, method, slot.parameter)
  for side in optimizers.SIDES:
    for optimizer in optimizers.names(side):
      for argument, parameter in optimizers.parameters_of(
        side, optimizer
      ).items():
        name = optimizers.public_name(side, argument, optimizer)
        add(name, f'{side} {optimizer}', parameter)
        plain = optimizers.public_name(side, argument)
        if plain != name:
          add(plain, f'{side} {optimizer}', parameter)
  return {name: list(texts.values()) for name, texts in found.items()}
