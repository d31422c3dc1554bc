"""The launch of a sweep, in one process or several.

A sweep's folder contains `sweep.json` (which marks it as a sweep's),
`study.journal` (the runs and their outcomes, unless --storage is elsewhere),
`results.csv` (the same as text), `runs/` (one folder per run) and `logs/`. A
sweep can be stopped or killed at any time; the same command resumes it, and
interrupted runs continue from their checkpoints.
"""

import contextlib
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing import connection as connections
from typing import Any, IO, Optional

import tqdm

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import storage
from tff_adaptive.lab.sweep import study as study_lib
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import machine

_SECONDS_BETWEEN_LOOKS = 1.0
# Of this process's time, at most, for reading the study and writing the table.
_SHARE_OF_TABLES = 0.05


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
    RunError: If the study cannot be read or written, or the disk is full.
    Stopped: If a signal stopped the sweep; finished work is kept.
  """
  stream = stream or sys.stdout
  place = storage.describe(sweep.folder, sweep.options['storage'])
  with _folder(sweep) as folder, storage.complaints(place):
    study = study_lib.Study(sweep)
    print(f'Sweep in {sweep.folder}.', file=stream, flush=True)
    study.start()
    files.make_folder(sweep.folder)
    shared = sweep.options['storage'] is not None
    record = sweeps.SweepRecord(
      sweep.select, shared, sweep.tuned_on, sweep.axes
    )
    sweeps.write(sweep.folder, record)
    signals = stopping.Signals()
    progress = _Progress(sweep, study, folder, stream)
    try:
      with signals.handled():
        if sweep.options['workers'] == 0:
          worker.work(sweep, study, signals=signals, report=progress.update)
        else:
          _Workers(sweep, study).run(signals, progress)
    except BaseException as e:
      with contextlib.suppress(errors.RunError, OSError):
        progress.close()
      if isinstance(e, stopping.Stopped):
        progress.say(
          'Stopped; finished work is saved, and the same command resumes the '
          'sweep.'
        )
      raise
    progress.close()
    return progress.rows


class _Progress:
  """A sweep's progress bar and its table.

  Attributes:
    rows: The rows of the table when it was last read.
  """

  def __init__(
    self,
    sweep: flags.Sweep,
    study: study_lib.Study,
    folder: files.RunFolder,
    stream: IO[str],
  ):
    self._sweep, self._study, self._stream = sweep, study, stream
    self._folder = folder
    self._next = 0.0
    self.rows = study.rows()
    self._over = {r.name for r in self.rows if r.status in outcomes.OVER}
    left = study.left()
    self._bar = tqdm.tqdm(
      desc='sweep',
      unit='run',
      initial=len(self._over),
      total=len(self._over) + left,
      file=stream,
      disable=None,  # Off a terminal.
      leave=False,
    )
    self.say(f'{left} of {self._bar.total} runs left.')

  def say(self, sentence: str) -> None:
    """Prints a line above the bar."""
    self._bar.write(sentence, file=self._stream)
    self._stream.flush()

  def update(self) -> None:
    """Prints runs that are over and writes the table, if it is time.

    Waits after that for a time in proportion to what it took: else a sweep of
    some thousand runs would do little else.
    """
    begin = time.monotonic()
    if begin >= self._next:
      self._write()
      end = time.monotonic()
      self._next = end + (end - begin) / _SHARE_OF_TABLES

  def _write(self) -> None:
    self._folder.check_owned()
    self.rows = self._study.rows()
    # Repeats are added as their configurations are chosen.
    self._bar.total = max(self._bar.total, len(self.rows))
    for row in self.rows:
      if row.status in outcomes.OVER and row.name not in self._over:
        self._over.add(row.name)
        self._bar.update()
        self.say(f'{_line(row)}  ({len(self._over)}/{self._bar.total})')
    outcomes.write_table(self._sweep.folder, self.rows)

  def close(self) -> None:
    """Writes the table a last time."""
    self._write()
    self._bar.close()


def _line(row: outcomes.Row) -> str:
  """Describes a run that is over."""
  line = f'{row.status:<9} {row.name}'
  loss = row.outcome.measures.get('train/loss')
  if row.status == outcomes.FINISHED and loss is not None:
    line += f'  train loss {formatting.number(loss)}'
  return f'{line}: {row.outcome.reason}' if row.outcome.reason else line


@contextlib.contextmanager
def _folder(sweep: flags.Sweep) -> Iterator[files.RunFolder]:
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
  files.check_writable(sweep.folder)
  before = sweeps.read(sweep.folder)
  shared = sweep.options['storage'] is not None
  if before is not None and before.shared != shared:
    raise errors.SettingsError(
      f'{sweep.folder} holds a sweep that was started '
      f'{"with" if before.shared else "without"} --storage; repeat the '
      'original command, or choose another --experiment_name.'
    )
  if shared:
    yield inside
  else:
    with inside:
      yield inside


class _Workers:
  """Worker processes on this machine, each on its share of the cores.

  Processes whose threads move between all cores spend about a quarter more
  time on the same runs.
  """

  def __init__(self, sweep: flags.Sweep, study: study_lib.Study):
    self._sweep, self._study = sweep, study
    self._context = multiprocessing.get_context('spawn')
    count = sweep.options['workers'] or 1
    self._shares = machine.shares(machine.cores(), count)
    # Process and the end of its pipe, by index of its share.
    self._running: dict[int, tuple[Any, Any]] = {}

  def run(self, signals: stopping.Signals, progress: _Progress) -> None:
    """Runs all points.

    Raises:
      RunError: If a worker cannot go on, or ends before it starts a run.
      Stopped: If a signal asked to stop; interrupted runs are saved.
    """
    try:
      while self._fill():
        signals.check()
        sentinels = [process.sentinel for process, _ in self._running.values()]
        connections.wait(sentinels, timeout=_SECONDS_BETWEEN_LOOKS)
        for share, (process, receiver) in [*self._running.items()]:
          if not process.is_alive():
            del self._running[share]
            self._handle_exit(process, receiver)
        progress.update()
    finally:
      if self._running:
        progress.say('Saving the runs in progress.')
        self._end()

  def _fill(self) -> bool:
    """Starts processes while runs are left; returns whether any are running."""
    free = [k for k in range(len(self._shares)) if k not in self._running]
    most = self._study.left() - len(self._running) if free else 0
    for share in free[: max(most, 0)]:
      receiver, sender = self._context.Pipe(duplex=False)
      process = self._context.Process(
        target=worker.serve, args=(sender, self._sweep, self._shares[share])
      )
      process.start()
      sender.close()
      self._running[share] = process, receiver
    return bool(self._running)

  def _handle_exit(self, process: Any, receiver: Any) -> None:
    """Records the run of a process that was killed as failed.

    Raises:
      RunError: If the process had an error of its own, or no run.
    """
    process.join()
    with contextlib.suppress(EOFError):
      raise errors.RunError(receiver.recv())
    if code := process.exitcode:
      how = (
        f'by {signal.Signals(-code).name}' if code < 0 else f'with code {code}'
      )
      reason = (
        f'its process was killed {how}, as happens when memory runs out; '
        '--retry_failed repeats it'
      )
      if not self._study.fail_runs_of(process.pid, reason):
        raise errors.RunError(
          f'A worker process was killed {how} before it started a run.'
        )
    # The process may have ended before it could do so.
    self._study.add_repeats()

  def _end(self) -> None:
    for process, _ in self._running.values():
      process.terminate()  # SIGTERM: the run is saved first.
    for process, _ in self._running.values():
      process.join()
      # For a process that was killed before it could.
      self._study.release_runs_of(process.pid)
