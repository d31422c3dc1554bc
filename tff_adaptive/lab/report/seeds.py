"""Lines of methods, averaged over their seeds."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections

# Rounds, x and y of a run, of equal length.
Points = tuple[Sequence[float], Sequence[float], Sequence[float]]
Series = Callable[[results.Run], Points]
Best = Mapping[str, sections.Configuration]

OVER_SEEDS = (
  'A line is the mean over seeds. Its band is the 95 % confidence interval of '
  'the mean, or the range of two seeds.'
)
APART = 'Every line is one run; runs of a method differ in their seeds.'


def lines(
  best: Best, series: Series, bounds: tuple[float, float]
) -> list[charts.Line]:
  """Builds the lines of every method over its seeds.

  Args:
    best: The configuration of every method.
    series: Returns rounds, x and y of a run.
    bounds: The smallest and the largest possible y.
  """
  drawn = []
  for method, configuration in best.items():
    found = []
    for run in configuration.runs:
      points = series(run)
      if np.isfinite(points[-1]).any():
        found.append((run, points))
    if len(found) > 1 and not configuration.apart:
      drawn += _mean_line(method, [points for _, points in found], bounds)
    else:
      drawn += [
        charts.Line(
          method,
          x,
          y,
          seed=run.settings.get('seed'),
          thin=len(found) > 1,
        )
        for run, (_, x, y) in found
      ]
  return drawn


def _mean_line(
  method: str, series: Sequence[Points], bounds: tuple[float, float]
) -> list[charts.Line]:
  """Averages over seeds in the rounds in which all of them have a value."""
  by_round = [
    {at: (x, y) for at, x, y in zip(*points, strict=True)} for points in series
  ]
  shared = sorted(set.intersection(*map(set, by_round)))
  points = np.array([[of[at] for at in shared] for of in by_round])
  points = points.reshape(len(series), len(shared), 2)
  points = points[:, np.isfinite(points).all(axis=(0, 2))]
  if not points.size:
    return []
  x, y = points.mean(axis=0).T
  ends = [_ends(list(v), bounds) for v in points[..., 1].T]
  low, high = zip(*ends, strict=True)
  return [charts.Line(method, list(x), list(y), low, high)]


def _ends(
  values: Sequence[float], bounds: tuple[float, float]
) -> tuple[float, float]:
  """Returns the ends of a mean's interval, or the range of two values."""
  if len(values) < scores.SEEDS_FOR_AN_INTERVAL:
    return min(values), max(values)
  return scores.confidence(values, bounds)
