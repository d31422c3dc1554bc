"""The help text of flags."""

from typing import Any

from tff_adaptive import parameters
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
  groups = {
    title: [table.general[name].parameter for name in names]
    for title, names in _SECTIONS.items()
  }
  title = 'Hyperparameters (main.py list shows which method takes which):'
  groups[title] = [_shared(table.algorithm[name]) for name in _USUAL]
  return (
    f'{options.render(groups)}\n\n'
    '--task=TASK --help lists the flags of a task too, --helpfull all flags;\n'
    '--flagfile=FILE reads flags from a file.'
  )


def full(table: flag_table.FlagTable) -> str:
  """Renders all flags."""
  shown = {name for names in _SECTIONS.values() for name in names}
  advanced = [f for name, f in table.general.items() if name not in shown]
  groups = {
    '\nAdvanced:': [flag.parameter for flag in advanced],
    '\nAll hyperparameters:': [
      _by_taker(flag) for _, flag in sorted(table.algorithm.items())
    ],
    '\nSpecific to one task:': [
      flag.parameter for _, flag in sorted(table.task.items())
    ],
  }
  return f'{usual(table)}\n{options.render(groups)}'


def of_task(table: flag_table.FlagTable, task: str) -> str:
  """Renders the flags of a task."""
  own = [f.parameter for f in table.flags.values() if f.task == task]
  return options.render({f'\nOf --task={task}:': own})


def _shared(flag: flag_table.Flag) -> parameters.Parameter:
  """Returns a flag's parameter without its default, which takers set."""
  return flag.parameter.named(flag.name, default=None)


def _by_taker(flag: flag_table.Flag) -> parameters.Parameter:
  """Returns a flag's parameter with a text for each taker, if texts differ."""
  meanings: dict[str, dict[str, Any]] = {}
  for taker, parameter in flag.takers:
    meanings.setdefault(parameter.help, {})[taker] = parameter.default
  if len(meanings) < 2:
    return _shared(flag)
  texts = []
  for text, takers in meanings.items():
    several = len(takers) > _MOST_TAKERS
    who = 'the other methods' if several else ', '.join(takers)
    defaults = [*dict.fromkeys(takers.values())]
    default = options.default_of(defaults[0]) if len(defaults) == 1 else ''
    texts.append(f'{who}: {text}{default}')
  return flag.parameter.named(flag.name, default=None, help='\n'.join(texts))
