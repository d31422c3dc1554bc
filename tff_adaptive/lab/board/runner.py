"""The runs of an entry, as points of one sweep of this program.

The runs of a submission are named WORKLOAD-SETTING-seedN, SETTING being
'default' or a trial's number, and such a name determines all of a run's flags.
One sweep folder holds the runs of tuning, fresh seeds and verification;
finished runs are reused.
"""

import dataclasses
import hashlib
import json
import multiprocessing
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import flags as sweep_flags
from tff_adaptive.lab.sweep import grids

DEFAULT = 'default'
# Of the untuned board, in horizons of the workload.
UNTUNED_HORIZONS = 1.5
_RUNS_PER_PROCESS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
  """How much an entry is tuned and repeated.

  Attributes:
    trials: Per workload, on every tuning seed.
    tuning_seeds: Not among those that are reported.
    seeds: Fresh ones, for every setting that tuning selects.
    budgets: Numbers of trials for which results are published.
    untuned: Whether the defaults are run.
  """

  trials: int = 16
  tuning_seeds: Sequence[int] = (1000,)
  seeds: Sequence[int] = (1, 2, 3, 4, 5)
  budgets: Sequence[int] = (1, 2, 4, 8, 16)
  untuned: bool = True

  def selected(self, criteria: Sequence[float]) -> list[int]:
    """Returns the trials that some published budget selects."""
    ever = sum(scoring.selection(criteria, budget) for budget in self.budgets)
    return [int(trial) for trial in np.flatnonzero(ever)]


FULL = Protocol()
QUICK = Protocol(trials=8, seeds=(1, 2), budgets=(1, 2, 4, 8))


@dataclasses.dataclass(frozen=True)
class Submission:
  """A method with its search space.

  Attributes:
    method: The method's name.
    space: Its space.

  Raises:
    SettingsError: If there is no such method, or the space holds anything but
      its settings.
  """

  method: str
  space: spaces.Space

  def __post_init__(self) -> None:
    spaces.check(self.space, self.method)

  @property
  def label(self) -> str:
    """The name of its folder; another space is another submission."""
    text = json.dumps([workloads_lib.VERSION, self.space.plain()])
    digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
    return f'{self.method}-{digest}'


def name_of(workload: str, setting: object, seed: int) -> str:
  """Returns the name of a run."""
  return f'{workload}-{setting}-seed{seed}'


def split(name: str) -> tuple[str, str, int]:
  """Returns workload, setting and seed of a run's name."""
  workload, setting, seed = name.split('-')
  return workload, setting, int(seed.removeprefix('seed'))


def _create_tasks(points: Sequence[grids.Point]) -> None:
  """Creates the tasks of runs, which checks the files that they read."""
  from tff_adaptive.lab.training import experiment  # pylint: disable=g-import-not-at-top

  experiment.set_runtime(points[0].settings)
  for point in points:
    experiment.create_task(point.settings)


