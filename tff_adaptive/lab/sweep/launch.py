"""The launch of a sweep, in one process or several, here or on a cluster.

A sweep's folder contains `sweep.json` (which marks it as a sweep's),
`study.sqlite` (the runs and their outcomes, unless --storage is elsewhere),
`results.csv` (the same as text), `runs/` (one folder per run), `logs/` and
`tensorboard/`. A sweep can be stopped or killed at any time; the same command
resumes it, and interrupted runs continue from their checkpoints.
"""

import contextlib
import dataclasses
import itertools
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from multiprocessing import connection as connections
from typing import Any
from typing import IO
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import hparams
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import search
from tff_adaptive.lab.sweep import storage
from tff_adaptive.lab.sweep import study as study_lib
from tff_adaptive.lab.sweep import ticker as ticker_lib
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import machine

_SECONDS_BETWEEN_LOOKS = 1.0
# Of this process's time, at most, for the table of results.
_SHARE_OF_WRITING = 0.05


def run(
  sweep: flags.Sweep, *, stream: Optional[IO[str]] = None
) -> list[outcomes.Row]:
  """Runs or resumes a sweep.

  Args:
    sweep: The sweep.
    stream: The stream for progress messages; by default standard output.

  Returns:
    The rows of the table.

  Raises:
    SettingsError: If the folder belongs to another experiment, or another
      process is using it; nothing is changed.
    Stopped: If a signal stopped the sweep; finished work is kept.
  """
  scheduler = search.scheduler_of(sweep)
  with _folder(sweep), search.open_study(sweep, scheduler) as study:
    # Printed first, because writing many runs to the study takes a while.
    print(_announce(sweep, scheduler), file=stream or sys.stdout, flush=True)
    study.add(sweep.points)
    files.make_folder(sweep.folder)
    sweeps.write(
      sweep.folder,
      sweeps.SweepRecord(
        scheduler.rule.name,
        sweep.options['storage'] is not None,
        sweep.tuned_on,
      ),
    )
    _take_up(sweep, study)
    ticker = ticker_lib.Ticker(
      _rows(sweep, scheduler, study), scheduler.most_runs, stream
    )
    ticker.say(f'{ticker.left} of {scheduler.most_runs} runs left.')
    signals = stopping.Signals()

    def write() -> None:
      rows = _rows(sweep, scheduler, study)
      ticker.update(rows)
      outcomes.write_table(sweep.folder, _shown(sweep, rows))

    table = _Table(write)

    def report(kind: str, name: str, value: Any) -> None:
      if kind == 'started':
        ticker.started(name)
      elif kind == 'round':
        ticker.round(name, value)
      elif kind == 'over':
        table.changed = True
        ticker.over(name, value)
      table.update()
      ticker.show()
      signals.check()

    try:
      with signals.handled():
        to_do, before = ticker.left, reuse.traces()
        if sweep.in_processes:
          processes = _Processes(sweep, study, report)
          processes.run(signals, ticker)
          traces = processes.traces
        else:
          worker.work(sweep, scheduler, study, signals=signals, report=report)
          traces = reuse.traces() - before
        if to_do:
          ticker.say(f'Traced {traces} rounds for {to_do} runs.')
    except stopping.Stopped:
      ticker.say(
        'Stopped; finished work is saved, and the same command resumes the '
        'sweep.'
      )
      raise
    finally:
      write()
    rows = _rows(sweep, scheduler, study)
    if any(row.status == outcomes.FINISHED for row in rows):
      hparams.write_axes(
        sweep.folder / 'tensorboard',
        sweep.points,
        outcomes.names_of_measures(rows),
      )
    return _shown(sweep, rows)


class _Table:
  """The sweep's table, which is written anew when a run is over.

  Waits after it was written, for a time in proportion to what that took: else a
  sweep of some thousand runs would do little else.

  Attributes:
    changed: Whether a run is over since the table was written.
  """

  def __init__(self, write: Callable[[], None]):
    self._write = write
    self._next = 0.0
    self.changed = False

  def update(self) -> None:
    """Writes the table if a run is over and it is time."""
    begin = time.monotonic()
    if self.changed and begin >= self._next:
      self._write()
      self.changed = False
      end = time.monotonic()
      self._next = end + (end - begin) / _SHARE_OF_WRITING


