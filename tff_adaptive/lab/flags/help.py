"""The help text of flags."""

import dataclasses
from typing import Any

from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import options

# General flags of the short help; the full help shows the others.
_SECTIONS = {
  'What to train:': (
    'preset',
    'task',
    'algorithm',
    'client_optimizer',
    'server_optimizer',
  ),
  'Training:': (
    'total_rounds',
    'clients_per_round',
    'client_epochs_per_round',
    'client_batch_size',
    'max_elements_per_client',
    'client_datasets_random_seed',
    'seed',
  ),
  'Privacy (with --dp_clip_norm and --dp_noise_multiplier):': (
    'target_epsilon',
    'dp_delta',
  ),
  'Evaluation and output:': (
    'rounds_per_eval',
    'validation_split',
    'num_validation_examples',
    'rounds_per_checkpoint',
    'experiment_name',
    'root_output_dir',
  ),
  'Data and machine:': (
    'cache_dir',
    'data',
    'cache_mib',
    'runtime',
    'max_concurrent_clients',
    'ray_address',
    'dry_run',
  ),
}
# Takers of a hyperparameter are listed by name up to this many.
_MOST_TAKERS = 8
# Hyperparameters of the short help.
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
  """Renders the flags that most users need, by group."""
  lines = []
  for title, names in _SECTIONS.items():
    lines.append(title)
    for name in names:
      lines += options.entry(table.general[name].parameter)
  lines.append('Hyperparameters (main.py list shows which method takes which):')
  for name in _USUAL:
    lines += _shared(table.algorithm[name])
  lines += [
    '',
    '--task=TASK --help lists the flags of a task too, --helpfull all flags;',
    '--flagfile=FILE reads flags from a file.',
  ]
  return '\n'.join(lines)


def full(table: flag_table.FlagTable) -> str:
  """Renders all flags."""
  lines = [usual(table), '', 'Advanced:']
  shown = {name for names in _SECTIONS.values() for name in names}
  for name, flag in table.general.items():
    if name not in shown:
      lines += options.entry(flag.parameter)
  lines += ['', 'All hyperparameters:']
  for _, flag in sorted(table.algorithm.items()):
    lines += _by_taker(flag)
  lines.append('Specific to one task:')
  for _, flag in sorted(table.task.items()):
    lines += options.entry(flag.parameter)
  return '\n'.join(lines)


def _shared(flag: flag_table.Flag) -> list[str]:
  """Renders a flag without its default, which depends on the taker."""
  return options.entry(flag.parameter, default=None)


def _by_taker(flag: flag_table.Flag) -> list[str]:
  """Renders a flag with a text for each taker, if texts differ."""
  meanings: dict[str, list[tuple[str, Any]]] = {}
  for taker, parameter in flag.takers:
    meanings.setdefault(parameter.help, []).append((taker, parameter.default))
  if len(meanings) < 2:
    return _shared(flag)
  lines = options.entry(dataclasses.replace(flag.parameter, help=''))[:1]
  for text, pairs in meanings.items():
    takers, defaults = (list(dict.fromkeys(column)) for column in zip(*pairs))
    who = 'the other methods'
    if len(takers) <= _MOST_TAKERS:
      who = ', '.join(takers)
    named = dataclasses.replace(flag.parameter, help=f'{who}: {text}')
    default = defaults[0] if len(defaults) == 1 else None
    lines += options.entry(named, default=default)[1:]
  return lines


def of_task(table: flag_table.FlagTable, task: str) -> str:
  """Renders the flags of a task."""
  lines = ['', f'Of --task={task}:']
  for flag in table.flags.values():
    if flag.task == task:
      lines += options.entry(flag.parameter)
  return '\n'.join(lines)
