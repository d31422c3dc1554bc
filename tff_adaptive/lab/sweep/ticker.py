"""The progress display of a sweep."""

import dataclasses
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any
from typing import IO
from typing import Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.sweep import outcomes

# Number of recent start-up times that predict the next ones.
_LATEST = 5


class Ticker:
  """A sweep's progress, one line that is redrawn on a terminal."""

  def __init__(
    self,
    rows: Sequence[outcomes.Row],
    most_runs: int,
    stream: Optional[IO[str]] = None,
  ):
    """Starts the clock.

    Args:
      rows: The rows of the sweep's table.
      most_runs: The largest number of runs.
      stream: The stream to write to; by default standard output.
    """
    self._most_runs = most_runs
    self._stream = stream or sys.stdout
    self._terminal = self._stream.isatty()
    self._drawn = 0
    # Of the current runs, by name: start time; first round in this process and
    # its time; latest round.
    self._began: dict[str, float] = {}
    self._first: dict[str, tuple[int, float]] = {}
    self._rounds: dict[str, int] = {}
    # Rounds of ended runs, and the seconds that they took.
    self._worked = 0
    self._seconds = 0.0
    # Seconds from a run's start to its first round.
    self._starts: list[float] = []
    self._at_once = 1
    self.update(rows)

  def update(self, rows: Sequence[outcomes.Row]) -> None:
    """Replaces the rows of the sweep's table."""
    self._rows = {row.name: row for row in rows}

  @property
  def left(self) -> int:
    """Number of runs that are not over and may still be run."""
    if any(row.status == outcomes.UNTRIED for row in self._rows.values()):
      return 0
    return max(self._most_runs - self._over, 0)

  @property
  def _over(self) -> int:
    return sum(row.status in outcomes.OVER for row in self._rows.values())

  def _set(self, name: str, **what: Any) -> None:
    self._rows[name] = dataclasses.replace(self._rows[name], **what)

  def started(self, name: str) -> None:
    """Records the start of a run."""
    self._set(name, status=outcomes.RUNNING)
    self._began[name] = time.monotonic()
    self._at_once = max(self._at_once, len(self._began))

  def round(self, name: str, number: int) -> None:
    """Records a round of a current run."""
    if name not in self._first:
      now = time.monotonic()
      self._first[name] = number, now
      self._starts.append(now - self._began.get(name, now))
    self._rounds[name] = number

  def over(self, name: str, outcome: outcomes.Outcome) -> None:
    """Records and prints the outcome of a run."""
    self._set(name, status=outcome.status, outcome=outcome)
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
    """Renders the number of runs by status, and the estimated time left."""
    counts: dict[str, int] = {}
    for row in self._rows.values():
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
    """Estimates the time left; `None` before a run has completed two rounds.

    Rounds are estimated at the mean time of all rounds so far. A run that has
    not started also takes its start-up, mostly tracing, estimated at the median
    of the latest: the first start-up imports TensorFlow, and runs of one
    structure share a traced round.
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
    """Computes the number of rounds left if no run is pruned."""
    open_rows = [
      row for row in self._rows.values() if row.status not in outcomes.OVER
    ]
    total = sum(row.settings['total_rounds'] for row in open_rows)
    total = total * self.left // max(len(open_rows), 1)
    return max(total - sum(self._rounds.values()), 0)

  def show(self) -> None:
    """Redraws the line, on a terminal only."""
    if self._terminal:
      line = self.line()
      self._stream.write('\r' + line.ljust(self._drawn))
      self._drawn = len(line)
      self._stream.flush()

  def say(self, sentence: str) -> None:
    """Prints a line that is not redrawn."""
    if self._drawn:
      self._stream.write('\r' + ' ' * self._drawn + '\r')
      self._drawn = 0
    self._stream.write(sentence + '\n')
    self._stream.flush()
