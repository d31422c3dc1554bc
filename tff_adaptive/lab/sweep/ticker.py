"""The progress of a sweep, on the screen."""

import statistics
import sys
import time
from collections.abc import Sequence
from typing import IO
from typing import Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.sweep import outcomes

# Starts that the next ones are expected to be like.
_LATEST = 5


class Ticker:
  """A sweep's progress, a line that is redrawn on a terminal."""

  def __init__(
    self,
    rows: Sequence[outcomes.Row],
    most_runs: int,
    stream: Optional[IO[str]] = None,
  ):
    """Starts the clock.

    Args:
      rows: Of the sweep's table.
      most_runs: How many of them may be run.
      stream: Where to write; standard output unless given.
    """
    self._most_runs = most_runs
    self._stream = stream or sys.stdout
    self._terminal = self._stream.isatty()
    self._drawn = 0
    # Of the runs under way here: when they began, their first round of now and
    # its time, and their last.
    self._began: dict[str, float] = {}
    self._first: dict[str, tuple[int, float]] = {}
    self._rounds: dict[str, int] = {}
    # Of the runs that are over: rounds, and the seconds that these took.
    self._worked = 0
    self._seconds = 0.0
    # Seconds from a run's begin to its first round.
    self._starts: list[float] = []
    self._at_once = 1
    self.update(rows)

  def update(self, rows: Sequence[outcomes.Row]) -> None:
    """Takes the sweep's table as it is now."""
    self._rows = rows

  @property
  def left(self) -> int:
    """Runs that are not over and may be run."""
    if any(row.status == outcomes.UNTRIED for row in self._rows):
      return 0
    return max(self._most_runs - self._over, 0)

  @property
  def _over(self) -> int:
    return sum(row.status in outcomes.OVER for row in self._rows)

  def started(self, name: str) -> None:
    """Takes note of a run that begins."""
    self._began[name] = time.monotonic()
    self._at_once = max(self._at_once, len(self._began))

  def round(self, name: str, number: int) -> None:
    """Takes note of a round of a run that is under way."""
    if name not in self._first:
      now = time.monotonic()
      self._first[name] = number, now
      self._starts.append(now - self._began.get(name, now))
    self._rounds[name] = number

  def over(self, name: str, outcome: outcomes.Outcome) -> None:
    """Says what became of a run."""
    first = self._first.pop(name, None)
    self._rounds.pop(name, None)
    self._began.pop(name, None)
    if first is not None:
      number, since = first
      self._worked += max(outcome.rounds - number, 0)
      self._seconds += time.monotonic() - since
    line = f'{outcome.status:<9} {name}'
    loss = outcome.measures.get('train/loss')
    if outcome.status == outcomes.FINISHED and loss is not None:
      line += f'  train loss {formatting.number(loss)}'
    if outcome.reason:
      line += f': {outcome.reason}'
    self.say(line)
    self.say(self.line())

  def line(self) -> str:
    """Counts runs by what became of them, with the time left."""
    counts: dict[str, int] = {}
    for row in self._rows:
      counts[row.status] = counts.get(row.status, 0) + 1
    parts = [f'sweep {self._over}/{self._over + self.left} runs']
    for status in (
      outcomes.RUNNING,
      outcomes.DIVERGED,
      outcomes.FAILED,
      outcomes.PRUNED,
    ):
      if counts.get(status):
        parts.append(f'{counts[status]} {status}')
    seconds = self._seconds_left()
    if seconds is not None:
      parts.append(f'about {formatting.duration(seconds)} left')
    return '  '.join(parts)

  def _seconds_left(self) -> Optional[float]:
    """Estimates the time left; `None` before two rounds of a run are known.

    Rounds are counted at the mean of all so far. A run that has not begun also
    takes its start, tracing above all, at the median of the latest: the first
    start imports TensorFlow, and runs of one shape share a traced round.
    """
    now = time.monotonic()
    worked, spent = self._worked, self._seconds
    for name, (number, since) in self._first.items():
      if self._rounds[name] > number:
        worked += self._rounds[name] - number
        spent += now - since
    if not worked or not self.left:
      return None
    start = statistics.median(self._starts[-_LATEST:])
    to_begin = max(self.left - len(self._began), 0)
    seconds = self._rounds_left() * spent / worked + to_begin * start
    return seconds / min(self._at_once, self.left)

  def _rounds_left(self) -> int:
    """Counts the rounds still to run, if no run is given up on the way."""
    open_rows = [row for row in self._rows if row.status not in outcomes.OVER]
    total = sum(row.settings['total_rounds'] for row in open_rows)
    total = total * self.left // max(len(open_rows), 1)
    return max(total - sum(self._rounds.values()), 0)

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
