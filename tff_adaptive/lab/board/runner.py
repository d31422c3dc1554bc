"""The runs of an entry.

The runs of a submission are named WORKLOAD-SETTING-seedN, SETTING being
'default' or a trial's number, and such a name determines all of a run's flags.
Finished runs are saved, by workload, and reused.
"""

import dataclasses
import hashlib
import importlib.metadata
import itertools
import json
import multiprocessing
import pathlib
import platform
import traceback
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from concurrent import futures
from typing import Any, Optional

import numpy as np

import tff_adaptive
from tff_adaptive import errors
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import flags as sweep_flags
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import machine

DEFAULT = 'default'
# Of the untuned board, in horizons of the workload.
UNTUNED_HORIZONS = 1.5
# How runs were made that did not train alone, which may round otherwise.
TOGETHER = 'together'
_PACKAGES = ('tensorflow', 'tensorflow-federated', 'numpy')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
  """How much an entry is tuned and repeated.

  Attributes:
    trials: Per workload, on every tuning seed.
    tuning_seeds: Not among those that are reported.
    seeds: Fresh ones, for every setting that tuning selects.
    budgets: Numbers of trials for which results are published.
    untuned: Whether the defaults are run.
    in_blocks: Whether a budget of k looks at each k successive trials, rather
      than at any k.
  """

  trials: int = 16
  tuning_seeds: Sequence[int] = (1000,)
  seeds: Sequence[int] = (1, 2, 3, 4, 5)
  budgets: Sequence[int] = (1, 2, 4, 8, 16)
  untuned: bool = True
  in_blocks: bool = False

  def shares(self, criteria: Sequence[float], budget: int) -> np.ndarray:
    """Returns how often a budget selects each trial, [trials]."""
    select = scoring.block_selection if self.in_blocks else scoring.selection
    return select(criteria, budget)

  def selected(self, criteria: Sequence[float]) -> list[int]:
    """Returns the trials that some published budget selects."""
    ever = sum(self.shares(criteria, budget) for budget in self.budgets)
    return [int(trial) for trial in np.flatnonzero(ever)]