class Runner:
  """Runs a submission's runs, and reads them.

  Attributes:
    submission: The submission.
    reasons: Why runs failed, by name.
  """

  def __init__(
    self,
    submission: Submission,
    workloads: Iterable[workloads_lib.Workload],
    root: pathlib.Path,
    options: Mapping[str, Any],
    shared: Mapping[str, str],
  ):
    """Creates the runner without starting any run.

    Args:
      submission: The submission.
      workloads: The workloads.
      root: The folder of all sweeps.
      options: Flags of `main.py sweep`, by name: workers and retry_failed.
      shared: Flags of runs that read files, cache_dir above all, as text.
    """
    self.submission = submission
    self._workloads = {w.name: w for w in workloads}
    self._folder = root / submission.label
    defaults = sweep_flags.build_options().split([])[0]
    self._options = {
      **defaults,
      'runs_per_process': _RUNS_PER_PROCESS,
      # What is scored is in tables, and client states of a thousand runs would
      # fill a disk.
      'keep_checkpoints': False,
      **options,
    }
    # By whether a workload reads files; others refuse a folder of them.
    self._parsers = {True: grids.Parser(shared), False: grids.Parser({})}
    self._points: dict[str, grids.Point] = {}
    self._trials: dict[str, list[dict[str, str]]] = {}
    self.reasons: dict[str, str] = {}

  def check(self) -> None:
    """Raises `SettingsError` if a method refuses the first trials."""
    workload = next(iter(self._workloads))
    for setting in (DEFAULT, 0, 1):
      self._point(name_of(workload, setting, 1))

  def check_files(self) -> None:
    """Raises `SettingsError` if files of workloads are missing or damaged.

    Without them all runs would fail, and an entry would count that against the
    method.

    Raises:
      RunError: If the process that reads them is killed.
    """
    names = [w.name for w in self._workloads.values() if w.files]
    if not names:
      return
    points = [self._point(name_of(name, DEFAULT, 1)) for name in names]
    # Not here: TensorFlow would hold memory, and a GPU, that workers need.
    context = multiprocessing.get_context('spawn')
    with futures.ProcessPoolExecutor(1, mp_context=context) as process:
      try:
        process.submit(_create_tasks, points).result()
      except futures.BrokenExecutor as e:
        raise errors.RunError(
          f'The process that read the files of {", ".join(names)} was killed.'
        ) from e

  def failures(self) -> dict[str, str]:
    """Returns the first reason why runs failed, by workload."""
    found: dict[str, str] = {}
    for name, reason in self.reasons.items():
      found.setdefault(split(name)[0], reason)
    return found

  def _point(self, name: str) -> grids.Point:
    if name not in self._points:
      of_name, setting, seed = split(name)
      # Not of this command, if an earlier one began the run.
      (workload,) = workloads_lib.choose(of_name)
      flags = self._flags(workload, setting, seed)
      parser = self._parsers[workload.files]
      try:
        identity = parser.parse(flags).settings.identity
      except errors.SettingsError as e:
        raise errors.SettingsError(f'{e} (In the run {name}.)') from e
      self._points[name] = grids.Point(
        name, flags, identity, parser, str(self._folder / 'runs')
      )
    return self._points[name]

  def _flags(
    self, workload: workloads_lib.Workload, setting: str, seed: int
  ) -> dict[str, str]:
    """Returns the flags of a run, as text."""
    tuned = setting != DEFAULT
    if tuned and workload.name not in self._trials:
      self._trials[workload.name] = self.submission.space.trials(
        workload.name, workload.rounds, FULL.trials
      )
    return {
      **workload.flags(1.0 if tuned else UNTUNED_HORIZONS),
      'algorithm': self.submission.method,
      **(self._trials[workload.name][int(setting)] if tuned else {}),
      'seed': f'{seed}',
      'client_datasets_random_seed': f'{seed}',
    }

  def run(self, names: Iterable[str]) -> dict[str, records_lib.Record]:
    """Runs the missing runs, and returns the records of all by name.

    Raises:
      SettingsError, RunError, Stopped: As `launch.run` does.
    """
    from tff_adaptive.lab.sweep import launch  # pylint: disable=g-import-not-at-top

    wanted = list(names)
    # Runs of earlier commands are part of the same sweep.
    begun = [n for n in self._begun() if n not in set(wanted)]
    rows = launch.run(
      sweep_flags.Sweep(
        self._folder,
        [self._point(name) for name in (*wanted, *begun)],
        dry_run=False,
        options=self._options,
        select=scores.WITHOUT_VALIDATION,
      )
    )
    status = {row.name: row.status for row in rows}
    self.reasons = {
      row.name: row.outcome.reason or row.status
      for row in rows
      if row.status == 'failed'
    }
    return {name: self._read(name, status[name]) for name in wanted}

  def _begun(self) -> list[str]:
    from tff_adaptive.lab.sweep import study  # pylint: disable=g-import-not-at-top

    return study.names_in(self._folder)

  def _read(self, name: str, status: str) -> records_lib.Record:
    point = self._point(name)
    try:
      rows = runs.load(point.folder).rows
    except errors.SettingsError:
      if status == 'finished':
        raise
      rows = []  # It failed before its first round.
    return records_lib.of_rows(
      rows, point.settings.configuration.gradients_per_step, status
    )

  def enter(
    self, protocol: Protocol
  ) -> dict[str, dict[str, records_lib.Record]]:
    """Tunes and repeats; returns the runs by workload and name."""
    tuning = {
      workload: [
        name_of(workload, trial, seed)
        for trial in range(protocol.trials)
        for seed in protocol.tuning_seeds
      ]
      for workload in self._workloads
    }
    tried = self.run(name for names in tuning.values() for name in names)
    fresh = {}
    for workload in self._workloads:
      found = criteria(tried, workload, protocol)
      settings: list[Any] = protocol.selected(found)
      settings += [DEFAULT] if protocol.untuned else []
      fresh[workload] = [
        name_of(workload, setting, seed)
        for setting in settings
        for seed in protocol.seeds
      ]
    repeated = self.run(name for names in fresh.values() for name in names)
    return {
      workload: {
        **{name: tried[name].of_tuning() for name in tuning[workload]},
        **{name: repeated[name] for name in fresh[workload]},
      }
      for workload in self._workloads
    }


def criteria(
  records: Mapping[str, records_lib.Record], workload: str, protocol: Protocol
) -> list[float]:
  """Returns each trial's selection criterion, its mean over tuning seeds."""
  return [
    float(
      np.mean(
        [
          records[name_of(workload, trial, seed)].criterion
          for seed in protocol.tuning_seeds
        ]
      )
    )
    for trial in range(protocol.trials)
  ]
