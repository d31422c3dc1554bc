"""An experiment with everything chosen, without TensorFlow."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.privacy import mechanism as privacy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """What to run, how long, and where the results go.

  Attributes:
    task: A name that `tasks.create` takes.
    task_options: Its options.
    algorithm: A name that `algorithms.build` takes.
    client_optimizer, server_optimizer: Their names; the algorithm's own where
      nothing else was asked for.
    hyperparameters: All others that `algorithms.build` takes, with the
      defaults resolved, apart from its seed, which `seed` decides.
    total_rounds, clients_per_round, rounds_per_eval, rounds_per_checkpoint: As
      the flags of these names.
    num_validation_examples: Examples of the test split to evaluate on during
      training; `None` for all.
    client_datasets_random_seed: Of the cohorts, as in the reference.
    seed: Of everything else that is random.
    runtime: Which execution context.
    runtime_options: What that context is made with.
    cache_mib: Memory for decoded examples in MiB.
    target_epsilon, dp_delta, dp_sampling, dp_accounting: As the flags of these
      names.
    max_rejected_clients: Clients of a round that may be left out because of an
      error or an update that is not finite before the run gives up; `None` for
      any number.
    client_states, client_state_mib: Where what clients keep between rounds is,
      and how much memory it may take.
    root_output_dir, experiment_name: Where the results go.
  """

  task: str
  task_options: Mapping[str, Any]
  algorithm: str
  client_optimizer: str
  server_optimizer: str
  hyperparameters: Mapping[str, Any]
  total_rounds: int
  clients_per_round: int
  rounds_per_eval: int
  rounds_per_checkpoint: int
  num_validation_examples: Optional[int]
  client_datasets_random_seed: int
  seed: int
  runtime: str
  runtime_options: Mapping[str, Any]
  cache_mib: int
  root_output_dir: str
  experiment_name: Optional[str]
  target_epsilon: Optional[float] = None
  dp_delta: Optional[float] = None
  dp_sampling: privacy.Sampling = 'fixed'
  dp_accounting: privacy.Accounting = 'pld'
  client_states: str = 'auto'
  client_state_mib: int = 2048
  max_rejected_clients: Optional[int] = None

  @property
  def private(self) -> bool:
    """Whether updates are clipped and noised for differential privacy."""
    return privacy.is_asked(self.hyperparameters)

  @property
  def identity(self) -> dict[str, Any]:
    """What decides the results, by flag; a resumed run must have the same.

    Where data lie, where results go, how much memory may be used and when to
    give up decide nothing, and are left out.
    """
    options = dict(self.task_options)
    options.pop('cache_dir', None)
    shared = {
      flag: options.pop(name, None) for flag, name in TASK_FLAGS.items()
    }
    # How updates are aggregated is said where it is not the plain mean, what
    # is recorded where it is more than usual.
    usual = {
      name: parameter.default
      for name, parameter in parameters.read_signature(
        privacy.__file__, 'aggregation'
      ).items()
    } | {'record_step_sizes': False}
    hyperparameters = {
      name: value
      for name, value in self.hyperparameters.items()
      if name != 'dp_clients_per_round'
      and (name not in usual or value != usual[name])
    }
    accounting = {}
    if self.private:
      accounting = {
        'target_epsilon': self.target_epsilon,
        'dp_delta': self.dp_delta,
        'dp_sampling': self.dp_sampling,
        'dp_accounting': self.dp_accounting,
      }
    return {
      'task': self.task,
      **{f'{self.task}_{k}': v for k, v in sorted(options.items())},
      **shared,
      'algorithm': self.algorithm,
      'client_optimizer': self.client_optimizer,
      'server_optimizer': self.server_optimizer,
      **hyperparameters,
      **accounting,
      'total_rounds': self.total_rounds,
      'clients_per_round': self.clients_per_round,
      'rounds_per_eval': self.rounds_per_eval,
      'rounds_per_checkpoint': self.rounds_per_checkpoint,
      'num_validation_examples': self.num_validation_examples,
      'client_datasets_random_seed': self.client_datasets_random_seed,
      'seed': self.seed,
      'runtime': self.runtime,
    }

  @property
  def name(self) -> str:
    """The experiment's name; unless given, one that tells its settings apart.

    The same command finds its results again, another one starts its own.
    """
    if self.experiment_name is not None:
      return self.experiment_name
    text = json.dumps(self.identity, sort_keys=True)
    digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
    return '-'.join((self.task, self.client_optimizer, self.algorithm, digest))

  @property
  def folder(self) -> pathlib.Path:
    """Where the results go."""
    return pathlib.Path(self.root_output_dir) / self.name

  @property
  def build_arguments(self) -> dict[str, Any]:
    """The hyperparameters as `algorithms.build` takes them."""
    return dict(
      self.hyperparameters,
      client_optimizer=self.client_optimizer,
      server_optimizer=self.server_optimizer,
    )


# Flags that every task understands, and what its options are called.
TASK_FLAGS = {
  'data': 'data',
  'client_epochs_per_round': 'epochs',
  'client_batch_size': 'batch_size',
  'max_elements_per_client': 'max_elements',
}


def check_same(
  before: Mapping[str, Any], now: Mapping[str, Any], folder: pathlib.Path
) -> None:
  """Holds a run that is started again to the settings it was started with.

  Raises:
    SettingsError: With the difference, if there is one.
  """
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
      'give the flags that it was started with.'
    )
