"""Timing of a run by phase."""

import collections
import time
from typing import Optional

from tff_adaptive import runtime


class Clock:
  """A timer of seconds by phase: 'data', 'train', 'evaluate' and others."""

  def __init__(self) -> None:
    self.spent: dict[str, float] = collections.defaultdict(float)
    self._start = self._last = time.perf_counter()

  def lap(self, what: str) -> None:
    """Adds the seconds since the last lap to a phase."""
    now = time.perf_counter()
    self.spent[what] += now - self._last
    self._last = now

  def train_lap(self, aggregated_before: Optional[float]) -> None:
    """Adds the seconds since the last lap to training and aggregation.

    Args:
      aggregated_before: `runtime.aggregation_seconds()` before the round.
    """
    self.lap('train')
    aggregated = runtime.aggregation_seconds()
    if aggregated_before is not None and aggregated is not None:
      seconds = aggregated - aggregated_before
      self.spent['train'] -= seconds
      self.spent['aggregate'] += seconds

  @property
  def columns(self) -> dict[str, float]:
    """A round's columns of metrics.csv: seconds in total and by phase."""
    parts = ['data', 'train', 'aggregate', 'evaluate']
    if 'aggregate' not in self.spent:  # Then it is in `train`.
      parts.remove('aggregate')
    return {
      'seconds': round(self.total, 6),
      **{f'seconds/{what}': round(self.spent[what], 6) for what in parts},
    }

  def add_to(self, totals: dict[str, float]) -> None:
    """Adds the seconds of each phase to totals by phase, in place."""
    for what, seconds in self.spent.items():
      totals[what] += seconds

  @property
  def total(self) -> float:
    """Seconds since the clock was created."""
    return time.perf_counter() - self._start
