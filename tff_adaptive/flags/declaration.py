"""Which flags there are.

The flags of tasks, algorithms and optimizers are read from the signatures of
what they configure, so that no name or default stands twice. Nothing here
imports TensorFlow.
"""

import dataclasses
from typing import Literal
from typing import Optional

import tasks
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.flags import methods
from tff_adaptive.flags import runtime as runtime_flags
from tff_adaptive.flags import settings as settings_lib

SIDES = ('client', 'server')


# General flags that only the full help shows.
RARE = (
  'dp_sampling',
  'dp_accounting',
  'client_states',
  'client_state_mib',
  'max_rejected_clients',
  *runtime_flags.RARE,
)

_Seed32 = parameters.Annotated[int, parameters.Range(low=0, high=2**32 - 1)]
_Examples = parameters.Annotated[int, parameters.Range(low=-1)]

_flag = parameters.Parameter
_names = Literal.__getitem__  # A Literal made of names known at run time.


def _general() -> dict[str, list[parameters.Parameter]]:
  """The flags that do not depend on a task, an algorithm or an optimizer.

  A default of `None` means that something else decides when the flag is not
  given; it is no value that one could write.
  """
  return {
    'What to train': _what(),
    'How long, and on whom': _how_long(),
    'Privacy (with --dp_clip_norm and --dp_noise_multiplier)': _privacy(),
    'Looking at it': _looking(),
    'Data and machine': _machine(),
  }


def _what() -> list[parameters.Parameter]:
  return [
    _flag(
      'preset',
      str,
      None,
      'Published settings, PAPER/TASK/METHOD (main.py list names them); '
      'flags given beside it override its own.',
    ),
    _flag(
      'task',
      _names(tuple(tasks.names())),
      'digits',
      'Data, model, preprocessing and metrics.',
    ),
    _flag(
      'algorithm',
      _names(tuple(methods.names())),
      None,
      'The method; unless given, the two optimizers decide it.',
    ),
    _flag(
      'client_optimizer',
      _names(tuple(optimizers.client_names())),
      None,
      'What clients train with; delta_sgd unless the algorithm says otherwise.',
    ),
    _flag(
      'server_optimizer',
      _names(tuple(optimizers.server_names())),
      None,
      'What the server applies updates with; adam unless the '
      'algorithm says otherwise.',
    ),
  ]


def _how_long() -> list[parameters.Parameter]:
  return [
    _flag('total_rounds', parameters.Count, 200, 'Rounds of training.'),
    _flag(
      'clients_per_round',
      parameters.Count,
      None,
      'Clients that take part in a round; 10 unless given, or all of a task '
      'that has fewer.',
    ),
    _flag(
      'max_rejected_clients',
      parameters.NonNegativeInt,
      None,
      'Clients of a round that may be left out, because their update is not '
      'finite or their data raise an error, before the run stops; any number '
      'unless given.',
    ),
    _flag(
      'client_epochs_per_round',
      parameters.Count,
      1,
      'Passes of a client over its examples in a round.',
    ),
    _flag(
      'client_batch_size',
      parameters.Count,
      None,
      "Examples in a client's batch; the task's own unless given.",
    ),
    _flag(
      'max_elements_per_client',
      parameters.Count,
      None,
      'Most examples of a client in a round; all unless given.',
    ),
    _flag(
      'client_datasets_random_seed',
      _Seed32,
      1,
      'Decides which clients take part, as in the reference.',
    ),
    _flag(
      'seed',
      parameters.NonNegativeInt,
      0,
      'Decides everything else that is random.',
    ),
  ]


def _privacy() -> list[parameters.Parameter]:
  return [
    _flag(
      'target_epsilon',
      parameters.Positive,
      None,
      'Find the noise multiplier that keeps the run within this epsilon, in '
      'place of --dp_noise_multiplier.',
    ),
    _flag(
      'dp_delta',
      parameters.Annotated[
        float, parameters.Range(0, 1, open_low=True, open_high=True)
      ],
      None,
      'The delta that epsilon is stated at; 1 / clients^1.1 unless given.',
    ),
    _flag(
      'dp_sampling',
      Literal['fixed', 'poisson'],
      'fixed',
      'How cohorts are taken to be drawn: as they are, or independently '
      'client by client, as papers account.',
    ),
    _flag(
      'dp_accounting',
      Literal['pld', 'rdp'],
      'pld',
      'By privacy loss distributions or Renyi orders.',
    ),
  ]


