"""The progress display of a run, redrawn on a terminal and plain elsewhere."""

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import IO
from typing import Optional

import tqdm

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import metric_names

_COLUMNS = 80


class _Line(tqdm.tqdm):
  """A tqdm line that is redrawn in place."""

  # Disables tqdm's monitor thread.
  monitor_interval = 0


# tqdm's default lock is an inter-process semaphore, which forks inherit.
_Line.set_lock(threading.RLock())


class Progress(hooks.Hook):
  """The progress of a run: round, loss, metric, speed and time left.

  On a terminal it is one line, redrawn by tqdm and no wider than the terminal;
  elsewhere plain lines of at most 80 columns, every so often.
  """

  def __init__(
    self,
    total_rounds: int,
    *,
    first_round: int = 1,
    stream: Optional[IO[str]] = None,
    seconds_between_lines: float = 10.0,
  ):
    """Creates the display; nothing is drawn yet.

    Args:
      total_rounds: The last round.
      first_round: The first round of this process; later than 1 in a resumed
        run.
      stream: The stream to write to; by default standard output.
      seconds_between_lines: The smallest interval between lines if the stream
        is not a terminal; lines of evaluations are always written.
    """
    self._stream = stream or sys.stdout
    self._terminal = self._stream.isatty()
    self._total = total_rounds
    self._first = first_round
    self._between = seconds_between_lines
    self._last_line = time.monotonic()
    # Time after the first round, which is excluded from the speed because it
    # includes compilation.
    self._compiled: Optional[float] = None
    self._validation: Mapping[str, Any] = {}
    self._line: Optional[_Line] = None

  def start(self, event: hooks.Start) -> None:
    """Prints the round from which a resumed run continues."""
    if event.resumed_from is None:
      return
    self._first = event.resumed_from + 1
    self.say(f'Resuming after round {event.resumed_from}.')
    if event.dropped:
      self.say(
        f'{event.dropped} rounds after that checkpoint were not saved and are '
        'repeated.'
      )

  def round(self, event: hooks.Round) -> None:
    self.round_done(
      event.number,
      hooks.group(event.row, 'train'),
      hooks.group(event.row, 'validation'),
    )

  def end(self, event: hooks.End) -> None:
    self.end_line()

  def round_done(
    self,
    round_number: int,
    train: Mapping[str, Any],
    validation: Mapping[str, Any],
  ) -> None:
    """Shows a round.

    Args:
      round_number: The round; 0 for the untrained model.
      train: Training metrics by name.
      validation: Validation metrics by name; empty without an evaluation.
    """
    now = time.monotonic()
    speed = self._speed(round_number, now)
    if self._terminal:
      # The redrawn line keeps showing the last evaluation.
      self._validation = validation or self._validation
      line = self._text(round_number, train, self._validation, speed)
      self._draw(line, round_number)
    elif (
      validation
      or round_number == self._total
      or now - self._last_line >= self._between
    ):
      self._last_line = now
      self._write(self._text(round_number, train, validation, speed) + '\n')

  def _speed(self, round_number: int, now: float) -> list[str]:
    """Returns seconds per round and the time left, once they are known."""
    if round_number < self._first:
      return []
    if self._compiled is None:
      self._compiled = now
    timed = round_number - self._first
    if not timed:
      return []
    each = (now - self._compiled) / timed
    words = [f'{formatting.number(each)} s/round']
    if round_number < self._total:
      left = each * (self._total - round_number)
      words.append(f'{formatting.duration(left)} left')
    return words

  def _text(
    self,
    round_number: int,
    train: Mapping[str, Any],
    validation: Mapping[str, Any],
    speed: Sequence[str],
  ) -> str:
    """Returns the longest text that fits in a line."""
    count = f'{round_number}/{self._total}'
    start = f'round {count}'
    named = [_pair('train', train), _pair('validation', validation)]
    brief = [_pair('', train), _pair('val', validation, names=False)]
    bare = [_pair('train', train, names=False), brief[1]]
    choices = [
      [start, *named, *speed],
      [start, *brief, *speed],
      [start, *bare, *speed],
      [count, *bare, *speed],
      [count, *bare, *speed[1:]],
      [count, *bare],
    ]
    lines = ['  '.join(filter(None, parts)) for parts in choices]
    width = self._width()
    fitting = (line for line in lines if len(line) <= width)
    return next(fitting, lines[-1][:width])

  def _width(self) -> int:
    """Returns the largest line length; a full line would wrap on a terminal."""
    columns = 0
    if self._terminal:
      with contextlib.suppress(OSError):  # The terminal has no size.
        columns = os.get_terminal_size(self._stream.fileno()).columns
    return (columns or _COLUMNS) - 1

  def _draw(self, line: str, round_number: int) -> None:
    if self._line is None:
      self._line = _Line(
        total=self._total,
        initial=round_number,
        desc=line,
        file=self._stream,
        position=0,
        bar_format='{desc}',
      )
      return
    self._line.n = round_number
    self._line.set_description_str(line)

  def say(self, sentence: str) -> None:
    """Prints a line that is not redrawn."""
    if self._line is not None:
      self._line.clear()
    self._write(sentence + '\n')
    if self._line is not None:
      self._line.refresh()

  def _write(self, text: str) -> None:
    try:
      self._stream.write(formatting.printable(text))
      self._stream.flush()
    except OSError as e:
      if e.errno != errno.EIO:
        raise
      # The terminal was closed. The run continues, and all further output to it
      # is discarded.
      nowhere = os.open(os.devnull, os.O_WRONLY)
      os.dup2(nowhere, self._stream.fileno())
      os.close(nowhere)

  def end_line(self) -> None:
    """Ends the redrawn line."""
    if self._line is not None:
      self._line.close()
      self._line = None


def _pair(label: str, metrics: Mapping[str, Any], names: bool = True) -> str:
  """Formats the loss and the main metric, if any."""
  words = []
  for name in ('loss', metric_names.main_metric(metrics)):
    if name is not None and name in metrics:
      words += [metric_names.short(name)] if names else []
      words.append(formatting.number(metrics[name]))
  return ' '.join([label, *words]).strip() if words else ''