def _announce(sweep: flags.Sweep, scheduler: search.TrialScheduler) -> str:
  """Describes how many runs and rounds the sweep has, at most."""
  rounds = [point.total_rounds for point in sweep.points]
  total = scheduler.most_runs * sum(rounds) // len(rounds)
  text = (
    f'{scheduler.most_runs} runs, {total:,} rounds in all, in {sweep.folder}.'
  )
  if sweep.tuned_on is None:
    return text
  return (
    f"{text} Tuning on seed {sweep.tuned_on}, then repeating each method's "
    f'best on seeds {", ".join(map(str, sweep.repeats))}.'
  )


def _shown(
  sweep: flags.Sweep, rows: Sequence[outcomes.Row]
) -> list[outcomes.Row]:
  """Drops the repeats of configurations that were not selected."""
  idle = (outcomes.WAITING, outcomes.UNTRIED)
  return [
    row
    for row in rows
    if sweep.tuned_on in (None, row.settings['seed']) or row.status not in idle
  ]


def _rows(
  sweep: flags.Sweep, scheduler: search.TrialScheduler, study: study_lib.Study
) -> list[outcomes.Row]:
  """Builds the rows of the sweep's table, marking runs that will not be run."""
  trials = study.trials()
  reasons = scheduler.untried(trials)
  rows = [outcomes.row_of(trials[p.name]) for p in sweep.points]
  return [
    dataclasses.replace(
      row,
      status=outcomes.UNTRIED,
      outcome=outcomes.Outcome(outcomes.UNTRIED, reasons[row.name]),
    )
    if row.name in reasons
    else row
    for row in rows
  ]


@contextlib.contextmanager
def _folder(sweep: flags.Sweep) -> Iterator[None]:
  """Enters the sweep's folder, locking it unless a --storage is shared.

  Raises:
    SettingsError: If it belongs to another experiment or is in use.
  """
  inside = files.RunFolder(sweep.folder)
  if inside.hparams.exists() or inside.metrics.exists():
    raise errors.SettingsError(
      f'{sweep.folder} is the folder of a single run; choose another '
      '--experiment_name for the sweep.'
    )
  storage.check_folder(sweep.folder)
  files.check_writable(sweep.folder)
  before = sweeps.read(sweep.folder)
  shared = sweep.options['storage'] is not None
  if before is not None and before.shared != shared:
    raise errors.SettingsError(
      f'{sweep.folder} holds a sweep that was started '
      f'{"with" if before.shared else "without"} --storage; repeat the '
      'original command, or choose another --experiment_name.'
    )
  if not shared:
    with inside:
      yield
  else:
    yield


def _take_up(sweep: flags.Sweep, study: study_lib.Study) -> None:
  """Requeues runs of dead processes, and ended runs that the flags ask for."""
  study.take_up_dead()
  points = {p.name: p for p in sweep.points}
  again = {
    outcomes.PRUNED: sweep.pruner == 'none',
    outcomes.FAILED: sweep.options['retry_failed'],
  }
  for name, trial in study.trials().items():
    status = outcomes.status_of(trial)
    gone = (
      status == outcomes.FINISHED
      # With a shared storage the run's folder may be on another machine.
      and sweep.options['storage'] is None
      and not _is_there(points[name])
    )
    if gone or again.get(status, False):
      study.run_again(trial)


def _is_there(point: Any) -> bool:
  try:
    return runs.load(point.folder).finished
  except errors.SettingsError:
    return False


