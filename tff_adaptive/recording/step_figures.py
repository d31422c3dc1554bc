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

from tff_adaptive.recording import formatting

MEAN = 'step_size/mean'
# What a panel's band is the width of, and what the panel is called.
_SPREADS = (
  ('step_size/between_clients', 'between clients'),
  ('step_size/within_clients', 'within a client'),
)
_AT_BOUND = 'step_size/at_bound'
CAPTION = (
  "The mean of the cohort's step sizes by round, with the standard deviation "
  "between the clients' means and the mean standard deviation of a client's "
  'own steps, and the share of steps that an upper bound decided.'
)

# Maps a column to rounds and values, both empty where there is none.
Series = Callable[[str], tuple[Sequence[float], Sequence[float]]]


def draw(
  panels: Sequence[Any], series: Series, style: Mapping[str, Any]
) -> None:
  """Draws a run's step sizes into three panels.

  Args:
    panels: matplotlib's axes.
    series: The run's columns of metrics.csv.
    style: Of the lines.
  """
  rounds, means = series(MEAN)
  mean_of = dict(zip(rounds, means, strict=True))
  for panel, (column, label) in zip(panels, _SPREADS, strict=False):
    panel.plot(rounds, means, label='mean', **style)
    spread = [
      (x, mean_of[x], v)
      for x, v in zip(*series(column), strict=True)
      if math.isfinite(v) and x in mean_of
    ]
    if spread:
      x, centre, half = zip(*spread, strict=True)
      panel.fill_between(
        x,
        [max(c - h, 0.0) for c, h in zip(centre, half, strict=True)],
        [c + h for c, h in zip(centre, half, strict=True)],
        color=style['color'],
        alpha=0.2,
        lw=0,
        label=f'standard deviation {label}',
      )
    panel.set_ylabel('client step size')
    panel.set_ylim(bottom=0)
  share = panels[len(_SPREADS)]
  share.plot(*series(_AT_BOUND), **style)
  share.set_ylabel('share of steps at the bound')
  share.set_ylim(-0.03, 1.03)
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  for panel in panels:
    panel.set_xlabel('round')
    panel.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    panel.grid(alpha=0.3)
    if panel.get_legend_handles_labels()[0]:
      panel.legend(fontsize=7)


def figure_of(
  runs: Mapping[str, Series], style_of: Callable[[str], Mapping[str, Any]]
) -> Any:
  """Draws matplotlib's figure with a row of three panels for every run.

  Args:
    runs: The runs' columns, by what the runs are called.
    style_of: The style of a run, by the same names.
  """
  # Takes a second to import, which only the end of a run should pay.
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  figure = figure_lib.Figure(
    figsize=(12.5, 3.3 * len(runs)), dpi=120, layout='constrained'
  )
  axes = figure.subplots(len(runs), len(_SPREADS) + 1, squeeze=False)
  for panels, (name, series) in zip(axes, runs.items(), strict=True):
    draw(panels, series, style_of(name))
    # Names may have dollar signs, which stand for mathematics otherwise.
    panels[0].set_title(
      formatting.printable(name), fontsize=9, parse_math=False
    )
  return figure