def _looking() -> list[parameters.Parameter]:
  return [
    _flag(
      'rounds_per_eval',
      parameters.Count,
      10,
      'Rounds from one evaluation to the next.',
    ),
    _flag(
      'num_validation_examples',
      _Examples,
      10_000,
      'Examples of the test split to evaluate on during training; '
      '-1 for all. The whole split is used once, at the end.',
    ),
    _flag(
      'rounds_per_checkpoint',
      parameters.Count,
      50,
      'Rounds from one checkpoint to the next.',
    ),
    _flag(
      'experiment_name',
      str,
      None,
      "Name of the run's folder; made from the settings unless given.",
    ),
    _flag('root_output_dir', str, 'runs', 'Where runs have their folders.'),
    _flag(
      'dry_run',
      bool,
      False,
      'Print the resolved experiment and train nothing.',
    ),
  ]


def _machine() -> list[parameters.Parameter]:
  return [
    _flag('cache_dir', str, None, "Folder with the task's data files."),
    _flag(
      'data',
      Literal['native', 'synthetic'],
      'native',
      "The task's own data, or small made-up data of the same shapes.",
    ),
    *runtime_flags.flags(),
    _flag(
      'cache_mib',
      parameters.NonNegativeInt,
      2048,
      'Memory for decoded examples, in MiB.',
    ),
    _flag(
      'client_states',
      Literal['auto', 'memory', 'disk'],
      'auto',
      'Where what clients keep between rounds is (scaffold, moon): in memory '
      "if it fits, else in a file in the run's folder.",
    ),
    _flag(
      'client_state_mib',
      parameters.NonNegativeInt,
      2048,
      'Memory for it, in MiB.',
    ),
  ]


@dataclasses.dataclass(frozen=True)
class DependentFlag:
  """A flag whose meaning depends on what is chosen.

  Attributes:
    name: Without the dashes.
    parameter: Of one of those that it configures; for its help.
    public: The hyperparameter of `algorithms.build` or option of
      `tasks.create` that it sets.
    owner: The kind and name of the only thing that it configures, if there is
      just one: ('client', 'adam'), ('task', 'digits').
  """

  name: str
  parameter: parameters.Parameter
  public: str
  owner: Optional[tuple[str, str]] = None


def _algorithm() -> dict[str, DependentFlag]:
  """A flag for every hyperparameter of any algorithm, by its public name."""
  found: dict[str, parameters.Parameter] = {}
  for name in methods.names():
    for public, parameter in methods.parameters_of(name).items():
      found.setdefault(public, parameter)
  for side in SIDES:
    for name in getattr(optimizers, f'{side}_names')():
      for argument, parameter in optimizers.parameters_of(side, name).items():
        found.setdefault(optimizers.public_name(side, argument), parameter)
  found.pop('seed')  # One --seed decides that of the algorithm too.
  found.pop('dp_clients_per_round')  # As --clients_per_round.
  return {
    public: DependentFlag(public, parameter, public)
    for public, parameter in found.items()
  }


def _optimizer() -> dict[str, DependentFlag]:
  """--{side}_{optimizer}_{argument}, as in the reference."""
  result = {}
  for side in SIDES:
    for name in getattr(optimizers, f'{side}_names')():
      for argument, parameter in optimizers.parameters_of(side, name).items():
        if argument != 'learning_rate':
          flag = f'{side}_{name}_{argument}'
          public = optimizers.public_name(side, argument)
          result[flag] = DependentFlag(flag, parameter, public, (side, name))
  return result


def _task() -> dict[str, DependentFlag]:
  """--{task}_{argument} for what only that task takes."""
  common = {*settings_lib.TASK_FLAGS.values(), 'cache_dir'}
  result = {}
  for task in tasks.names():
    for argument, parameter in tasks.parameters_of(task).items():
      if argument not in common:
        flag = f'{task}_{argument}'
        result[flag] = DependentFlag(flag, parameter, argument, ('task', task))
  return result


class Table:
  """All flags.

  Attributes:
    general: Those that do not depend on a choice, by the title of their group.
    algorithm: Hyperparameters of any algorithm, by the flag's name.
    optimizer: Those of one optimizer only.
    task: Those of one task only.
  """

  def __init__(self) -> None:
    self.general = _general()
    self.algorithm = _algorithm()
    self.optimizer = _optimizer()
    self.task = _task()

  def independent(self) -> list[parameters.Parameter]:
    return [flag for group in self.general.values() for flag in group]

  def dependent(self) -> list[DependentFlag]:
    return [
      *self.algorithm.values(),
      *self.optimizer.values(),
      *self.task.values(),
    ]

  def hyperparameter(self, name: str) -> Optional[DependentFlag]:
    """The flag of this name, if it sets a hyperparameter of an algorithm."""
    return self.optimizer.get(name) or self.algorithm.get(name)

  def meaning(self, name: str) -> str:
    """What a flag sets: two flags may set the same hyperparameter."""
    flag = self.hyperparameter(name)
    return name if flag is None else flag.public
