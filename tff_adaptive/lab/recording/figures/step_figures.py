"""Figures of the step sizes that clients chose, as in the papers.

Mukherjee et al. (arXiv 2307.06306, Figure 7) show the mean step size of every
round twice: with its spread between clients, and with its spread over a
client's own local steps. Kim et al. (arXiv 2306.11201, Figure 7) show which of
the rule's two terms is the minimum; here it is the share of steps determined by
an upper bound.
"""

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

from tff_adaptive.lab.recording.figures import charts

MEAN = 'step_size/mean'
# Columns of the bands' half widths, and names of the panels.
SPREADS = (
  ('step_size/between_clients', 'between clients'),
  ('step_size/within_clients', 'within a client'),
)
AT_BOUND = 'step_size/at_bound'
_TITLE = 'Client step sizes'
_WHOSE = "First seed of every method's best configuration."
# Ratio of the largest to the smallest mean above which an axis is logarithmic.
_WIDE = 50
# Maps a column to its rounds and values, both empty for a missing column.
Series = Callable[[str], tuple[Sequence[float], Sequence[float]]]


def spread(
  series: Series, column: str
) -> tuple[list[float], list[float], list[float], list[float]]:
  """Returns rounds, mean step sizes, and the ends of a band around them.

  The band is clipped to the smallest and largest step size of the round,
  because a mean plus or minus a deviation may lie beyond.

  Args:
    series: Returns rounds and values of a column of metrics.csv.
    column: The column of half the band's width; non-finite in rounds without
      one.
  """
  widths, least, most = (
    dict(zip(*series(name), strict=True))
    for name in (column, 'step_size/min', 'step_size/max')
  )
  rounds, means = series(MEAN)
  low, high = [], []
  for at, mean in zip(rounds, means, strict=True):
    half = widths.get(at, math.nan)
    low.append(max(mean - half, least.get(at, 0.0)))
    high.append(min(mean + half, most.get(at, math.inf)))
  return list(rounds), list(means), low, high


def build(
  series: Mapping[str, Series], like: Optional[int] = None
) -> list[charts.Chart]:
  """Builds charts of step sizes: both spreads, and the share at the bound.

  Args:
    series: By method, a function that returns rounds and values of a column of
      metrics.csv.
    like: The number of the lines' look; that of each method unless given.
  """
  drawn = []
  for column, label in SPREADS:
    lines = [
      charts.Line(method, *spread(of, column), like=like)
      for method, of in series.items()
    ]
    means = [v for line in lines for v in line.y if math.isfinite(v) and v > 0]
    wide = bool(means) and max(means) > _WIDE * min(means)
    drawn.append(
      charts.Chart(
        column.replace('/', '_'),
        _TITLE,
        "The mean of the cohort's step sizes by round, and as a band the "
        f'standard deviation {label}, no further than the least and the '
        f'greatest step. {_WHOSE}',
        'round',
        f'client step size (band: {label})',
        lines,
        log_y=wide,
        whole_x=True,
        y_limits=(None if wide else 0.0, None),
      )
    )
  lines = [
    charts.Line(method, *of(AT_BOUND), like=like)
    for method, of in series.items()
    if of(AT_BOUND)[0]
  ]
  if lines:
    drawn.append(
      charts.Chart(
        'step_size_at_bound',
        _TITLE,
        'The share of steps that an upper bound decided, by round. '
        + _WHOSE
        + charts.together(lines),
        'round',
        'share of steps at the bound',
        lines,
        whole_x=True,
        y_limits=(-0.03, 1.03),
      )
    )
  return drawn
