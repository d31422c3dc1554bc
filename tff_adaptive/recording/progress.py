"""What a run says while it works."""

import sys
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import IO
from typing import Optional


def duration(seconds: float) -> str:
  """A time in words: '42 s', '3 min 20 s', '2 h 05 min'."""
  seconds = round(seconds)
  if seconds < 100:
    return f'{seconds} s'
  minutes, rest = divmod(seconds, 60)
  if minutes < 100:
    return f'{minutes} min {rest:02d} s'
  hours, minutes = divmod(minutes, 60)
  return f'{hours} h {minutes:02d} min'


def number(value: float) -> str:
  """A figure with four significant digits."""
  return f'{value:.4g}'


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
  """The lines of a table.

  Args:
    rows: Cells; as many in every row.
    left: Columns that are set flush left; those after them flush right.
  """
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(
      cell.ljust(width) if i < left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip()
    for row in rows
  ]


class Progress:
  """One line on a terminal, redrawn; now and then a plain line elsewhere."""

  def __init__(
    self,
    total_rounds: int,
    *,
    first_round: int = 1,
    stream: Optional[IO[str]] = None,
    seconds_between_lines: float = 10.0,
  ):
    """Starts the clock.

    Args:
      total_rounds: The last round.
      first_round: The first round of this process; later than 1 in a resumed
        run.
      stream: Where to write; standard output unless given.
      seconds_between_lines: Where the stream is no terminal, lines come no
        closer than this, apart from those of an evaluation.
    """
    self._stream = stream or sys.stdout
    self._terminal = self._stream.isatty()
    self._total = total_rounds
    self._first = first_round
    self._start = time.monotonic()
    self._between = seconds_between_lines
    self._last_line = self._start
    self._validation = ''
    self._drawn = 0

  def from_round(self, first_round: int) -> 'Progress':
    """The same, for a run that goes on at a later round."""
    return Progress(
      self._total,
      first_round=first_round,
      stream=self._stream,
      seconds_between_lines=self._between,
    )

  def round_done(
    self,
    round_number: int,
    train: Mapping[str, Any],
    validation: Mapping[str, Any],
  ) -> None:
    """Shows a round: loss, metric, seconds a round, time left."""
    now = time.monotonic()
    if validation:
      self._validation = 'validation ' + self._pair(validation)
    done = round_number - self._first + 1
    each = (now - self._start) / max(done, 1)
    parts = [f'round {round_number}/{self._total}']
    if trained := self._pair(train):
      parts.append('train ' + trained)
    # A line that is redrawn keeps the last evaluation; one that stays has had
    # a line of its own for it.
    if self._validation and (validation or self._terminal):
      parts.append(self._validation)
    if done > 0:
      left = each * (self._total - round_number)
      parts.append(f'{number(each)} s/round')
      if left:
        parts.append(f'{duration(left)} left')
    line = '  '.join(parts)
    if self._terminal:
      self._stream.write('\r' + line.ljust(self._drawn))
      self._drawn = len(line)
      self._stream.flush()
    elif (
      validation
      or round_number == self._total
      or now - self._last_line >= self._between
    ):
      self._last_line = now
      self._stream.write(line + '\n')
      self._stream.flush()

  def say(self, sentence: str) -> None:
    """Writes a line of its own."""
    self.end_line()
    self._stream.write(sentence + '\n')
    self._stream.flush()

  def end_line(self) -> None:
    """Leaves the redrawn line as it is and goes to the next."""
    if self._drawn:
      self._stream.write('\n')
      self._drawn = 0

  def _pair(self, metrics: Mapping[str, Any]) -> str:
    """The loss and the first other measure of quality."""
    words = []
    if 'loss' in metrics:
      words.append(f'loss {number(metrics["loss"])}')
    name = main_metric(metrics)
    if name is not None:
      words.append(f'{short(name)} {number(metrics[name])}')
    return ' '.join(words)


_COUNTS = frozenset({'loss', 'num_examples', 'num_batches', 'num_tokens'})


def main_metric(metrics: Mapping[str, Any]) -> Optional[str]:
  """The measure of quality that a task names first, besides the loss."""
  return next((name for name in metrics if name not in _COUNTS), None)


def short(name: str) -> str:
  """A metric's name without Keras' prefixes."""
  for prefix in ('sparse_categorical_', 'categorical_', 'binary_'):
    name = name.removeprefix(prefix)
  return name.replace('_', ' ')
