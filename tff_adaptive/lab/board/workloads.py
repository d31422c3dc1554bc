"""The board's workloads: tasks of fixed size on which methods are compared.

A workload is what an entry cannot tune: task, cohort, horizon, split and cost
profile. Its generator's seed is part of it, so partition and examples are the
same in all of its runs; first weights, cohorts and clients' behaviour follow
from a run's seed. A changed workload needs a new version; entries store the
workload's hash, so that a missing version bump is detected.

Imports no TensorFlow.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive import errors

# Of the board's rules: workloads, protocol and score.
VERSION = 1
# The profile by which methods are compared; the other is printed beside it.
HEADLINE = 'cross_device'
PROFILES = (HEADLINE, 'cross_silo')
# Evaluations of a run.
EVALUATIONS = 50
_TWIN = '_twin'
_TWIN_SEED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
  """A task, how long and on whom it is trained, and what is measured.

  Attributes:
    name: Its name on the board.
    task: The task's name.
    options: The task's options.
    cohort: Clients per round.
    rounds: The horizon; a multiple of `EVALUATIONS`.
    limits: Flags that keep its runs short, such as max_elements_per_client.
    split: Where validation examples come from: 'examples' for half of the test
      examples, 'test' for a task whose test data is the problem itself.
    loss: What is driven down; a mean over examples in all workloads.
    profile: The cost profile of the headline.
    version: Raised when anything else of it changes.
    files: Whether it reads files (--cache_dir).
    traits: What is known of such a problem beforehand, keys of `TRAITS`.
  """

  name: str
  task: str
  options: Mapping[str, Any]
  cohort: int
  rounds: int
  limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
  split: str = 'examples'
  loss: str = 'validation/loss'
  profile: str = HEADLINE
  version: int = 1
  files: bool = False
  traits: Sequence[str] = ()

  def flags(self, horizons: float = 1.0) -> dict[str, str]:
    """Returns the flags of its runs, as text.

    Args:
      horizons: The length of the runs, in horizons.
    """
    of_task = {f'{self.task}_{k}': v for k, v in self.options.items()}
    return {
      name: f'{value}'
      for name, value in {
        'task': self.task,
        **of_task,
        **self.limits,
        'clients_per_round': self.cohort,
        'total_rounds': self.length(horizons),
        'rounds_per_eval': max(self.rounds // EVALUATIONS, 1),
        'rounds_per_checkpoint': self.length(horizons),
        'validation_split': self.split,
        'client_devices': self.profile,
      }.items()
    }

  def length(self, horizons: float) -> int:
    """Returns the rounds of a run of so many horizons."""
    return round(horizons * self.rounds)

  @property
  def hash(self) -> str:
    """A digest of everything above but the traits."""
    fields = dataclasses.asdict(self)
    del fields['traits']
    text = json.dumps(fields, sort_keys=True)
    return hashlib.blake2b(text.encode('utf-8'), digest_size=8).hexdigest()

  @property
  def twin(self) -> 'Workload':
    """The same workload from another seed of its generator."""
    return dataclasses.replace(
      self,
      name=self.name + _TWIN,
      options={**self.options, 'seed': _TWIN_SEED},
    )


TRAITS = {
  'sparse': 'sparse features',
  'heavy': 'heavy-tailed noise in gradients',
  'labels': 'clients with few labels each',
  'inputs': 'clients whose optima or inputs differ',
  'full': 'all clients in each round',
  'few': 'at most five clients in a round',
  'once': 'thousands of clients, each seen about once',
}
_FEW_STEPS = {'examples_per_client': 5}
_SYNTHETIC = {'alpha': 1.0, 'beta': 1.0}
CORE: Sequence[Workload] = (
  Workload(
    name='quadratics', task='quadratics', options=_FEW_STEPS, cohort=10,
    rounds=100, split='test',
    traits=('inputs',),
  ),
  Workload(
    name='quadratics_heavy', task='quadratics',
    options={**_FEW_STEPS, 'noise': 1.0, 'noise_law': 'student_t'}, cohort=5,
    rounds=50, split='test',
    traits=('heavy', 'few'),
  ),
  Workload(
    name='synthetic', task='fedprox_synthetic', options=_SYNTHETIC, cohort=10,
    rounds=50,
    traits=('inputs',),
  ),
  Workload(
    name='digits', task='digits', options={'alpha': 0.1}, cohort=5, rounds=50,
    traits=('labels', 'few'),
  ),
  Workload(
    name='digits_rotated', task='digits',
    options={'partition': 'iid', 'feature_skew': 'noisy_rotation'}, cohort=5,
    rounds=50,
    traits=('inputs', 'few'),
  ),
  Workload(
    name='digits_autoencoder', task='digits_autoencoder', options={}, cohort=5,
    rounds=100,
    traits=('labels', 'few'),
  ),
  Workload(
    name='zipf_tags', task='zipf_tags', options={}, cohort=10, rounds=50,
    traits=('sparse',),
  ),
  Workload(
    name='markov_text', task='markov_text', options={}, cohort=5, rounds=50,
    traits=('few',),
  ),
  Workload(
    name='hospitals', task='hospitals', options={}, cohort=8, rounds=50,
    traits=('inputs', 'full'),
  ),
  Workload(
    name='synthetic_once', task='fedprox_synthetic',
    options={
      **_SYNTHETIC, 'num_clients': 2000, 'smallest_client': 10,
      'largest_client': 100,
    },
    cohort=20, rounds=100,
    traits=('inputs', 'once'),
  ),
)  # fmt: skip
# With 1000, evaluations would take half as long as training.
_FEW = {'num_validation_examples': 500}
FEDERATED: Sequence[Workload] = (
  Workload(
    name='mnist', task='mnist_logistic',
    options={
      'num_clients': 100, 'partition': 'classes', 'classes_per_client': 2,
      'examples_per_client': 200,
    },
    cohort=10, rounds=50, limits=_FEW, files=True,
    traits=('labels',),
  ),
  Workload(
    name='emnist', task='emnist_character', options={}, cohort=5, rounds=50,
    limits={**_FEW, 'max_elements_per_client': 100}, files=True,
    traits=('inputs', 'few'),
  ),
  Workload(
    name='shakespeare', task='shakespeare_character', options={}, cohort=5,
    rounds=50, files=True,
    limits={'num_validation_examples': 50, 'max_elements_per_client': 8},
    traits=('inputs', 'few'),
  ),
  Workload(
    name='tags', task='stackoverflow_tag',
    # One tag a post: the loss of several is a sum over the batch.
    options={
      'num_users': 300, 'num_tags': 400, 'vocab_size': 2000,
      'labels': 'single',
    },
    cohort=10, rounds=50,
    limits={**_FEW, 'max_elements_per_client': 100}, files=True,
    traits=('sparse',),
  ),
)  # fmt: skip
QUICK = ('quadratics', 'synthetic', 'hospitals')
GROUPS: Mapping[str, Sequence[Workload]] = {
  'core': CORE,
  'federated': FEDERATED,
  'twins': [w.twin for w in CORE],
}
_TABLE = {w.name: w for group in GROUPS.values() for w in group}


def choose(text: str) -> list[Workload]:
  """Reads the names of workloads, or of groups, with commas between.

  Raises:
    SettingsError: If one is unknown.
  """
  found: dict[str, Workload] = {}
  for name in text.split(','):
    if name not in GROUPS and name not in _TABLE:
      raise errors.SettingsError(
        f'--workloads may name {", ".join([*GROUPS, *_TABLE])}, got {name!r}.'
      )
    found |= {w.name: w for w in GROUPS.get(name) or [_TABLE[name]]}
  return list(found.values())
