"""How far a sweep is: on the screen and in its table."""

import sys
import time
from typing import Any
from typing import IO
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.recording import formatting
from tff_adaptive.report import runs as results
from tff_adaptive.sweep import search
from tff_adaptive.sweep import store as sweep_store
from tff_adaptive.sweep import worker as sweep_worker


class Progress:
  """How far the sweep is, in a line that is redrawn on a terminal."""

  def __init__(
    self,
    store: sweep_store.Store,
    plan: search.Plan,
    stream: Optional[IO[str]] = None,
  ):
    """Starts the clock.

    Args:
      store: The sweep's table, open.
      plan: Knows what is left.
      stream: Where to write; standard output unless given.
    """
    self._store = store
    self._plan = plan
    self._stream = stream or sys.stdout
    self._terminal = self._stream.isatty()
    self._start = time.monotonic()
    self._drawn = 0
    self._worked = 0
    self._rounds: dict[str, int] = {}
    self._first: dict[str, int] = {}

  def round(self, name: str, number: int) -> None:
    """Takes note of a round of a run that is under way."""
    self._first.setdefault(name, number)
    self._rounds[name] = number

  def over(self, name: str, rounds: int) -> None:
    """Takes note of how many rounds a run has that is no longer under way."""
    first = self._first.pop(name, None)
    self._rounds.pop(name, None)
    if first is not None:
      self._worked += max(rounds - first, 0)

  def line(self) -> str:
    """Runs by what became of them, and the time left."""
    counts: dict[str, int] = {}
    rows = self._store.rows()
    for row in rows:
      counts[row['status']] = counts.get(row['status'], 0) + 1
    over = sum(counts.get(s, 0) for s in sweep_store.OVER)
    parts = [f'sweep {over}/{len(rows)} runs']
    for status in (
      sweep_store.RUNNING,
      sweep_store.DIVERGED,
      sweep_store.FAILED,
      sweep_store.PRUNED,
    ):
      if counts.get(status):
        parts.append(f'{counts[status]} {status}')
    worked = self._worked + sum(
      n - self._first[name] for name, n in self._rounds.items()
    )
    if worked > 0 and over < len(rows):
      each = (time.monotonic() - self._start) / worked
      left = self._plan.left(self._rounds)
      parts.append(f'{formatting.duration(each * left)} left')
    return '  '.join(parts)

  def show(self) -> None:
    """Redraws the line; only where it is seen at once."""
    if self._terminal:
      line = self.line()
      self._stream.write('\r' + line.ljust(self._drawn))
      self._drawn = len(line)
      self._stream.flush()

  def say(self, sentence: str) -> None:
    """Writes a line that stays."""
    if self._drawn:
      self._stream.write('\r' + ' ' * self._drawn + '\r')
      self._drawn = 0
    self._stream.write(sentence + '\n')
    self._stream.flush()


class Recorder:
  """Hands out a plan's jobs; writes down what becomes of them, and says it.

  Attributes:
    progress: What it is said to.
  """

  def __init__(
    self, store: sweep_store.Store, plan: search.Plan, progress: Progress
  ):
    self._store = store
    self._plan = plan
    self.progress = progress

  def next(self) -> Optional[sweep_worker.Job]:
    """A job that can be started now, if there is one."""
    return self._plan.next()

  def started(self, job: sweep_worker.Job) -> None:
    self._store.set(job.point.name, sweep_store.RUNNING)

  def done(self, job: sweep_worker.Job, outcome: sweep_worker.Outcome) -> None:
    name = job.point.name
    values: dict[str, Any] = {}
    try:
      run = results.load(job.point.settings.folder)
      values = dict(
        rounds=run.rounds, metric=run.metric, measures=run.measures()
      )
    except errors.SettingsError as e:
      if outcome.status == sweep_store.FINISHED:
        outcome = sweep_worker.Outcome(sweep_store.FAILED, str(e))
    self._store.set(name, outcome.status, reason=outcome.reason, **values)
    self.progress.over(name, values.get('rounds', 0))
    self._plan.done(job, outcome)
    if outcome.status in sweep_store.OVER:
      line = f'{outcome.status:<9} {name}'
      measures = values.get('measures', {})
      if outcome.status == sweep_store.FINISHED and 'train/loss' in measures:
        line += f'  train loss {formatting.number(measures["train/loss"])}'
      if outcome.reason:
        line += f': {outcome.reason}'
      self.progress.say(line)
      self.progress.say(self.progress.line())
      self._store.export()
