"""The table of all flags.

Flags are the fields of the classes that they configure, so that each name and
default is defined once. This module imports no TensorFlow.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import tasks
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import configuration
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.flags import general
from tff_adaptive.lab.flags import runtime_flags
from tff_adaptive.lab.flags import settings as settings_lib

# Hyperparameters that a run sets from other flags.
DECIDED = {'seed': 'seed', 'dp_clients_per_round': 'clients_per_round'}

# Names of the same settings in other programs and papers.
ALIASES: dict[str, str] = {
  'algorithm': 'method algo strategy aggregation_method',
  'cache_dir': 'data_dir',
  'client_batch_size': 'batch batch_size bs local_batch_size train_batch_size',
  'client_epochs_per_round': 'epochs num_epochs n_epochs epochs_per_round',
  'client_learning_rate': 'lr learning_rate eta client_lr local_lr lr_local',
  'client_optimizer': 'optimizer opt optim client_opt local_optimizer',
  'client_steps_per_round': 'steps local_steps client_steps',
  'clients_per_round': 'clients num_clients cohort cohort_size participants',
  'dp_clip_norm': 'clip clip_norm max_grad_norm',
  'dp_noise_multiplier': 'noise noise_multiplier sigma',
  'experiment_name': 'name run_name exp_name',
  'patience': 'early_stopping early_stop',
  'proximal_strength': 'mu prox prox_mu proximal_mu',
  'trackers': 'record wandb mlflow',
  'root_output_dir': 'out output output_dir out_dir log_dir logdir save_dir',
  'rounds_per_eval': 'eval_every eval_freq',
  'seed': 'random_seed rng_seed',
  'server_learning_rate': 'lr learning_rate eta server_lr global_lr lr_global',
  'server_optimizer': 'optimizer opt optim server_opt global_optimizer',
  'table_path': 'data_path csv csv_path',
  'target_epsilon': 'epsilon eps dp_epsilon',
  'task': 'dataset data_set',
  'total_rounds': 'rounds num_rounds n_rounds max_rounds comm_rounds '
  'communication_rounds global_rounds iterations',
}


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag.

  Attributes:
    parameter: The parameter that it sets, or one of several.
    task: The task that it belongs to, if any.
    option: The option of that task.
    takers: Names of what takes a hyperparameter, with the parameter there.
  """

  parameter: parameters.Parameter
  task: str = ''
  option: str = ''
  takers: list[tuple[str, parameters.Parameter]] = dataclasses.field(
    default_factory=list
  )

  @property
  def name(self) -> str:
    """The name, without dashes."""
    return self.parameter.name