def shares(cores: Sequence[int], count: int) -> list[list[int]]:
  """Divides cores among processes, which share them if there are too few."""
  if count >= len(cores):
    return [[cores[k % len(cores)]] for k in range(count)]
  bounds = [len(cores) * k // count for k in range(count + 1)]
  return [list(cores[a:b]) for a, b in itertools.pairwise(bounds)]


class _Here:
  """Worker processes on this machine, each on its share of the cores.

  Processes whose threads move between all cores spend about a quarter more
  time on the same runs.
  """

  def __init__(self, sweep: flags.Sweep):
    self._sweep = sweep
    self._context = multiprocessing.get_context('spawn')
    self._shares = shares(machine.cores(), self.room())
    # Who runs, or ran last, on each share.
    self._on: list[Any] = [None] * len(self._shares)

  def room(self) -> int:
    """Returns how many processes may run at once."""
    return self._sweep.options['workers'] or 1

  def start(self, connection: Any) -> Any:
    """Starts a worker process that sends its messages to a connection."""
    free = next(
      k for k, other in enumerate(self._on) if not (other and other.is_alive())
    )
    process = self._context.Process(
      target=worker.serve, args=(connection, self._sweep, self._shares[free])
    )
    self._on[free] = process
    process.start()
    connection.close()
    return process

  def close(self) -> None:
    """Does nothing."""


def _machines(sweep: flags.Sweep) -> Any:
  """Returns the machines on which the sweep's processes run."""
  if sweep.options['ray_address'] is None:
    return _Here(sweep)
  from tff_adaptive.lab.sweep import cluster  # pylint: disable=g-import-not-at-top

  return cluster.Machines(sweep)


class _Processes:
  """The worker processes of a sweep, each running one point at a time."""

  def __init__(
    self,
    sweep: flags.Sweep,
    study: study_lib.Study,
    report: worker.Report,
  ):
    self._study = study
    self._report = report
    self._machines = _machines(sweep)
    # Processes and the names of their latest runs, by connection.
    self._running: dict[Any, Any] = {}
    self._runs: dict[Any, str] = {}
    self._nothing_left = False
    self.traces = 0

  def run(self, signals: stopping.Signals, ticker: ticker_lib.Ticker) -> None:
    """Runs all points.

    Raises:
      RunError: If processes end before they start a run.
      WorkerFailure: If the cluster has no machine for them.
      Stopped: If a signal asked to stop; interrupted runs are saved.
    """
    try:
      self._fill(ticker)
      if ticker.left and not self._running:
        raise errors.RunError(
          'No machine of the cluster has the resources requested by '
          '--cpus_per_trial and --gpus_per_trial.'
        )
      while self._running:
        signals.check()
        for connection in connections.wait(
          list(self._running), timeout=_SECONDS_BETWEEN_LOOKS
        ):
          self._hear(connection)
        self._fill(ticker)
        ticker.show()
    finally:
      if self._running:
        ticker.say('Saving the runs in progress.')
        self._end()
      self._machines.close()

  def _fill(self, ticker: ticker_lib.Ticker) -> None:
    """Starts processes while there is room and runs are left."""
    room = 0 if self._nothing_left else self._machines.room()
    while len(self._running) < room and len(self._running) < ticker.left:
      self._start()

  def _start(self) -> None:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    self._running[ours] = self._machines.start(theirs)

  def _hear(self, connection: Any) -> None:
    """Handles one message of a process, or its end."""
    try:
      kind, name, value = connection.recv()
    except (EOFError, OSError):
      self._bury(connection)
      return
    if kind == 'left':
      self._running.pop(connection).join()
      connection.close()
      more, traces = value
      self.traces += traces
      self._nothing_left = not more
    else:
      self._runs[connection] = name
      self._report(kind, name, value)

  def _bury(self, connection: Any) -> None:
    """Handles a process that ended without a final message.

    Its run has failed if the process exited with an error; if the machine was
    lost, the run is requeued.
    """
    process = self._running.pop(connection)
    name = self._runs.pop(connection, None)
    connection.close()
    process.join()
    if process.exitcode is None:
      process.check_started()
      self._take_up(name)
    else:
      how = _describe_end(process.exitcode)
      lost = self._study.fail_runs_of(
        process.pid,
        f'its process was killed {how}, as happens when memory runs out; '
        '--retry_failed repeats it',
        name,
      )
      trials = self._study.trials()
      for run in lost:
        self._report('over', run, outcomes.outcome_of(trials[run]))
      if not lost and process.exitcode and name is None:
        raise errors.RunError(
          f'A worker process was killed {how} before it started a run.'
        )
    self._start()

  def _take_up(self, name: Optional[str]) -> None:
    """Requeues a run whose machine was lost."""
    trial = self._study.trials().get(name or '')
    if trial is not None and outcomes.is_running(trial):
      self._study.run_again(trial)
    self._study.take_up_dead()

  def _end(self) -> None:
    for process in self._running.values():
      process.terminate()  # SIGTERM: the run is saved first.
    for connection, process in self._running.items():
      process.join()
      connection.close()
    # Requeues the runs of processes that were killed before they could.
    self._study.take_up_dead()


def _describe_end(code: Optional[int]) -> str:
  if code is not None and code < 0:
    return f'by {signal.Signals(-code).name}'
  return f'with code {code}'
