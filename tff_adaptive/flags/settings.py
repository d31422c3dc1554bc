"""A run with everything chosen, without TensorFlow."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Optional

import tasks
from tff_adaptive import errors
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.flags import availability
from tff_adaptive.privacy import mechanism as privacy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The settings of a run: what, how long, and where the results go.

  Attributes:
    task: A name that `tasks.create` takes.
    task_options: Its options.
    plan: The method with all of its hyperparameters; `seed` decides the plan's.
    validation_split: 'examples', 'clients' or 'test'.
    validation_share: How much of the examples or clients is set apart; `None`
      for 'test'.
    num_validation_examples: Examples of that to evaluate on during training;
      `None` for all.
    record: Trackers that the run is recorded with, as --record names them.
    runtime: Which execution context.
    runtime_options: What that context is made with.

  All others are as the flags of their names.
  """

  task: str
  task_options: Mapping[str, Any]
  plan: plan_lib.Plan
  total_rounds: int
  clients_per_round: int
  rounds_per_eval: int
  rounds_per_checkpoint: int
  num_validation_examples: Optional[int]
  validation_sample: str
  client_datasets_random_seed: int
  seed: int
  runtime: str
  runtime_options: Mapping[str, Any]
  cache_mib: int
  root_output_dir: str
  experiment_name: Optional[str]
  target_epsilon: Optional[float]
  dp_delta: Optional[float]
  dp_sampling: privacy.Sampling
  dp_accounting: privacy.Accounting
  client_states: str
  client_state_mib: int
  max_rejected_clients: Optional[int]
  validation_split: str = 'test'
  validation_share: Optional[float] = None
  target_metric: Optional[str] = None
  patience: Optional[int] = None
  ema_decay: Optional[float] = None
  client_steps_per_round: Optional[int] = None
  client_seconds_per_example: Optional[float] = None
  client_speed_spread: Optional[float] = None
  client_speed_jitter: Optional[float] = None
  client_dropout: Optional[float] = None
  client_behaviour: Optional[str] = None
  over_selection: Optional[float] = None
  deadline: Optional[float] = None
  asynchronous: bool = False
  concurrency: Optional[int] = None
  staleness: Optional[str] = None
  initial_weights: Optional[str] = None
  freeze: Optional[str] = None
  evaluate_clients: Optional[str] = None
  client_test_share: Optional[float] = None
  finetune_epochs: Optional[int] = None
  finetune_learning_rate: Optional[float] = None
  record: tuple[str, ...] = ()

  @property
  def algorithm(self) -> str:
    """The method's name."""
    return self.plan.method.name

  @property
  def client_optimizer(self) -> str:
    """The name of the clients' optimizer."""
    return self.plan.optimizer['client']

  @property
  def server_optimizer(self) -> str:
    """The name of the server's optimizer."""
    return self.plan.optimizer['server']

  @property
  def hyperparameters(self) -> dict[str, Any]:
    """The plan's, but the seed."""
    return {k: v for k, v in self.plan.values.items() if k != 'seed'}

  @property
  def identity(self) -> dict[str, Any]:
    """The settings that decide the results, by flag; the same when resumed.

    Where data lie, where results go, how much memory may be used and when to
    give up or to end early decide no round, and are left out.
    """
    options = dict(self.task_options)
    options.pop('cache_dir', None)
    shared = {
      flag: options.pop(name) for flag, name in shared_flags(self.task).items()
    }
    accounting = {}
    if self.plan.private:
      accounting = {
        'target_epsilon': self.target_epsilon,
        'dp_delta': self.dp_delta,
        'dp_sampling': self.dp_sampling,
        'dp_accounting': self.dp_accounting,
      }
    return {
      'task': self.task,
      **{flag_of(self.task, k): v for k, v in sorted(options.items())},
      **shared,
      'algorithm': self.algorithm,
      'client_optimizer': self.client_optimizer,
      'server_optimizer': self.server_optimizer,
      **{k: v for k, v in self.hyperparameters.items() if self._is_told(k, v)},
      **accounting,
      'total_rounds': self.total_rounds,
      'clients_per_round': self.clients_per_round,
      'rounds_per_eval': self.rounds_per_eval,
      'rounds_per_checkpoint': self.rounds_per_checkpoint,
      'num_validation_examples': self.num_validation_examples,
      **self._more,
      'client_datasets_random_seed': self.client_datasets_random_seed,
      'seed': self.seed,
      'runtime': self.runtime,
    }

  @property
  def _more(self) -> dict[str, Any]:
    """Settings that older runs lack, left out where they are as those were."""
    told: dict[str, Any] = {}
    if self.validation_split != 'test':
      told['validation_split'] = self.validation_split
      told['validation_share'] = self.validation_share
    if self.validation_sample != 'fixed':
      told['validation_sample'] = self.validation_sample
    for name in _TOLD_IF_GIVEN:
      value = getattr(self, name)
      if value is not None and value is not False:
        told[name] = value
    return told

  def _is_told(self, name: str, value: Any) -> bool:
    """Tells whether a hyperparameter is a part of the identity.

    How updates are aggregated is said where it is not the plain mean, what is
    recorded where it is more than usual.
    """
    if name == 'dp_clients_per_round':
      return False
    slot = self.plan.slots[name]
    quiet = slot.piece == 'aggregation' or name == 'record_step_sizes'
    return not quiet or value != slot.parameter.default

  @property
  def name(self) -> str:
    """The experiment's name; unless given, one that tells its settings apart.

    The same command finds its results again, another one starts its own.
    """
    if self.experiment_name is not None:
      return self.experiment_name
    text = json.dumps(self.identity, sort_keys=True)
    digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
    task = tasks.short(self.task)
    return '-'.join((task, self.client_optimizer, self.algorithm, digest))

  @property
  def folder(self) -> pathlib.Path:
    """The folder of the results."""
    return pathlib.Path(self.root_output_dir) / self.name


