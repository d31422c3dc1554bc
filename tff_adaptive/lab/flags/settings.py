"""The resolved settings of a run, without TensorFlow."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, Optional

import tasks
from tff_adaptive import errors
from tff_adaptive.algorithms import configuration as configuration_lib
from tff_adaptive.lab.flags import general


class Settings(general.AsGiven):
  """The settings of a run.

  Attributes:
    task: A name that `tasks.create` accepts.
    task_options: The task's options.
    configuration: The method with all hyperparameters; its seed is set from
      `seed`.
    num_validation_examples: Number of examples to evaluate on during training;
      `None` for all validation examples.
    trackers: Trackers that record the run, as values of --trackers.
    runtime: The name of the execution context.
    runtime_options: The arguments of the execution context.

  All other attributes are flags of the same name; see `general.AsGiven`.
  """

  task: str
  task_options: Mapping[str, Any]
  configuration: configuration_lib.MethodConfiguration
  num_validation_examples: Optional[int]
  trackers: tuple[str, ...] = ()
  runtime: str
  runtime_options: Mapping[str, Any]

  @property
  def algorithm(self) -> str:
    """The method's name."""
    return self.configuration.method.name

  @property
  def client_optimizer(self) -> str:
    """The name of the clients' optimizer."""
    return self.configuration.optimizer['client']

  @property
  def server_optimizer(self) -> str:
    """The name of the server's optimizer."""
    return self.configuration.optimizer['server']

  @property
  def hyperparameters(self) -> dict[str, Any]:
    """The hyperparameters of the configuration, except the seed."""
    return {k: v for k, v in self.configuration.values.items() if k != 'seed'}

  @property
  def identity(self) -> dict[str, Any]:
    """The settings that affect results, by flag; unchanged by resuming.

    Locations of data and results, memory limits, and stopping criteria do not
    affect any round and are excluded.
    """
    options = dict(self.task_options)
    flags = flags_of(self.task)
    shared = {
      flag: options.pop(name) for flag, name in shared_flags(self.task).items()
    }
    shared.pop('cache_dir', None)
    return {
      'task': self.task,
      **{flags[k]: v for k, v in sorted(options.items())},
      **shared,
      'algorithm': self.algorithm,
      'client_optimizer': self.client_optimizer,
      'server_optimizer': self.server_optimizer,
      **{
        k: v
        for k, v in self.hyperparameters.items()
        if self._is_in_identity(k, v)
      },
      **self._general_identity,
      'num_validation_examples': self.num_validation_examples,
      'runtime': self.runtime,
    }

  @property
  def _general_identity(self) -> dict[str, Any]:
    """The general flags that are part of the identity.

    Most are included only if they differ from the default, because older runs
    lack them.
    """
    usual = {f.name: f.default for f in dataclasses.fields(general.AsGiven)}
    # Older runs lack it and were evaluated on test data.
    usual['validation_split'] = 'test'
    always = _ALWAYS_IN_IDENTITY | (
      _ACCOUNTING if self.configuration.private else set()
    )
    return {
      name: value
      for name, default in usual.items()
      for value in [getattr(self, name)]
      if name in always or (name not in _NOT_IN_IDENTITY and value != default)
    }

  def _is_in_identity(self, name: str, value: Any) -> bool:
    """Returns whether a hyperparameter is part of the identity.

    Those of `Described.later` are included only if they differ from the
    default, because older runs lack them.
    """
    if name == 'dp_clients_per_round':
      return False
    slot = self.configuration.slots[name]
    is_later = slot.argument in slot.description.later
    return not is_later or value != slot.parameter.default

  @property
  def name(self) -> str:
    """The experiment's name; by default derived from the settings.

    A repeated command thus finds its earlier results.
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


# Settings that do not affect any round.
_NOT_IN_IDENTITY = {
  'max_rejected_clients',
  'target_metric',
  'metric_direction',
  'patience',
  'experiment_name',
  'root_output_dir',
  'cache_mib',
  'client_state_mib',
}
_ALWAYS_IN_IDENTITY = {
  'total_rounds',
  'clients_per_round',
  'client_datasets_random_seed',
  'seed',
  'rounds_per_eval',
  'rounds_per_checkpoint',
}
# Part of the identity of all private runs, and of no others.
_ACCOUNTING = {'target_epsilon', 'dp_delta', 'dp_sampling', 'dp_accounting'}

# Flags that set an option of every task that has it.
TASK_FLAGS = {
  'cache_dir': 'cache_dir',
  'data': 'data',
  'client_epochs_per_round': 'epochs',
  'client_batch_size': 'batch_size',
  'max_elements_per_client': 'max_elements',
}


def shared_flags(task: str) -> dict[str, str]:
  """Returns the task's options that are set by `TASK_FLAGS`, by flag."""
  accepted = tasks.parameters_of(task)
  return {
    flag: option
    for flag, option in TASK_FLAGS.items()
    # In a user's own task, `data` may mean something else, such as a file.
    if option in accepted and (option != 'data' or accepted[option].choices)
  }


def flag_of(task: str, option: str) -> str:
  """Returns the flag that sets an option of a task."""
  # Errors may name what is no option, such as a column of a file.
  return flags_of(task).get(option, f'{tasks.short(task)}_{option}')


def flags_of(task: str) -> dict[str, str]:
  """Returns the flags of a task's options, by option."""
  prefix = tasks.short(task)
  flags = {option: f'{prefix}_{option}' for option in tasks.parameters_of(task)}
  flags |= {option: flag for flag, option in shared_flags(task).items()}
  return {**flags, **tasks.info(task).flags}


def check_same(
  before: Mapping[str, Any], now: Mapping[str, Any], folder: pathlib.Path
) -> None:
  """Checks that a resumed run has the settings that it was started with.

  The number of rounds may grow, unless earlier rounds depend on it.

  Raises:
    SettingsError: If settings differ; the message lists the differences.
  """
  first, total = (s.get('total_rounds') for s in (before, now))
  grows = isinstance(first, int) and isinstance(total, int) and first < total
  if grows and now.get('target_epsilon') is not None:
    raise errors.SettingsError(
      f'{folder} holds a run whose noise --target_epsilon set for {first:,} '
      f'rounds, so it cannot be extended to {total:,}: choose another '
      '--experiment_name, or give --dp_noise_multiplier from the start.'
    )
  if grows:
    before = {**before, 'total_rounds': total}

  def words(value: Any) -> Any:
    return 'not set' if value is None else f'{value}'

  differences = []
  for flag in dict.fromkeys([*before, *now]):
    old, new = before.get(flag), now.get(flag)
    if old != new:
      differences.append(f'--{flag} was {words(old)}, now {words(new)}')
  if differences:
    raise errors.SettingsError(
      f'{folder} holds a run with other settings ({"; ".join(differences)}): '
      'choose another --experiment_name, or give the original flags'
      + (f', --total_rounds={first} among them.' if grows else '.')
    )