class FlagTable:
  """All flags, by name.

  Attributes:
    general: Flags that do not depend on a task, algorithm or optimizer.
    algorithm: Hyperparameters of algorithms and optimizers.
    task: Options of one task only.
    flags: All flags.
  """

  def __init__(self, *more: parameters.Parameter):
    """Collects the flags.

    Args:
      *more: Further general flags.
    """
    self.general = {p.name: Flag(p) for p in (*_general(), *more)}
    self.algorithm: dict[str, Flag] = {}
    for taker, parameter in _hyperparameters():
      flag = self.algorithm.setdefault(parameter.name, Flag(parameter))
      flag.takers.append((taker, parameter))
    if clash := self.algorithm.keys() & self.general.keys():
      taker, _ = self.algorithm[name := min(clash)].takers[0]
      raise errors.SettingsError(
        f'{taker} has a hyperparameter {name!r}, which is a flag of all runs; '
        'rename it.'
      )
    # A user's own task may be slow to import, or missing.
    self.task = {
      flag.name: flag
      for task in tasks.names()
      if not tasks.info(task).own
      for flag in _of_task(task)
      if flag.name not in self.general
    }
    self.flags = self.general | self.algorithm | self.task

  def know(self, task: Any) -> list[Flag]:
    """Adds the flags of a user's own task.

    Args:
      task: The value of --task; a task whose flags are known already is
        ignored.

    Returns:
      The added flags.

    Raises:
      ParameterError: If the task's function does not exist, or a flag's name is
        taken.
    """
    if not isinstance(task, str) or not (
      tasks.is_place(task) or (task in tasks.names() and tasks.info(task).own)
    ):
      return []
    try:
      flags = _of_task(task)
    except tasks.OwnCodeError as e:
      raise parameters.ParameterError(
        'task', '{}={named}: {reason}', named=task, reason=str(e)
      ) from e
    added = []
    for flag in flags:
      there = self.flags.get(flag.name)
      if there is None:
        self.task[flag.name] = self.flags[flag.name] = flag
        added.append(flag)
      elif there.task != task and flag.name not in self.general:
        raise parameters.ParameterError(
          'task',
          '{}={named} has an argument `{argument}`, whose flag --{flag} '
          'already exists; rename the function or the argument.',
          named=task,
          argument=flag.option,
          flag=flag.name,
        )
    return added

  def find(self, name: str) -> Flag:
    """Returns the flag of a name.

    Raises:
      ParameterError: If there is no flag of that name.
    """
    if name not in self.flags:
      raise self.unknown(name)
    return self.flags[name]

  def unknown(self, name: str) -> parameters.ParameterError:
    """Builds the error about an unknown flag."""
    spelled = name.lower().replace('-', '_')
    close = difflib.get_close_matches(spelled, list(self.flags), n=3)
    hint = 'see main.py --help'
    meant = [
      flag for flag, others in ALIASES.items() if spelled in others.split()
    ] or [
      optimizers.public_name(side, argument, other)
      for side in optimizers.SIDES
      for other in optimizers.names(side)
      for argument in optimizers.parameters_of(side, other)
      if spelled == f'{side}_{other}_{argument}'
    ]
    # A flag that several tasks share has no prefix.
    _, _, rest = spelled.partition('_')
    if not meant and rest in self.flags:
      meant = [rest]
    if meant:
      hint = 'use ' + ' or '.join(f'{{{m}}}' for m in meant)
    elif close:
      hint = 'similar ones are ' + ', '.join(f'{{{c}}}' for c in close)
    return parameters.ParameterError(name, f'There is no flag {{}}; {hint}.')


def _hyperparameters() -> Iterator[tuple[str, parameters.Parameter]]:
  """Yields each hyperparameter with the name of what takes it."""
  for name, method in methods.table().items():
    own = configuration.optimizers_of(method)
    for slot in configuration.slots_of(method, own).values():
      side = slot.components[0]
      # Optimizers that users can choose are listed by themselves.
      chosen = side in own and own[side] in optimizers.names(side)
      if not chosen and slot.parameter.name not in DECIDED:
        yield name, slot.parameter
  for side in optimizers.SIDES:
    for name in optimizers.names(side):
      for argument, parameter in optimizers.parameters_of(side, name).items():
        public = optimizers.public_name(side, argument, name)
        yield f'{side} {name}', parameter.named(public)


def _of_task(task: str) -> list[Flag]:
  """Returns the flags of a task's options."""
  names = settings_lib.flags_of(task)
  return [
    Flag(parameter.named(names[option]), task, option)
    for option, parameter in tasks.parameters_of(task).items()
  ]


def _general() -> list[parameters.Parameter]:
  """Returns the general flags; names from registries become choices."""
  tables: dict[str, Iterable[str]] = {
    'algorithm': methods.table(),
    'client_optimizer': optimizers.client_names(),
    'server_optimizer': optimizers.server_names(),
  }
  accepted = {n: Literal.__getitem__(tuple(t)) for n, t in tables.items()}
  choices = parameters.parameters_of(general.Choices)
  return [
    *(
      dataclasses.replace(p, annotation=accepted.get(p.name, p.annotation))
      for p in choices.values()
    ),
    *parameters.parameters_of(general.AsGiven).values(),
    *parameters.parameters_of(runtime_flags.RuntimeFlags).values(),
  ]