# Settings that are no part of the identity unless they are given.
_TOLD_IF_GIVEN = (
  'ema_decay',
  'client_steps_per_round',
  *availability.FLAGS,
  'initial_weights',
  'freeze',
  'evaluate_clients',
  'client_test_share',
  'finetune_epochs',
  'finetune_learning_rate',
)

# Flags of all tasks that have the options which these are called.
_TASK_FLAGS = {
  'data': 'data',
  'client_epochs_per_round': 'epochs',
  'client_batch_size': 'batch_size',
  'max_elements_per_client': 'max_elements',
}


# All flags that hold for a task only if it has an option for them.
FLAGS_OF_TASKS = (*_TASK_FLAGS, 'cache_dir')


def shared_flags(task: str) -> dict[str, str]:
  """Returns a task's options that a flag of all tasks sets, by that flag."""
  accepted = tasks.parameters_of(task)
  return {
    flag: option
    for flag, option in _TASK_FLAGS.items()
    # Somebody's own `data` may be anything, the name of a file for one.
    if option in accepted and (option != 'data' or accepted[option].choices)
  }


def flag_of(task: str, option: str) -> str:
  """Returns the flag that sets an option of a task."""
  flags = {name: flag for flag, name in shared_flags(task).items()}
  flags |= {'cache_dir': 'cache_dir', **tasks.info(task).flags}
  return flags.get(option, f'{tasks.short(task)}_{option}')


def check_same(
  before: Mapping[str, Any], now: Mapping[str, Any], folder: pathlib.Path
) -> None:
  """Holds a run that is started again to the settings it was started with.

  It may have more rounds, if no round before depends on how many there are.

  Raises:
    SettingsError: With the difference, if there is one.
  """
  first, total = (s.get('total_rounds') for s in (before, now))
  grows = isinstance(first, int) and isinstance(total, int) and first < total
  if grows and now.get('target_epsilon') is not None:
    raise errors.SettingsError(
      f'{folder} holds a run whose noise --target_epsilon chose for {first:,} '
      f'rounds, so that it cannot go on to {total:,}: choose another '
      '--experiment_name, or give --dp_noise_multiplier from the start.'
    )
  if grows:
    before = {**before, 'total_rounds': total}
  missing = object()

  def words(value: Any) -> Any:
    return 'not set' if value is missing or value is None else f'{value}'

  differences = []
  for flag in dict.fromkeys([*before, *now]):
    old, new = before.get(flag, missing), now.get(flag, missing)
    if old != new and not (old is missing and new is None):
      differences.append(f'--{flag} was {words(old)}, now {words(new)}')
  if differences:
    raise errors.SettingsError(
      f'{folder} holds a run with other settings '
      f'({"; ".join(differences)}): choose another --experiment_name, or '
      'give the flags that it was started with'
      + (f', --total_rounds={first} among them.' if grows else '.')
    )
