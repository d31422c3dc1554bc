"""What workloads are scored against: targets and costs of tuned baselines.

Each baseline's best of all trials, repeated on fresh seeds, gives Q, the least
median of final losses, and with it the targets. The reference cost of a target
is the least that a baseline needs when so many trials tune it. Both are frozen
in a file with the board's version. Imports no TensorFlow.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files

FILE = 'references.json'
# Those of this version, installed with the package.
FROZEN = pathlib.Path(__file__).with_name(FILE)


@dataclasses.dataclass(frozen=True)
class References:
  """The frozen references.

  Attributes:
    quality: By workload, L0, Q and the baseline that Q is of, targets, and
      their costs by measure; `None` for those that no tuned baseline reaches.
  """

  quality: Mapping[str, Mapping[str, Any]]

  def of(self, workload: str, measure: str) -> scoring.Reference:
    """Returns the targets of a workload that some baseline reaches; the others
    count for nobody."""
    found = self.quality[workload]
    costs = np.array(found['costs'][measure], float)
    reached = np.isfinite(costs)
    return scoring.Reference(
      np.array(found['targets'])[reached], costs[reached]
    )

  def described(self, workload: str) -> str:
    """Says what a workload's targets are between, and how many are missed."""
    of = self.quality[workload]
    missed = of['costs'][workloads_lib.HEADLINE].count(None)
    return (
      f'{workload}: from {of["untrained"]:.4g} untrained to '
      f'{of["reference"]:.4g} by {of["of"]}'
      + f', without {missed} targets that no tuned baseline reaches'
      * (missed > 0)
    )

  def known(self, names: Sequence[str]) -> list[str]:
    """Returns those of some workloads that have targets.

    Raises:
      SettingsError: If none has.
    """
    known = [name for name in names if name in self.quality]
    if not known:
      raise errors.SettingsError(
        f'There are no targets for {", ".join(names)}; there are for '
        f'{", ".join(self.quality)}. main.py board baselines makes them in '
        'its --output_dir, which is the --recorded_dir then.'
      )
    return known


def make(baselines: Sequence[entries.Entry], path: pathlib.Path) -> None:
  """Makes the references of all workloads that all baselines have run.

  Args:
    baselines: Entries of one protocol.
    path: The file to write; its other workloads are kept.

  Raises:
    SettingsError: If there is another file in its place.
  """
  names = set.intersection(*(set(entry.records) for entry in baselines))
  others = read(path).quality if path.exists() else {}
  made = {name: _of_workload(name, baselines) for name in sorted(names)}
  content = {
    'board': workloads_lib.VERSION,
    'baselines': [entry.name for entry in baselines],
    'workloads': {**others, **made},
  }
  files.make_folder(path.parent)
  files.write_atomically(path, f'{json.dumps(content, indent=1)}\n'.encode())


def _of_workload(
  name: str, baselines: Sequence[entries.Entry]
) -> dict[str, Any]:
  protocol = baselines[0].protocol
  tuned = {
    entry.name: [
      record
      for trial in entry.shares(name, entry.protocol.trials)
      for record in entry.repeats(name, trial)
    ]
    for entry in baselines
  }
  untrained = [r.untrained for records in tuned.values() for r in records]
  start = float(np.nanmedian(untrained))
  medians = {
    n: float(np.median([r.final for r in o])) for n, o in tuned.items()
  }
  best = min(medians, key=lambda n: medians[n])
  targets = scoring.targets(start, medians[best])
  costs = {}
  for measure in records_lib.MEASURES:
    runs = {n: records_lib.joined(o, measure) for n, o in tuned.items()}
    least = scoring.reference_costs(targets, runs)
    costs[measure] = [float(c) if np.isfinite(c) else None for c in least]
  return {
    'how': (
      f'main.py board baselines: the best of {protocol.trials} trials, seeds '
      f'{", ".join(map(str, protocol.seeds))}'
    ),
    **{key: baselines[0].made[name][key] for key in ('hash', 'made_with')},
    'untrained': start,
    'reference': medians[best],
    'of': best,
    'medians': medians,
    'targets': [float(target) for target in targets],
    'costs': costs,
  }


def read(path: pathlib.Path) -> References:
  """Reads the references.

  Raises:
    SettingsError: If they cannot be read, or are of another version.
  """
  with files.reading(path, "the board's targets"):
    found = json.loads(files.read(path))
    entries.check_version(path, found)
    references = References(found['workloads'])
    for name, of in references.quality.items():
      entries.check_hash(path, name, of['hash'])
      references.described(name)
      for measure in records_lib.MEASURES:
        references.of(name, measure)
    return references
