"""Runs the jobs of a sweep: here, or in processes of their own."""

import contextlib
import multiprocessing
import signal
from multiprocessing import connection as connections
from typing import Optional

from tff_adaptive.recording import files
from tff_adaptive.sweep import progress as sweep_progress
from tff_adaptive.sweep import store as sweep_store
from tff_adaptive.sweep import worker as sweep_worker
from tff_adaptive.training import stopping

_STOPPED = sweep_worker.Outcome(sweep_store.WAITING, 'stopped')
_SECONDS_BETWEEN_LOOKS = 1.0


def in_this_process(
  recorder: sweep_progress.Recorder, signals: stopping.Signals
) -> None:
  """Runs one job after the other.

  Args:
    recorder: Hands them out.
    signals: Whoever handles SIGINT and SIGTERM.

  Raises:
    Stopped: If a signal asked to stop; the run under way is saved.
  """
  while (job := recorder.next()) is not None:
    signals.check()
    recorder.started(job)
    name = job.point.name

    def report(number: int, name: str = name) -> None:
      recorder.progress.round(name, number)
      recorder.progress.show()

    try:
      outcome = sweep_worker.run(job, report)
    except stopping.Stopped:
      recorder.done(job, _STOPPED)
      raise
    recorder.done(job, outcome)


class _Slot:
  """A worker process and what it is at."""

  def __init__(self) -> None:
    context = multiprocessing.get_context('spawn')
    self.connection, theirs = context.Pipe()
    self.process = context.Process(
      target=sweep_worker.serve, args=(theirs,), daemon=False
    )
    self.process.start()
    theirs.close()
    self.job: Optional[sweep_worker.Job] = None
    self.runs = 0

  def start(self, job: sweep_worker.Job) -> None:
    files.make_folder(job.log.parent)
    self.job = job
    self.runs += 1
    with contextlib.suppress(OSError):  # It has ended: `_hear` tells how.
      self.connection.send(job)

  def close(self) -> None:
    """Lets the process end."""
    with contextlib.suppress(OSError):  # It may have ended by itself.
      self.connection.send(None)
    self.process.join()
    self.connection.close()


class Pool:
  """Worker processes that each run one job after the other."""

  def __init__(
    self,
    recorder: sweep_progress.Recorder,
    *,
    workers: int,
    runs_per_process: int,
  ):
    """Starts nothing yet.

    Args:
      recorder: Hands out the jobs.
      workers: Processes that run at once.
      runs_per_process: Runs after which a process is replaced.
    """
    self._recorder = recorder
    self._workers = workers
    self._runs_per_process = runs_per_process
    self._slots: list[_Slot] = []

  def run(self, signals: stopping.Signals) -> None:
    """Runs all jobs.

    Raises:
      Stopped: If a signal asked to stop; the runs under way are saved.
    """
    try:
      while True:
        signals.check()
        self._hand_out()
        if not self._busy:
          return
        self._listen()
        self._recorder.progress.show()
    finally:
      self._end()

  @property
  def _busy(self) -> list[_Slot]:
    return [s for s in self._slots if s.job is not None]

  def _hand_out(self) -> None:
    """Gives jobs to idle workers, and to new ones while there may be more."""
    idle = [s for s in self._slots if s.job is None and s.process.is_alive()]
    while len(self._busy) < self._workers:
      job = self._recorder.next()
      if job is None:
        return
      if idle:
        slot = idle.pop()
      else:
        slot = _Slot()
        self._slots.append(slot)
      self._recorder.started(job)
      slot.start(job)

  def _listen(self) -> None:
    """Waits a while for what busy workers have to say."""
    busy = self._busy
    ready = connections.wait(
      [s.connection for s in busy], timeout=_SECONDS_BETWEEN_LOOKS
    )
    for slot in busy:
      if slot.connection in ready:
        self._hear(slot)

  def _hear(self, slot: _Slot) -> None:
    job = slot.job
    assert job is not None
    try:
      kind, value = slot.connection.recv()
    except (EOFError, OSError):
      slot.process.join()
      self._slots.remove(slot)
      self._recorder.done(job, _died(slot.process.exitcode))
      return
    if kind == 'round':
      self._recorder.progress.round(job.point.name, value)
      return
    slot.job = None
    self._recorder.done(job, value)
    if slot.runs >= self._runs_per_process or value.reason == 'stopped':
      self._slots.remove(slot)
      slot.close()

  def _end(self) -> None:
    busy = self._busy
    if busy:
      self._recorder.progress.say('Saving the runs that are under way.')
    for slot in busy:
      slot.process.terminate()  # SIGTERM: the run is saved first.
    for slot in self._slots:
      if slot.job is not None:
        slot.process.join()
        self._recorder.done(slot.job, _STOPPED)
      slot.close()


def _died(code: Optional[int]) -> sweep_worker.Outcome:
  """The outcome of a run whose process ended without a word."""
  how = f'with code {code}'
  if code is not None and code < 0:
    how = f'by {signal.Signals(-code).name}'
  return sweep_worker.Outcome(
    sweep_store.FAILED,
    f'its process was ended {how}, as happens when memory runs out; '
    '--retry_failed tries again',
  )
