"""The runs of an entry: workload by workload, saved as they end, and reused.

Imports no TensorFlow, which the processes do that run.
"""

import hashlib
import importlib.metadata
import json
import multiprocessing
import pathlib
import platform
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, Optional

import tff_adaptive
from tff_adaptive import errors
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import flags as sweep_flags
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import machine

# Of the untuned board, in horizons of the workload.
UNTUNED_HORIZONS = 1.5
# How runs were made that did not train alone, which may round otherwise.
TOGETHER = 'together'
_PACKAGES = ('tensorflow', 'tensorflow-federated', 'numpy')
_Records = dict[str, records_lib.Record]


class Runner:
  """Runs a submission's runs.

  Attributes:
    submission: The submission.
    reasons: Why runs in this process failed, by name.
    alone: Why runs in this process did not train together, by workload.
  """

  def __init__(
    self,
    submission: entries.Submission,
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
    self._trials: dict[str, list[dict[str, str]]] = {}
    self.reasons: dict[str, str] = {}
    self.alone: dict[str, str] = {}

  def check(self, protocol: entries.Protocol) -> None:
    """Raises `SettingsError` if the method refuses its trials."""
    for name in self._workloads:
      for setting in (entries.DEFAULT, *range(protocol.trials)):
        self.point(entries.name_of(name, setting, 1))

  def check_files(self) -> None:
    """Raises `SettingsError` if files of workloads are missing or damaged.

    Without them all runs would fail, and an entry would count that against the
    method.

    Raises:
      RunError: If the process that reads them is killed.
    """
    names = [w.name for w in self._workloads.values() if w.files]
    points = [self.point(entries.name_of(n, entries.DEFAULT, 1)) for n in names]
    if points:
      # Not here: TensorFlow would hold memory, and a GPU, that workers need.
      list(_in_processes(1, _create_tasks, [points]))

  def point(self, name: str) -> grids.Point:
    """Returns a run, by its name.

    Raises:
      SettingsError: If the method refuses its settings.
    """
    workload, setting, seed = entries.split(name)
    flags = self.flags(self._workloads[workload], setting, seed)
    parser = self._parsers[self._workloads[workload].files]
    try:
      identity = parser.parse(flags).settings.identity
    except errors.SettingsError as e:
      raise errors.SettingsError(f'{e} (In the run {name}.)') from e
    return grids.Point(
      name, flags, identity, parser, f'{self._folder / "runs"}'
    )

  def flags(
    self, workload: workloads_lib.Workload, setting: str, seed: int
  ) -> dict[str, str]:
    """Returns the flags of a run, as text."""
    flags = workload.flags(UNTUNED_HORIZONS)
    if setting != entries.DEFAULT:
      space, name = self.submission.space, workload.name
      if name not in self._trials:
        self._trials[name] = space.trials(name, workload.rounds)
      flags = workload.flags() | self._trials[name][int(setting)]
    return {
      **flags,
      'algorithm': self.submission.method,
      'seed': f'{seed}',
      'client_datasets_random_seed': f'{seed}',
    }

  def run(self, names: Iterable[str], *, together: bool = True) -> _Records:
    """Runs the missing runs in this process; returns the records of all.

    Args:
      names: The runs, of one workload.
      together: Whether runs of one seed and length train together.
    """
    names = list(names)
    workload, *_ = entries.split(names[0])
    path = self._file(workload)
    known = self._saved(path)
    left = [self.point(name) for name in names if name not in known]
    for records in self._train(workload, left, together):
      known |= records
      reasons = {n: r for n, r in self.reasons.items() if n in known}
      records_lib.write(path, reasons, known)
    return {name: known[name] for name in names}

  def _file(self, workload: str) -> pathlib.Path:
    """Returns where records are; those of other versions are elsewhere."""
    point = self.point(entries.name_of(workload, entries.DEFAULT, 1))
    made_by = [self._workloads[workload].hash, made_with(), point.identity]
    text = json.dumps(made_by, default=str).encode('utf-8')
    digest = hashlib.blake2b(text, digest_size=4).hexdigest()
    return self._folder / f'{workload}-{digest}.npz'

  def _saved(self, path: pathlib.Path) -> _Records:
    """Reads the records of earlier commands."""
    if not path.exists():
      return {}
    advice = 'delete it, and they are run again'
    with files.reading(path, 'records of runs', advice):
      reasons, known = records_lib.read(path)
    if self._options['retry_failed']:
      # Those that failed in this process are not repeated again.
      earlier = set(reasons) - set(self.reasons)
      known = {n: r for n, r in known.items() if n not in earlier}
      reasons = {}
    self.reasons |= reasons
    return known

  def _train(
    self, workload: str, points: Sequence[grids.Point], together: bool
  ) -> Iterator[_Records]:
    """Yields the records of runs as they end."""
    from tff_adaptive.lab.sweep import together as together_lib  # pylint: disable=g-import-not-at-top
    from tff_adaptive.lab.sweep import worker  # pylint: disable=g-import-not-at-top

    sweep = sweep_flags.Sweep(
      self._folder,
      points,
      dry_run=False,
      options=self._options,
      select=scores.WITHOUT_VALIDATION,
    )
    for group in together_lib.groups_of(points):
      trained: dict[str, Any] = {}
      if together:
        # Warnings are TensorFlow's.
        with worker.output_to(sweep.log_of(workload)):
          try:
            factor = self._options['divergence_factor']
            trained = together_lib.train(group, factor)
          except Exception as e:  # pylint: disable=broad-exception-caught
            # Runs alone tell what fails, each for itself.
            traceback.print_exc()
            self.alone.setdefault(workload, errors.reason(e))
      records: _Records = {}
      for point in group:
        run = trained.get(point.name)
        rows, status = (
          (run.rows, run.status) if run else self._alone(sweep, point)
        )
        gradients = point.settings.configuration.gradients_per_step
        records[point.name] = records_lib.of_rows(rows, gradients, status)
      worker.clean_up()
      yield records

  def _alone(
    self, sweep: sweep_flags.Sweep, point: grids.Point
  ) -> tuple[Sequence[Mapping[str, float]], str]:
    """Runs a point as any run of a sweep; returns its rows and status."""
    from tff_adaptive.lab.sweep import worker  # pylint: disable=g-import-not-at-top

    outcome = worker.run(sweep, point)
    if outcome.status == outcomes.FAILED:
      self.reasons[point.name] = outcome.reason or outcome.status
    else:
      worker.discard_checkpoints(point)
    try:
      return runs.load(point.folder).rows, outcome.status
    except errors.SettingsError:
      if outcome.status == outcomes.FINISHED:
        raise
      return [], outcome.status  # It failed before its first round.

  def enter(self, protocol: entries.Protocol) -> entries.Entry:
    """Tunes and repeats, with workloads divided among processes.

    Raises:
      SettingsError: If another command enters the method.
      RunError: If a process is killed; finished runs are kept.
      Stopped: If a signal stopped them; likewise.
    """
    # Those of one task share graphs.
    names = sorted(self._workloads, key=lambda n: self._workloads[n].task)
    entered: dict[str, _Records] = {}
    made: dict[str, dict[str, Any]] = {}
    with files.RunFolder(self._folder):
      for name, records, reasons, alone in _in_processes(
        self._options['workers'], self._enter, names, [protocol] * len(names)
      ):
        entered[name] = records
        made[name] = {
          'hash': self._workloads[name].hash,
          'made_with': made_with(),
          **({'failed': reasons[0]} if reasons else {}),
        }
        print(
          f'{name}: {len(records)} runs ({len(entered)} of {len(names)} '
          f'workloads){alone and f", one at a time: {alone}"}',
          flush=True,
        )
    return entries.Entry(
      self.submission,
      protocol,
      {name: entered[name] for name in self._workloads},
      {name: made[name] for name in self._workloads},
    )

  def _enter(
    self, workload: str, protocol: entries.Protocol
  ) -> tuple[str, _Records, list[str], str]:
    """Enters a workload.

    Returns:
      Its name, its records, why runs failed, and why runs did not train
      together.
    """

    def run(settings: Iterable[object], seeds: Iterable[int]) -> _Records:
      return self.run(
        entries.name_of(workload, setting, seed)
        for setting in settings
        for seed in seeds
      )

    tried = run(range(protocol.trials), protocol.tuning_seeds)
    # As entries keep them, so that they select the same.
    kept = {n: r.of_tuning() for n, r in tried.items()}
    selected = protocol.selected(protocol.criteria(kept, workload))
    records = kept | run([*selected, entries.DEFAULT], protocol.seeds)
    reasons = [r for n, r in self.reasons.items() if n in records]
    return workload, records, reasons, self.alone.get(workload, '')


def made_with() -> dict[str, str]:
  """Describes versions, and the kind of machine that bits depend on."""
  return {
    'tff_adaptive': tff_adaptive.__version__,
    'runs': TOGETHER,
    'python': platform.python_version(),
    **{name: importlib.metadata.version(name) for name in _PACKAGES},
    'machine': machine.processor(),
  }


def _create_tasks(points: Sequence[grids.Point]) -> None:
  """Creates the tasks of runs, which checks the files that they read."""
  from tff_adaptive.lab.training import experiment  # pylint: disable=g-import-not-at-top

  experiment.set_runtime(points[0].settings)
  for point in points:
    experiment.create_task(point.settings)


def _prepare(shares: Any) -> None:
  """Prepares a process for runs, on its share of the cores."""
  from tff_adaptive.lab.sweep import worker  # pylint: disable=g-import-not-at-top

  worker.prepare(shares.get())


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
  cores = machine.shares(machine.cores(), workers or 1)
  shares = context.SimpleQueue()
  for share in cores:
    shares.put(share)
  pool = futures.ProcessPoolExecutor(len(cores), context, _prepare, (shares,))
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
