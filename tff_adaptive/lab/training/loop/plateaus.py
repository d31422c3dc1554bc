"""Warnings of runs that make no progress."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import health
from tff_adaptive.lab.recording import hooks

# Consecutive rounds with all steps at their bound, before a warning.
_ROUNDS = 5
_LAST_BIT = 1e-6


class PlateauWarning(hooks.Hook):
  """A listener that warns if a run makes no progress.

  Warns once per run each if every step of every client is at its upper bound,
  as if the step size were fixed, and of each of `health.concerns`; the last are
  repeated at the end.
  """

  def __init__(
    self, say: Callable[[str], None], bounds: Optional[Mapping[str, Any]] = None
  ):
    """Initializes the listener.

    Args:
      say: Called with each warning, a sentence.
      bounds: Values of the hyperparameters that bound clients' steps, by name.
    """
    self._say = say
    self._bounds = bounds or {}
    self._bounded: list[int] = []
    self._told: set[str] = set()
    self._progress = health.Progress()
    self._concerns: dict[str, str] = {}

  def start(self, event: hooks.Start) -> None:
    """Reads the evaluations of a resumed run."""
    self._look_at_health(event.rows)

  def end(self, event: hooks.End) -> None:
    """Repeats the current concerns about a finished run's model."""
    if event.status == hooks.FINISHED:
      for sentence in self._concerns.values():
        self._say(sentence)

  def round(self, event: hooks.Round) -> None:
    self._look_at_steps(event.row)
    before = self._concerns
    self._look_at_health([event.row])
    for kind, sentence in self._concerns.items():
      # A single bad evaluation of a metric may be due to chance.
      if kind == 'loss' or (kind in before and before is not self._concerns):
        self._tell(kind, sentence)

  def _look_at_health(self, rows: Iterable[Mapping[str, Any]]) -> None:
    if any([self._progress.add(row) for row in rows]):
      self._concerns = self._progress.concerns()

  def _tell(self, kind: str, sentence: str) -> None:
    if kind not in self._told:
      self._told.add(kind)
      self._say(sentence)

  def _look_at_steps(self, row: Mapping[str, Any]) -> None:
    share = row.get('step_size/at_bound')
    if share in (None, '') or float(share) < 1 - _LAST_BIT:
      self._bounded = []
      return
    self._bounded.append(int(row['round']))
    if len(self._bounded) < _ROUNDS:
      return
    low, high = (float(row[f'step_size/{end}']) for end in ('min', 'max'))
    at = formatting.number(high)
    if high - low > _LAST_BIT * high:
      at = f'{formatting.number(low)} to {at}'
    bounds = ', '.join(
      f'--{name}={formatting.number(value)}'
      for name, value in self._bounds.items()
    )
    self._tell(
      'steps',
      f'In rounds {self._bounded[0]} to {self._bounded[-1]} every step of '
      f'every client was at its upper bound ({at}): clients train as with a '
      'fixed learning rate, which may be too large or too small'
      + (f'; another bound than {bounds} may help.' if bounds else '.'),
    )
