"""Means over seeds with their intervals, as the numbers of a column."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Optional

from tff_adaptive.lab.report import scores

# Decimals of a column; numbers from `_HUGE` on have four digits instead.
_MOST_DECIMALS = 6
_HUGE = 1e7
# Decimals of shares in percent, at least and at most.
_OF_SHARES = (1, 2)


@dataclasses.dataclass(frozen=True)
class Spread:
  """A mean over seeds, and how far these are from each other.

  Attributes:
    mean: The mean.
    low: The lower end of the mean's 95 % confidence interval, or the least of
      two seeds; `None` where all seeds have the same value.
    high: The upper end.
    count: The seeds that have a value.
    planned: The seeds there are.
  """

  mean: float
  low: Optional[float]
  high: Optional[float]
  count: int
  planned: int

  @property
  def is_interval(self) -> bool:
    """Whether the ends are those of an interval, not of two seeds."""
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
    values: One a seed; those that are not finite are left out.
    bounds: The least and the greatest value that there can be.
    planned: How many seeds there are, if more.
    share: Whether to give percent of what are shares.
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
  """Chooses the decimals of all numbers of a column.

  Two significant digits of the usual interval, or four of the usual number
  where there are no intervals; and no number but 0 looks like 0.
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
  # Seven digits of the largest are more than anybody reads.
  chosen = min(chosen, 6 - math.floor(math.log10(max(sizes))))
  visible = -math.floor(math.log10(min(sizes)))
  return min(max(chosen, visible, 0), _MOST_DECIMALS)


def texts(spread_: Optional[Spread], places: int) -> tuple[str, str]:
  """Writes a number of a column, and what stands beside it.

  Args:
    spread_: The number; `None` for a dash.
    places: The column's `decimals`.

  Returns:
    Such as '92.7' and '[92.1, 93.3]', or '(92.1 to 93.3)' of two seeds.
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
  """Writes a number with so many decimals."""
  if abs(value) >= _HUGE:
    return f'{value:.3e}'
  return f'{value:,.{places}f}'
