"""A clock of what a run spends its time on."""

import collections
import time
from typing import Optional

from tff_adaptive import runtime


class Clock:
  """Seconds by what they were spent on."""

  def __init__(self) -> None:
    self.spent: dict[str, float] = collections.defaultdict(float)
    self._start = self._last = time.perf_counter()

  def lap(self, what: str) -> None:
    """Counts the time since the last lap as spent on something."""
    now = time.perf_counter()
    self.spent[what] += now - self._last
    self._last = now

  def train_lap(self, aggregated_before: Optional[float]) -> None:
    """Takes a lap of training, the time of aggregation apart.

    Args:
      aggregated_before: What `runtime.aggregation_seconds` said before.
    """
    self.lap('train')
    aggregated = runtime.aggregation_seconds()
    if aggregated_before is not None and aggregated is not None:
      seconds = aggregated - aggregated_before
      self.spent['train'] -= seconds
      self.spent['aggregate'] += seconds

  @property
  def columns(self) -> dict[str, float]:
    """A round's seconds: in all, and by what they were spent on."""
    parts = ['data', 'train', 'aggregate', 'evaluate']
    if 'aggregate' not in self.spent:  # Then it is in `train`.
      parts.remove('aggregate')
    return {
      'seconds': round(self.total, 6),
      **{f'seconds/{what}': round(self.spent[what], 6) for what in parts},
    }

  def add_to(self, totals: dict[str, float]) -> None:
    """Adds the seconds of each phase to totals of the same names."""
    for what, seconds in self.spent.items():
      totals[what] += seconds

  @property
  def total(self) -> float:
    """Seconds since the clock was made."""
    return time.perf_counter() - self._start