# By version of the board.
PROTOCOLS = {
  1: Protocol(),
  2: Protocol(
    trials=32,
    tuning_seeds=(1000, 1001),
    seeds=tuple(range(1, 11)),
    budgets=(4, 8, 16, 32),
    in_blocks=True,
  ),
}
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
    space = dataclasses.asdict(self.space)
    text = json.dumps([workloads_lib.VERSION, space])
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
    alone: Why runs did not train together, by workload.
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
      root: The folder of all submissions.
      options: The flags workers and retry_failed.
      shared: Flags of runs that read files, cache_dir above all, as text.
    """
    self.submission = submission
    self._workloads = {w.name: w for w in workloads}
    self._folder = root / submission.label
    self._options = {**sweep_flags.build_options().split([])[0], **options}
    # By whether a workload reads files; others refuse a folder of them.
    self._parsers = {True: grids.Parser(shared), False: grids.Parser({})}
    self._points: dict[str, grids.Point] = {}
    self._trials: dict[str, list[dict[str, str]]] = {}
    self._known: dict[str, dict[str, records_lib.Record]] = {}
    self.reasons: dict[str, str] = {}
    self.alone: dict[str, str] = {}

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
    list(_in_processes(1, _create_tasks, [points]))

  def failures(self) -> dict[str, str]:
    """Returns the first reason why runs failed, by workload."""
    found: dict[str, str] = {}
    for name, reason in self.reasons.items():
      found.setdefault(split(name)[0], reason)
    return found

  def _point(self, name: str) -> grids.Point:
    if name not in self._points:
      of_name, setting, seed = split(name)
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
        workload.name, workload.rounds, PROTOCOLS[workload.version].trials
      )
    return {
      **workload.flags(1.0 if tuned else UNTUNED_HORIZONS),
      'algorithm': self.submission.method,
      **(self._trials[workload.name][int(setting)] if tuned else {}),
      'seed': f'{seed}',
      'client_datasets_random_seed': f'{seed}',
    }

  def run(
    self, names: Iterable[str], alone: Collection[str] = ()
  ) -> dict[str, records_lib.Record]:
    """Runs the missing runs in this process; returns the records of all.

    Runs of one workload, seed and length train together, and are saved.

    Args:
      names: The runs.
      alone: Workloads whose runs are to train one at a time.
    """
    found: dict[str, records_lib.Record] = {}
    by_workload = lambda name: split(name)[0]
    for workload, group in itertools.groupby(
      sorted(names, key=by_workload), by_workload
    ):
      known, chosen = self._records_of(workload), list(group)
      left = [self._point(name) for name in chosen if name not in known]
      for records in self._train(workload, left, workload not in alone):
        known |= records
        self._save(workload)
      found |= {name: known[name] for name in chosen}
    return found

  def _train(
    self, workload: str, points: Sequence[grids.Point], together: bool
  ) -> Iterator[dict[str, records_lib.Record]]:
    """Yields the records of runs as they end."""
    from tff_adaptive.lab.board import trials  # pylint: disable=g-import-not-at-top
    from tff_adaptive.lab.sweep import worker  # pylint: disable=g-import-not-at-top

    sweep = sweep_flags.Sweep(
      self._folder,
      points,
      dry_run=False,
      options=self._options,
      select=scores.WITHOUT_VALIDATION,
    )
    for group in trials.groups_of(points):
      found: dict[str, records_lib.Record] = {}
      if together:
        # Warnings are TensorFlow's.
        with worker.output_to(sweep.log_of(workload)):
          try:
            found = trials.train(group, self._options['divergence_factor'])
          except Exception as e:  # pylint: disable=broad-exception-caught
            # Runs alone tell what fails, each for itself.
            traceback.print_exc()
            self.alone.setdefault(workload, errors.reason(e))
      for point in group:
        if point.name not in found:
          found[point.name] = self._alone(sweep, point)
      worker.clean_up()
      yield found

  def _alone(
    self, sweep: sweep_flags.Sweep, point: grids.Point
  ) -> records_lib.Record:
    """Runs a point as any run of a sweep."""
    from tff_adaptive.lab.sweep import worker  # pylint: disable=g-import-not-at-top

    outcome = worker.run(sweep, point)
    if outcome.status == outcomes.FAILED:
      self.reasons[point.name] = outcome.reason or outcome.status
    else:
      worker.discard_checkpoints(point)
    try:
      rows = runs.load(point.folder).rows
    except errors.SettingsError:
      if outcome.status == outcomes.FINISHED:
        raise
      rows = []  # It failed before its first round.
    return records_lib.of_rows(
      rows, point.settings.configuration.gradients_per_step, outcome.status
    )

  def _file(self, workload: str) -> pathlib.Path:
    return self._folder / f'{workload}.npz'

  def _made_by(self, workload: str) -> str:
    """Returns what saved records must have in common with new ones."""
    identity = self._point(name_of(workload, DEFAULT, 1)).identity
    (known,) = workloads_lib.choose(workload)
    return json.dumps([known.hash, made_with(), identity], default=str)

  def _records_of(self, workload: str) -> dict[str, records_lib.Record]:
    """Returns the records of earlier commands."""
    if workload not in self._known:
      self._known[workload] = {}
      path = self._file(workload)
      if path.exists():
        try:
          (made_by, reasons), known = records_lib.read(path)
        except Exception as e:
          raise errors.SettingsError(
            f'{path} is damaged ({errors.reason(e)}); delete it, and its runs '
            'are run again.'
          ) from e
        if made_by != self._made_by(workload):
          known = {}  # Of other versions.
        if self._options['retry_failed']:
          known = {n: r for n, r in known.items() if n not in reasons}
        self._known[workload] = known
        self.reasons |= {n: r for n, r in reasons.items() if n in known}
    return self._known[workload]

  def _save(self, workload: str) -> None:
    known = self._known[workload]
    reasons = {n: r for n, r in self.reasons.items() if n in known}
    about = self._made_by(workload), reasons
    records_lib.write(self._file(workload), about, known)

  def enter(
    self, protocol: Protocol
  ) -> dict[str, dict[str, records_lib.Record]]:
    """Tunes and repeats; returns the runs by workload and name.

    Workloads are divided among processes.

    Raises:
      SettingsError: If another command enters the method.
      RunError: If a process is killed; finished runs are kept.
      Stopped: If a signal stopped them; likewise.
    """
    # Those of one task share graphs.
    names = sorted(self._workloads, key=lambda n: self._workloads[n].task)
    entered: dict[str, dict[str, records_lib.Record]] = {}
    with files.RunFolder(self._folder):
      for workload, records, reasons, alone in _in_processes(
        self._options['workers'], self._enter, names, [protocol] * len(names)
      ):
        entered[workload] = records
        self.reasons |= reasons
        print(
          f'{workload}: {len(records)} runs ({len(entered)} of {len(names)} '
          f'workloads){alone and f", one at a time: {alone}"}',
          flush=True,
        )
    return {workload: entered[workload] for workload in self._workloads}

  def _enter(
    self, workload: str, protocol: Protocol
  ) -> tuple[str, dict[str, records_lib.Record], dict[str, str], str]:
    """Enters a workload.

    Returns:
      Its name, its records, why runs failed, and why runs did not train
      together.
    """
    tried = self.run(
      name_of(workload, trial, seed)
      for trial in range(protocol.trials)
      for seed in protocol.tuning_seeds
    )
    # As entries keep them, so that they select the same.
    kept = {n: r.of_tuning() for n, r in tried.items()}
    settings: list[Any] = protocol.selected(criteria(kept, workload, protocol))
    settings += [DEFAULT] if protocol.untuned else []
    repeated = self.run(
      name_of(workload, setting, seed)
      for setting in settings
      for seed in protocol.seeds
    )
    return workload, kept | repeated, self.reasons, self.alone.get(workload, '')


def made_with() -> dict[str, str]:
  """Describes versions, and the kind of machine that bits depend on."""
  return {
    'tff_adaptive': tff_adaptive.__version__,
    'runs': TOGETHER,
    'python': platform.python_version(),
    **{name: importlib.metadata.version(name) for name in _PACKAGES},
    'machine': machine.processor(),
  }


def _prepare(cores: Sequence[Sequence[int]], started: Any) -> None:
  """Prepares a process for runs, on its share of the cores."""
  from tff_adaptive.lab.sweep import worker  # pylint: disable=g-import-not-at-top

  with started.get_lock():
    share = cores[started.value % len(cores)]
    started.value += 1
  worker.prepare(share)


def _in_processes(
  workers: Optional[int],
  function: Callable[..., Any],
  *arguments: Sequence[Any],
) -> Iterator[Any]:
  """Maps a function in processes, or in this one if their number is 0.

  Raises:
    RunError: If a process is killed.
    Stopped: If a signal arrives.
  """
  signals = stopping.Signals()
  if workers == 0:
    with signals.handled(), signals.interruptible():
      yield from map(function, *arguments)
    return
  context = multiprocessing.get_context('spawn')
  shares = machine.shares(machine.cores(), workers or 1)
  pool = futures.ProcessPoolExecutor(
    workers or 1, context, _prepare, (shares, context.Value('i'))
  )
  try:
    with signals.handled(), signals.interruptible():
      tasks = [pool.submit(function, *each) for each in zip(*arguments)]
      for done in futures.as_completed(tasks):
        yield done.result()
  except stopping.Stopped:
    print('Stopped; finished runs are saved, and the same command goes on.')
    raise
  except futures.BrokenExecutor as e:
    raise errors.RunError(
      'A process was killed, as happens when memory runs out; the same command '
      'goes on.'
    ) from e
  finally:
    for process in multiprocessing.active_children():
      process.terminate()
    pool.shutdown(cancel_futures=True)


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
