"""The progress display of a run: a tqdm line on a terminal, lines elsewhere."""

import errno
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, IO, Optional

import tqdm

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import metric_names


class _Line(tqdm.tqdm):
  """A tqdm line, as wide as the terminal."""

  # Disables tqdm's monitor thread.
  monitor_interval = 0


# tqdm's default lock is an inter-process semaphore, which forks inherit.
_Line.set_lock(threading.RLock())


class Progress(hooks.Hook):
  """The progress of a run: round, loss, metric, speed and time left."""

  def __init__(
    self,
    total_rounds: int,
    *,
    stream: Optional[IO[str]] = None,
    seconds_between_lines: float = 10.0,
  ):
    """Creates the display; nothing is drawn yet.

    Args:
      total_rounds: The last round.
      stream: The stream to write to; by default standard output.
      seconds_between_lines: The smallest interval between lines if the stream
        is not a terminal; lines of evaluations are always written.
    """
    self._stream = stream or sys.stdout
    self._total = total_rounds
    self._between = seconds_between_lines
    self._last_line = time.monotonic()
    # Round and time after the first round of this process, which is excluded
    # from the speed because it includes compilation.
    self._compiled: Optional[tuple[int, float]] = None
    self._validation: Mapping[str, Any] = {}
    self._line: Optional[_Line] = None

  def start(self, event: hooks.Start) -> None:
    """Prints the round from which a resumed run continues."""
    if event.resumed_from is None:
      if event.dropped:
        self.say('There is no checkpoint: the run begins again.')
      return
    self.say(f'Resuming after round {event.resumed_from}.')
    if event.dropped:
      self.say(
        f'{event.dropped} rounds after that checkpoint were not saved and are '
        'repeated.'
      )

  def round(self, event: hooks.Round) -> None:
    """Redraws the line, or writes one if it is due."""
    number = event.number
    now = time.monotonic()
    if self._compiled is None and number:
      self._compiled = number, now
    validation = hooks.group(event.row, 'validation')
    terminal = self._stream.isatty()
    # The redrawn line keeps showing the last evaluation.
    self._validation = validation or (self._validation if terminal else {})
    words = [
      f'round {number}/{self._total}',
      _pair('train', hooks.group(event.row, 'train')),
      _pair('validation', self._validation),
      *self._speed(number, now),
    ]
    text = '  '.join(filter(None, words))
    if terminal:
      self._draw(text)
    elif (
      validation
      or number == self._total
      or now - self._last_line >= self._between
    ):
      self._last_line = now
      self._write(text)

  def end(self, event: hooks.End) -> None:
    if self._line is not None:
      self._line.close()
      self._line = None

  def _speed(self, number: int, now: float) -> list[str]:
    """Returns seconds per round and the time left, once they are known."""
    if self._compiled is None or number <= self._compiled[0]:
      return []
    each = (now - self._compiled[1]) / (number - self._compiled[0])
    left = formatting.duration(each * (self._total - number))
    return [f'{formatting.number(each)} s/round', f'{left} left']

  def _draw(self, text: str) -> None:
    if self._line is None:
      self._line = _Line(
        file=self._stream,
        position=0,
        bar_format='{desc}',
        dynamic_ncols=True,
      )
    self._line.set_description_str(text)

  def say(self, sentence: str) -> None:
    """Prints a line that is not redrawn."""
    if self._line is not None:
      self._line.clear()
    self._write(sentence)
    if self._line is not None:
      self._line.refresh()

  def _write(self, text: str) -> None:
    try:
      print(formatting.printable(text), file=self._stream, flush=True)
    except OSError as e:
      if e.errno != errno.EIO:
        raise
      # The terminal was closed. The run continues, and all further output to it
      # is discarded.
      nowhere = os.open(os.devnull, os.O_WRONLY)
      os.dup2(nowhere, self._stream.fileno())
      os.close(nowhere)


def _pair(label: str, metrics: Mapping[str, Any]) -> str:
  """Formats the loss and the main metric, if any."""
  words = [
    f'{metric_names.short(name)} {formatting.number(metrics[name])}'
    for name in ('loss', metric_names.main_metric(metrics))
    if name is not None and name in metrics
  ]
  return ' '.join([label, *words]) if words else ''
