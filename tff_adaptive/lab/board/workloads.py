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

# Of entries' files.
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
    version: That of the board, which says how methods are tuned on it.
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
  'once': 'clients that are seen about once',
}
_FEW_STEPS = {'examples_per_client': 5}
_SYNTHETIC = {'alpha': 1.0, 'beta': 1.0}
TEN: Sequence[Workload] = (
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


def _second(
  name: str,
  task: str,
  options: Mapping[str, Any],
  cohort: int,
  rounds: int,
  traits: Sequence[str],
) -> Workload:
  """Returns a workload of version 2."""
  split = 'test' if task == 'quadratics' else 'examples'
  return Workload(
    name=name, task=task, options=options, cohort=cohort, rounds=rounds,
    split=split, version=2, traits=traits,
  )  # fmt: skip


def _quadratic(
  name: str,
  cohort: int,
  *traits: str,
  steps: int = 5,
  rounds: int = 50,
  **options: Any,
) -> Workload:
  options = {'examples_per_client': steps, **options}
  return _second(
    f'quadratics_{name}', 'quadratics', options, cohort, rounds, traits
  )


def _synthetic(
  name: str, cohort: int, *traits: str, **options: Any
) -> Workload:
  options = {'smallest_client': 20, 'largest_client': 200, **options}
  return _second(
    f'synthetic_{name}', 'fedprox_synthetic', options, cohort, 50, traits
  )


_TEXTS = {'words': 500, 'tags': 30, 'examples_per_client': 20}
_HEAVY: Mapping[str, Any] = {'noise': 1.0, 'noise_law': 'student_t'}
# Families of the ten of version 1: dimension, skew, noise, cohort,
# participation and sizes of clients.
CORE: Sequence[Workload] = (
  _quadratic('small', 5, 'inputs', 'few', dimensions=10, condition=10.0),
  _quadratic('wide', 10, 'inputs', rounds=100, dimensions=500),
  _quadratic('steep', 10, 'inputs', rounds=100, condition=1000.0),
  _quadratic('apart', 10, 'inputs', num_clients=100, spread=3.0, steps=20),
  _quadratic('noisy', 5, 'few', spread=0.3, noise=1.0),
  _quadratic('tails', 5, 'heavy', 'few', spread=0.3, **_HEAVY),
  _quadratic(
    'tails_full', 20, 'heavy', 'inputs', 'full', dimensions=20, **_HEAVY
  ),
  _synthetic('alike', 10, alpha=0.0, beta=0.0),
  _synthetic(
    'unlike', 5, 'inputs', 'few', num_clients=50, alpha=1.0, beta=1.0
  ),
  _synthetic('full', 10, 'inputs', 'full', num_clients=10),
  _synthetic('sizes', 10, 'inputs', smallest_client=5, largest_client=500),
  _second(
    'hospitals_sorted', 'hospitals', {'mixing': 0.0}, 8, 50, ('inputs', 'full')
  ),
  _second('hospitals_few', 'hospitals', {'mixing': 6.0}, 3, 50, ('few',)),
  _second(
    'tags_skewed', 'zipf_tags', {**_TEXTS, 'alpha': 0.1}, 10, 50,
    ('sparse', 'labels'),
  ),
  _second(
    'tags_crowd', 'zipf_tags',
    {**_TEXTS, 'num_clients': 1000, 'examples_per_client': 10}, 20, 50,
    ('sparse', 'once'),
  ),
  _second(
    'digits_two_labels', 'digits',
    {'partition': 'classes', 'examples_per_client': 40}, 5, 50,
    ('labels', 'few'),
  ),
  _second(
    'digits_turned', 'digits',
    {
      'partition': 'iid', 'feature_skew': 'noisy_rotation',
      'examples_per_client': 40,
    },
    5, 50, ('inputs', 'few'),
  ),
  _second(
    'autoencoder_skewed', 'digits_autoencoder', {'alpha': 0.1}, 5, 50,
    ('labels', 'few'),
  ),
  _second(
    'autoencoder_crowd', 'digits_autoencoder',
    {'num_clients': 100, 'partition': 'iid'}, 10, 100, (),
  ),
  _second(
    'text_own', 'markov_text',
    {'own': 0.6, 'examples_per_client': 10}, 5, 50, ('inputs', 'few'),
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
  'ten': TEN,
  'twins': [w.twin for w in TEN],
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


def version_of(chosen: Sequence[Workload]) -> int:
  """Returns the version of the board that workloads are of.

  Raises:
    SettingsError: If they are of several.
  """
  by_version = {w.version: w.name for w in chosen}
  if len(by_version) > 1:
    raise errors.SettingsError(
      '--workloads of two versions of the board cannot be entered together, '
      f'such as {" and ".join(by_version.values())}.'
    )
  return next(iter(by_version))
