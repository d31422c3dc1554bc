"""Figures for papers, drawn by matplotlib."""

import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import charts

# Characters per line of a vertical axis' label, about the axis' length.
_LABEL_WIDTH = 32
# Inches of a panel without a legend.
_PANEL = (5.2, 3.6)
# Width of the lines of single seeds, and relative size of their markers.
_THIN = 0.7
_SMALL = 0.6
# Size of a heat map's cell, and margins of the map, in inches.
_CELL = (0.62, 0.42)
_AROUND = (2.2, 1.4)


def draw(chart: charts.Figure) -> figure_lib.Figure:
  """Draws a chart as a matplotlib figure."""
  with matplotlib.rc_context(styles.RC):
    if isinstance(chart, charts.HeatMap):
      return _draw_heat_map(chart)
    return draw_together([chart], columns=1)


def draw_together(
  panels: Sequence[charts.Chart], *, columns: int = 2
) -> figure_lib.Figure:
  """Draws several charts into one figure, with a common legend below.

  Args:
    panels: The charts, row by row; with several, titles are shown.
    columns: Number of panels per row.
  """
  with matplotlib.rc_context(styles.RC):
    rows = -(-len(panels) // columns)
    figure = figure_lib.Figure(
      figsize=(_PANEL[0] * columns, _PANEL[1] * rows),
      dpi=150 if columns == 1 else 110,
      layout='constrained',
    )
    drawn = figure.subplots(rows, columns, squeeze=False).flat
    for axes, chart in zip(drawn, panels, strict=True):
      _draw_lines(axes, chart)
      if len(panels) > 1 and chart.title:
        axes.set_title(formatting.printable(chart.title), parse_math=False)
    names = (name for chart in panels for name in chart.methods)
    styles.add_legend(
      figure, figure.axes, [formatting.printable(name) for name in names]
    )
  return figure


def image(figure: figure_lib.Figure, format_: str) -> bytes:
  """Renders a figure as 'svg', 'pdf' or 'png', deterministically."""
  buffer = io.BytesIO()
  # Dates and random identifiers are left out.
  with matplotlib.rc_context(styles.RC):
    dates = {'svg': {'Date': None}, 'pdf': {'CreationDate': None}}
    metadata = dates.get(format_, {})
    figure.savefig(buffer, format=format_, metadata=metadata)
  return buffer.getvalue()


def _draw_lines(axes: Any, chart: charts.Chart) -> None:
  named: set[str] = set()
  for place, line in chart.drawn():
    label = '_' if line.method in named else formatting.printable(line.method)
    named.add(line.method)
    _draw_line(
      axes, chart, line, label=label, place=place, places=len(chart.methods)
    )
  if chart.log_x:
    axes.set_xscale('log')
  if chart.log_y:
    axes.set_yscale('log')
  if chart.plain_x:
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,g}'))
  if chart.whole_x:
    styles.count(axes.xaxis)
  axes.set_xlim(*chart.x_limits)
  axes.set_ylim(*chart.y_limits)
  axes.set_xlabel(chart.x_label, parse_math=False)
  axes.set_ylabel(textwrap.fill(chart.y_label, _LABEL_WIDTH), parse_math=False)


def _draw_line(
  axes: Any,
  chart: charts.Chart,
  line: charts.Line,
  *,
  label: str,
  place: int,
  places: int,
) -> None:
  """Draws a line with its interval."""
  style = line.style
  if line.thin:
    style |= dict(linewidth=_THIN, markersize=_SMALL * style['markersize'])
  x, y = np.asarray(line.x, float), np.asarray(line.y, float)
  if line.low is not None and line.high is not None:
    low, high = np.asarray(line.low, float), np.asarray(line.high, float)
    if chart.bars:
      ends = (y - low, high - y)
      axes.errorbar(x, y, yerr=ends, capsize=2, label=label, **style)
      return
    axes.fill_between(x, low, high, color=style['color'], alpha=0.18, lw=0)
  marked = styles.marked(len(x), place, places)
  axes.plot(x, y, label=label, markevery=marked, **style)


def _draw_heat_map(chart: charts.HeatMap) -> figure_lib.Figure:
  """Draws values in cells; cells without a value are hatched."""
  figure = figure_lib.Figure(
    figsize=(
      _AROUND[0] + _CELL[0] * len(chart.x),
      _AROUND[1] + _CELL[1] * len(chart.y),
    ),
    dpi=150,
    layout='constrained',
  )
  axes = figure.subplots()
  axes.grid(visible=False)
  axes.patch.set(hatch='////', edgecolor='0.6', facecolor='white')
  drawn = axes.imshow(
    np.ma.masked_invalid(chart.values),
    origin='lower',
    cmap=styles.COLOUR_MAP,
    aspect='auto',
  )
  finite = chart.values[np.isfinite(chart.values)]
  middle = (finite.min() + finite.max()) / 2 if finite.size else 0.0
  for (i, j), value in np.ndenumerate(chart.values):
    if math.isfinite(value):
      axes.text(
        j,
        i,
        format(value, chart.form),
        ha='center',
        va='center',
        color='white' if value < middle else 'black',
      )
  axes.set_xticks(range(len(chart.x)), [_rate(v) for v in chart.x])
  axes.set_yticks(range(len(chart.y)), [_rate(v) for v in chart.y])
  axes.set_xlabel(chart.x_label)
  axes.set_ylabel(chart.y_label)
  axes.set_title(formatting.printable(chart.method), parse_math=False)
  figure.colorbar(drawn, ax=axes, label=textwrap.fill(chart.value_label, 20))
  return figure


def _rate(value: float) -> str:
  """Formats a rate as a power of ten, if it is one."""
  exponent = charts.power(value)
  return f'{value:.3g}' if exponent is None else f'$10^{{{exponent}}}$'
