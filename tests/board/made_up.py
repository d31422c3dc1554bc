"""Entries of made-up curves."""

import numpy as np

from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import records
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads as workloads_lib

WORKLOADS = ('quadratics', 'synthetic', 'hospitals')
SMALL = entries.Protocol(
  trials=4, tuning_seeds=[1000], seeds=[1, 2, 3], budgets=[1, 2, 4]
)
# Of a run that a method cannot begin.
FAILED = records.of_rows([], 1, 'failed')


def record(rng, speed, *, evaluations=50, diverged=False):
  """A noisy descent from 2.1 to 0.1, or one that diverged at once."""
  count = 1 if diverged else evaluations
  steps = np.arange(1, count + 1)
  loss = 2 * np.exp(-speed * steps / 15) + 0.1 + rng.normal(0, 0.01, count)
  units = np.arange(1, len(records.MEASURES) + 1)
  return records.Record(
    'diverged' if diverged else 'finished',
    float(records.rounded(2.1)),
    records.rounded(np.full(1, np.nan) if diverged else loss),
    records.rounded(np.outer(steps, units)),
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
      return entries.name_of(workload, setting, number)

    runs = {
      name(trial, seed): run(trial).of_tuning()
      for trial in range(protocol.trials)
      for seed in protocol.tuning_seeds
    }
    chosen = protocol.selected(protocol.criteria(runs, workload))
    runs |= {name(t, s): run(t) for t in chosen for s in protocol.seeds}
    runs |= {
      name(entries.DEFAULT, s): record(rng, speed / 2, evaluations=75)
      for s in protocol.seeds
    }
    found[workload] = runs
  submission = entries.Submission(method, spaces.of_method(method))
  made = {
    workload: {
      'hash': workload_of(workload).hash,
      'made_with': runner.made_with(),
    }
    for workload in found
  }
  return entries.Entry(submission, protocol, found, made)


def workload_of(name):
  (found,) = workloads_lib.choose(name)
  return found


def baselines(workloads=WORKLOADS):
  return [
    entry(method, speed, workloads=workloads)
    for method, speed in zip(spaces.BASELINES, (0.8, 0.9, 1.0, 0.7))
  ]


def content(entry):
  """The entry as plain values, which can be compared."""
  return (
    entry.submission, entry.protocol, entry.made,
    {
      workload: {
        name: (r.status, r.untrained, r.losses.tolist(), r.costs.tolist())
        for name, r in runs.items()
      }
      for workload, runs in entry.records.items()
    },
  ).__repr__()  # fmt: skip
