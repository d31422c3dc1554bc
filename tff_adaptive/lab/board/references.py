"""What workloads are scored against: targets and costs of tuned baselines.

Each baseline's best of 50 trials, repeated on 10 fresh seeds, gives Q, the
least median of final losses, and with it the targets. The reference cost of a
target is the least that a baseline needs, tuned with 16 trials. Both are frozen
in a file with the board's version. Imports no TensorFlow.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.board import curves
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import workloads as workloads_lib

FILE = 'references.json'
# Those of this version, installed with the package.
FROZEN = pathlib.Path(__file__).with_name(FILE)
_REACH, _TUNED = max(runner.BASELINE.budgets), min(runner.BASELINE.budgets)


@dataclasses.dataclass(frozen=True)
class References:
  """The frozen references.

  Attributes:
    by_measure: By measure of cost and workload.
    quality: By workload, L0, Q and the baseline that Q is of.
    missed: By workload, the targets that no tuned baseline reaches, which count
      for nobody.
  """

  by_measure: Mapping[str, Mapping[str, scoring.Reference]]
  quality: Mapping[str, Mapping[str, Any]]
  missed: Mapping[str, Sequence[float]]


def make(baselines: Sequence[entries.Entry], path: pathlib.Path) -> None:
  """Makes the references of all workloads that all baselines have run.

  Args:
    baselines: Entries with the protocol of baselines.
    path: The file to write.
  """
  names = set.intersection(*(set(entry.records) for entry in baselines))
  entries.write_json(
    path,
    {
      'board': workloads_lib.VERSION,
      'how': (
        f'main.py board baselines: {_REACH} trials each, seeds '
        f'{", ".join(map(str, baselines[0].protocol.seeds))}; targets by the '
        f'best of {_REACH}, costs by the best of {_TUNED} trials'
      ),
      'baselines': [entry.name for entry in baselines],
      'workloads': {
        name: _of_workload(name, baselines) for name in sorted(names)
      },
    },
  )


def _of_workload(
  name: str, baselines: Sequence[entries.Entry]
) -> dict[str, Any]:
  finals: dict[str, list[float]] = {}
  untrained: list[float] = []
  for entry in baselines:
    (best,) = _chosen(entry, name, _REACH)
    repeats = entry.repeats(name, best)
    finals[entry.name] = [record.final for record in repeats]
    untrained += [r.untrained for r in repeats if r.untrained is not None]
  start = float(np.median(untrained))
  reached = scoring.reference_loss(finals)
  medians = {n: float(np.median(losses)) for n, losses in finals.items()}
  targets = scoring.targets(start, reached)
  costs = {}
  for measure in curves.MEASURES:
    tuned = {
      entry.name: entry.tuned(name, _TUNED, measure)[0].curves
      for entry in baselines
    }
    found = scoring.reference_costs(targets, tuned)
    costs[measure] = [c if math.isfinite(c) else None for c in found.tolist()]
  return {
    'hash': workloads_lib.choose(name)[0].hash,
    'made_with': dict(baselines[0].made_with[name]),
    'untrained': start,
    'reference': reached,
    'of': min(medians, key=lambda n: medians[n]),
    'medians': medians,
    'targets': [float(target) for target in targets],
    'costs': costs,
  }


def _chosen(entry: entries.Entry, workload: str, budget: int) -> list[int]:
  protocol = entry.protocol
  losses = [
    entry.records[workload][
      runner.name_of(workload, trial, protocol.tuning_seed)
    ].final
    for trial in range(protocol.trials)
  ]
  return [int(t) for t in np.flatnonzero(protocol.shares(losses, budget))]


def read(path: pathlib.Path) -> References:
  """Reads the references.

  Raises:
    SettingsError: If they cannot be read, or are of another version.
  """
  found = entries.read_json(path)
  by_measure: dict[str, dict[str, scoring.Reference]] = {
    measure: {} for measure in curves.MEASURES
  }
  missed = {}
  for name, of in found['workloads'].items():
    entries.check_hash(path, name, of['hash'])
    targets = np.array(of['targets'])
    for measure, found_costs in of['costs'].items():
      costs = np.array([np.inf if c is None else c for c in found_costs])
      by_measure[measure][name] = scoring.reference_of(targets, costs)
      missed[name] = targets[np.isinf(costs)].tolist()
  return References(by_measure, found['workloads'], missed)


def check_known(references: References, names: Sequence[str]) -> list[str]:
  """Returns those of some workloads that have targets.

  Raises:
    SettingsError: If none has.
  """
  known = [name for name in names if name in references.quality]
  if not known:
    raise errors.SettingsError(
      f'There are no targets for {", ".join(names)}; there are for '
      f'{", ".join(references.quality)}. main.py board baselines makes them.'
    )
  return known
