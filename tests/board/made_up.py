"""Entries of made-up curves."""

import numpy as np

from tff_adaptive.lab.board import curves
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces

WORKLOADS = ('quadratics', 'synthetic', 'hospitals')
SMALL = runner.Protocol(trials=4, seeds=(1, 2, 3), budgets=(1, 2, 4))


def record(rng, speed, *, evaluations=50, diverged=False):
  """A noisy descent from 2.1 to 0.1, or one that diverged at once."""
  count = 1 if diverged else evaluations
  steps = np.arange(1, count + 1)
  loss = 2 * np.exp(-speed * steps / 15) + 0.1 + rng.normal(0, 0.01, count)
  costs = {
    measure: [float(unit * step) for step in steps]
    for unit, measure in enumerate(curves.MEASURES, 1)
  }
  if diverged:
    return curves.Record('diverged', 2.1, [None], costs)
  return curves.Record(
    'finished', 2.1, [round(float(v), 6) for v in loss], costs
  )


def entry(method, speed, *, protocol=SMALL, workloads=WORKLOADS, seed=0):
  """An entry whose second trial is its best, and whose last diverges."""
  rng = np.random.default_rng([seed, len(method)])
  found = {}
  for workload in workloads:
    speeds = speed * np.linspace(0.5, 0.7, protocol.trials)
    speeds[1] = speed

    def run(trial, speeds=speeds):
      last = trial == protocol.trials - 1
      return record(rng, speeds[trial], diverged=last)

    def name(setting, number, workload=workload):
      return runner.name_of(workload, setting, number)

    runs = {
      name(t, protocol.tuning_seed): run(t) for t in range(protocol.trials)
    }
    losses = [r.final for r in runs.values()]
    for trial in protocol.selected(losses):
      runs |= {name(trial, s): run(trial) for s in protocol.seeds}
    if protocol.untuned:
      runs |= {
        name(runner.DEFAULT, s): record(rng, speed / 2, evaluations=75)
        for s in protocol.seeds
      }
    found[workload] = runs
  contestant = runner.Contestant(method, spaces.of_method(method))
  return entries.Entry(
    contestant, protocol, found, {}, dict.fromkeys(found, entries.made_with())
  )


def baselines(workloads=WORKLOADS):
  protocol = runner.Protocol(
    trials=50, seeds=tuple(range(1, 11)), budgets=(16, 50), resampled=False,
    untuned=False,
  )  # fmt: skip
  return [
    entry(method, speed, protocol=protocol, workloads=workloads)
    for method, speed in zip(spaces.BASELINES, (0.8, 0.9, 1.0, 0.7))
  ]
