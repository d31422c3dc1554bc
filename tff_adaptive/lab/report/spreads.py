"""Means over seeds with intervals, formatted as the numbers of a column."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Optional

from tff_adaptive.lab.report import scores

# Most decimals of a column; numbers from `_HUGE` on have four digits instead.
_MOST_DECIMALS = 6
_HUGE = 1e7
# Fewest and most decimals of fractions printed in percent.
_OF_SHARES = (1, 2)


@dataclasses.dataclass(frozen=True)
class Spread:
  """A mean over seeds with its interval.

  Attributes:
    mean: The mean.
    low: Lower end of the mean's 95 % confidence interval, or the smaller of two
      values; `None` if all seeds have the same value.
    high: Upper end of the interval, or the larger of two values.
    count: Number of seeds that have a value.
    planned: Number of all seeds.
  """

  mean: float
  low: Optional[float]
  high: Optional[float]
  count: int
  planned: int

  @property
  def is_interval(self) -> bool:
    """Whether the ends are a confidence interval rather than a range."""
    return self.low is not None and self.count >= scores.SEEDS_FOR_AN_INTERVAL


def spread(
  values: Sequence[float],
  bounds: tuple[float, float],
  *,
  planned: int = 0,
  share: bool = False,
) -> Optional[Spread]:
  """Returns the mean of values and its interval; `None` without values.

  Args:
    values: One value per seed; non-finite values are ignored.
    bounds: The smallest and the largest possible value.
    planned: Number of all seeds, if larger.
    share: Whether values are fractions, to be converted to percent.
  """
  values = [v for v in values if math.isfinite(v)]
  if not values:
    return None
  scale = 100.0 if share else 1.0
  low: Optional[float] = min(values)
  high: Optional[float] = max(values)
  if low == high:
    low = high = None
  elif len(values) >= scores.SEEDS_FOR_AN_INTERVAL:
    low, high = scores.confidence(values, bounds)
  return Spread(
    scale * scores.mean(values),
    None if low is None else scale * low,
    None if high is None else scale * high,
    len(values),
    max(planned, len(values)),
  )


def decimals(column: Sequence[Optional[Spread]], *, share: bool = False) -> int:
  """Chooses the number of decimals for a column.

  Shows two significant digits of the median interval, or four of the median
  number if there are no intervals. No number but 0 is printed as 0.
  """
  there = [s for s in column if s is not None and abs(s.mean) < _HUGE]
  widths = [
    (s.high - s.low) / 2
    for s in there
    if s.is_interval and s.low is not None and s.high is not None
  ]
  widths = [w for w in widths if w > 0]
  sizes = [abs(s.mean) for s in there if s.mean]
  if not sizes:
    return 0
  if widths:
    chosen = 1 - math.floor(math.log10(statistics.median(widths)))
  elif share:
    chosen = _OF_SHARES[1]
  else:
    chosen = 3 - math.floor(math.log10(statistics.median(sizes)))
  if share:
    return min(max(chosen, _OF_SHARES[0]), _OF_SHARES[1])
  # Shows at most seven digits of the largest number.
  chosen = min(chosen, 6 - math.floor(math.log10(max(sizes))))
  visible = -math.floor(math.log10(min(sizes)))
  return min(max(chosen, visible, 0), _MOST_DECIMALS)


def texts(spread_: Optional[Spread], places: int) -> tuple[str, str]:
  """Formats a number of a column and its annotation.

  Args:
    spread_: The number; `None` for a dash.
    places: The column's `decimals`.

  Returns:
    A pair such as '92.7' and '[92.1, 93.3]', or '(92.1 to 93.3)' for two seeds.
  """
  if spread_ is None:
    return '\N{EN DASH}', ''
  notes = []
  ends = ''
  if spread_.low is not None and spread_.high is not None:
    low, high = number(spread_.low, places), number(spread_.high, places)
    if spread_.is_interval:
      ends = f'[{low}, {high}]'
    else:
      notes.append(f'{low} to {high}')
  if spread_.count < spread_.planned:
    notes.append(f'n = {spread_.count}')
  beside = f'({", ".join(notes)})' if notes else ''
  return number(spread_.mean, places), f'{ends} {beside}'.strip()


def number(value: float, places: int) -> str:
  """Formats a number with a fixed number of decimals."""
  if abs(value) >= _HUGE:
    return f'{value:.3e}'
  return f'{value:,.{places}f}'
