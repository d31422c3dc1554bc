"""Figures of the step sizes that clients chose, as in the papers.

Mukherjee et al. (arXiv 2307.06306, Figure 7) show the mean step of every round
twice: with how far clients are from each other, and with how far a client's own
local steps are from each other. Kim et al. (arXiv 2306.11201, Figure 7) show
which of the rule's two terms decides; here that is the share of steps that an
upper bound decided.
"""

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import styles

MEAN = 'step_size/mean'
# What a panel's band is the width of, and what the panel is called.
SPREADS = (
  ('step_size/between_clients', 'between clients'),
  ('step_size/within_clients', 'within a client'),
)
AT_BOUND = 'step_size/at_bound'
# Maps a column to rounds and values, both empty where there is none.
Series = Callable[[str], tuple[Sequence[float], Sequence[float]]]


def spread(
  series: Series, column: str
) -> tuple[list[float], list[float], list[float], list[float]]:
  """Returns rounds, mean step sizes, and the ends of a band around them.

  The band ends at the least and the greatest step of the round: a mean with a
  deviation on either side may be beyond, where no step can be.

  Args:
    series: The run's columns of metrics.csv.
    column: Half the band's width; not finite where a round has none.
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
    series: The run's columns of metrics.csv.
    style: Of the lines.
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
  """Draws matplotlib's figure of a run: a row of three panels.

  Args:
    series: The run's columns of metrics.csv.
    title: Over the figure.
  """
  # Takes a second to import, which only the end of a run should pay.
  import matplotlib  # pylint: disable=g-import-not-at-top
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  with matplotlib.rc_context(styles.RC):
    figure = figure_lib.Figure(
      figsize=(12.5, 3.3), dpi=120, layout='constrained'
    )
    panels = figure.subplots(1, len(SPREADS) + 1)
    _draw(panels, series, styles.STEP_SIZE)
    # Names may have dollar signs, which stand for mathematics otherwise.
    figure.suptitle(formatting.printable(title), parse_math=False)
  return figure
