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
from typing import Any

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import styles

MEAN = 'step_size/mean'
# Columns of the bands' half widths, and names of the panels.
SPREADS = (
  ('step_size/between_clients', 'between clients'),
  ('step_size/within_clients', 'within a client'),
)
AT_BOUND = 'step_size/at_bound'
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


def _draw(
  panels: Sequence[Any], series: Series, style: Mapping[str, Any]
) -> None:
  """Draws a run's step sizes into three panels.

  Args:
    panels: matplotlib's axes.
    series: Returns rounds and values of a column of metrics.csv.
    style: Style of the lines.
  """
  *spreads, share = panels
  for panel, (column, label) in zip(spreads, SPREADS, strict=True):
    rounds, means, low, high = spread(series, column)
    panel.plot(rounds, means, **style)
    panel.fill_between(rounds, low, high, color=style['color'], alpha=0.2, lw=0)
    panel.set_ylabel(f'mean step size, and\nstandard deviation {label}')
    panel.set_ylim(bottom=0)
  share.plot(*series(AT_BOUND), **style)
  share.set_ylabel('share of steps at the bound')
  share.set_ylim(-0.03, 1.03)
  for panel in panels:
    panel.set_xlabel('round')
    styles.count(panel.xaxis)


def figure_of(series: Series, title: str) -> Any:
  """Draws a run's step sizes as a matplotlib figure of three panels.

  Args:
    series: Returns rounds and values of a column of metrics.csv.
    title: The title of the figure.
  """
  # Imported here because it takes a second.
  import matplotlib  # pylint: disable=g-import-not-at-top
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  with matplotlib.rc_context(styles.RC):
    figure = figure_lib.Figure(
      figsize=(12.5, 3.3), dpi=120, layout='constrained'
    )
    panels = figure.subplots(1, len(SPREADS) + 1)
    _draw(panels, series, styles.STEP_SIZE)
    # Names may contain dollar signs, which matplotlib would parse as math.
    figure.suptitle(formatting.printable(title), parse_math=False)
  return figure
