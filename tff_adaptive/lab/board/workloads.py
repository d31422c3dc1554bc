"""The board's workloads: tasks of fixed size on which methods are compared.

A workload is what an entry cannot tune: task, cohort, horizon, split and cost
profile. Its generator's seed is part of it, so partition and examples are the
same in all of its runs; first weights, cohorts and clients' behaviour follow
from a run's seed. A changed workload needs a new version; entries store the
workload's hash, so that a missing version bump is detected.

Those of version 2 are families of the ten of version 1: dimension, skew, noise,
cohort, participation and sizes of clients. The federated ones have few
validation examples, as evaluations would take half as long as training with
more, and one tag a post, as the loss of several is a sum over the batch.
Imports no TensorFlow.
"""

import dataclasses
import hashlib
import json
import pathlib
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
    length = round(horizons * self.rounds)
    flags = {
      'task': self.task,
      **{f'{self.task}_{k}': v for k, v in self.options.items()},
      **self.limits,
      'clients_per_round': self.cohort,
      'total_rounds': length,
      'rounds_per_eval': max(self.rounds // EVALUATIONS, 1),
      'rounds_per_checkpoint': length,
      'validation_split': self.split,
      'client_devices': self.profile,
    }
    return {name: f'{value}' for name, value in flags.items()}

  @property
  def hash(self) -> str:
    """A digest of everything above but the traits."""
    fields = dataclasses.asdict(self)
    del fields['traits']
    text = json.dumps(fields, sort_keys=True)
    return hashlib.blake2b(text.encode('utf-8'), digest_size=8).hexdigest()


TRAITS = {
  'sparse': 'sparse features',
  'heavy': 'heavy-tailed noise in gradients',
  'labels': 'clients with few labels each',
  'inputs': 'clients whose optima or inputs differ',
  'full': 'all clients in each round',
  'few': 'at most five clients in a round',
  'once': 'clients that are seen about once',
}
QUICK = ('quadratics', 'synthetic', 'hospitals')
GROUPS: Mapping[str, Sequence[Workload]] = {
  group: [
    Workload(version=2 if group == 'core' else 1, **fields) for fields in found
  ]
  for group, found in json.loads(
    pathlib.Path(__file__).with_suffix('.json').read_text('utf-8')
  ).items()
}
# The ten from another seed of their generators.
GROUPS = {
  **GROUPS,
  'twins': [
    dataclasses.replace(
      w, name=f'{w.name}_twin', options={**w.options, 'seed': 1}
    )
    for w in GROUPS['ten']
  ],
}
TABLE = {w.name: w for group in GROUPS.values() for w in group}


def choose(text: str) -> list[Workload]:
  """Reads the names of workloads, or of groups, with commas between.

  Raises:
    SettingsError: If one is unknown.
  """
  found: dict[str, Workload] = {}
  for name in text.split(','):
    if name not in GROUPS and name not in TABLE:
      raise errors.SettingsError(
        f'--workloads may name {", ".join([*GROUPS, *TABLE])}, got {name!r}.'
      )
    found |= {w.name: w for w in GROUPS.get(name) or [TABLE[name]]}
  return list(found.values())


def version_of(chosen: Sequence[Workload]) -> int:
  """Returns the version of the board that workloads are of.

  Raises:
    SettingsError: If they are of several.
  """
  version, *others = {w.version for w in chosen}
  if others:
    raise errors.SettingsError(
      '--workloads of two versions of the board cannot be entered together, '
      f'such as {" and ".join({w.version: w.name for w in chosen}.values())}.'
    )
  return version
