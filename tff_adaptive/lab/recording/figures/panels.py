"""Vega-Lite specifications of figures: for files, and for the page.

A chart's panel has intervals, lines and markers. For files, panels stand side
by side above a legend. On the page a panel is alone and as wide as its place;
it zooms, shows values under the mouse, and has a parameter `hidden`, the names
of the methods that the reader has switched off.
"""

import math
import textwrap
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np

from tff_adaptive import drawing
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lazy import alt

# Pixels of a panel without its labels, and of a heat map's cell.
_WIDTH, _HEIGHT = 350, 230
_CELL = (52, 34)
# Letters per line of labels, about the length of the axes.
_LABEL_WIDTH = 34
# More points of a line cannot be seen.
_MOST_POINTS = 600
# Pixels of a letter, of a row of the legend and of a line in it.
_LETTER, _ROW, _SAMPLE = 7, 18, 32
# The page's script sets this parameter.
_HIDDEN = 'hidden'
# Methods look alike in all panels of a picture, but each has its own.
_CHANNELS = ('color', 'shape', 'size', 'strokeDash', 'strokeWidth')


def for_files(figure: charts.Figure) -> dict[str, Any]:
  """Draws a figure for a file."""
  if isinstance(figure, charts.HeatMap):
    drawn = _heat_map(
      figure,
      title=formatting.printable(figure.method),
      width=_CELL[0] * len(figure.x),
      height=_CELL[1] * len(figure.y),
    )
    return _specify(drawn)
  return together([figure], columns=1)


def together(
  panels: Sequence[charts.Chart], *, columns: int = 2, title: str = ''
) -> dict[str, Any]:
  """Draws charts side by side for a file, with one legend below.

  Args:
    panels: The charts, row by row; with several, titles are shown.
    columns: Number of panels per row.
    title: The title of the whole.
  """
  apart = alt.Resolve(
    scale=alt.ScaleResolveMap(**dict.fromkeys(_CHANNELS, 'independent'))
  )
  drawn = [
    _panel(
      chart,
      title=formatting.printable(chart.title if len(panels) > 1 else ''),
      width=_WIDTH,
      height=_HEIGHT,
    )
    for chart in panels
  ]
  whole = alt.concat(*drawn, columns=columns, resolve=apart)
  below = (
    [_legend([line for chart in panels for line in chart.lines], columns)]
    if any(chart.lines for chart in panels)
    else []
  )
  return _specify(
    alt.vconcat(
      whole,
      *below,
      center=True,
      resolve=apart,
      title=formatting.printable(title),
    )
  )


def for_page(figure: charts.Figure) -> dict[str, Any]:
  """Builds the Vega-Lite specification of a figure on the page."""
  if isinstance(figure, charts.HeatMap):
    height = _CELL[1] * len(figure.y)
    drawn = _heat_map(figure, width='container', height=height)
  else:
    drawn = _panel(figure, interactive=True, width='container', height=_HEIGHT)
  return _specify(drawn)


def _specify(drawn: Any) -> dict[str, Any]:
  # Its parts were validated as they were made.
  specification: dict[str, Any] = drawn.to_dict(validate=False)
  # Each picture has its theme, see `drawing`.
  del specification['config']
  return specification


def _panel(
  chart: charts.Chart, *, interactive: bool = False, **properties: Any
) -> Any:
  """Draws lines with their intervals and markers.

  Args:
    chart: The chart.
    interactive: Whether it can be zoomed and shows values under the mouse.
    **properties: Title and size.
  """
  looks = _Looks(list(chart.lines))
  # Beyond limits there can be anything, at any distance.
  clip = interactive or {*chart.x_limits, *chart.y_limits} != {None}
  base = alt.Chart(
    drawing.table(_rows(chart)), description=formatting.printable(chart.caption)
  ).encode(
    x=alt.X(
      'x:Q',
      axis=_axis(chart.x_label, chart.log_x, **_ticks(chart)),
      scale=_scale(chart.log_x, chart.x_limits),
    ),
    y=alt.Y('y:Q', **_up(chart)),
    detail='line:N',
    color=looks.colour,
  )
  if interactive:
    base = base.transform_filter(f'indexof({_HIDDEN}, datum.method) < 0')
  layers = []
  if any(line.low is not None for line in chart.lines):
    ends = base.transform_filter('isValid(datum.low)').encode(
      y=alt.Y('low:Q', **_up(chart)), y2='high:Q'
    )
    layers.append(
      ends.mark_errorbar(ticks=True, clip=clip)
      if chart.bars
      else ends.mark_area(opacity=0.18, clip=clip)
    )
  layers += [
    base.mark_line(clip=clip).encode(
      strokeDash=looks.dash, strokeWidth=looks.width
    ),
    base.transform_filter('datum.marked')
    .mark_point(filled=True, opacity=1, clip=clip)
    .encode(shape=looks.marker, size=looks.size),
  ]
  if not interactive:
    return alt.layer(*layers, **properties)
  # A page has to go on scrolling under the wheel and under a finger.
  zoom = alt.selection_interval(
    bind='scales',
    zoom='wheel![event.ctrlKey]',
    translate='[pointerdown[event.pointerType === "mouse"], window:pointerup]'
    ' > window:pointermove!',
  )
  layers.append(_points(base, chart).add_params(zoom))
  return alt.layer(*layers, **properties).add_params(
    alt.param(name=_HIDDEN, value=[])
  )


def _points(base: Any, chart: charts.Chart) -> Any:
  """Draws points that cannot be seen and say their values under the mouse."""
  number = "format(datum.{}, ',.4~r')".format
  said = [
    alt.Tooltip('name:N', title='Method'),
    alt.Tooltip('x:Q', title=chart.x_label, format=',.6~r'),
    alt.Tooltip('y:Q', title=chart.y_label, format=',.4~r'),
  ]
  if any(line.low is not None for line in chart.lines):
    said.append(alt.Tooltip('interval:N', title='Interval'))
  seed = "isValid(datum.seed) ? ', seed ' + datum.seed : ''"
  interval = f"{number('low')} + ' to ' + {number('high')}"
  return (
    base.transform_calculate(
      name=f'datum.method + ({seed})',
      interval=f"isValid(datum.low) ? {interval} : 'none'",
    )
    .mark_circle(opacity=0, size=150, clip=True)
    .encode(tooltip=said)
  )


def _rows(chart: charts.Chart) -> list[dict[str, Any]]:
  """Makes a row of each point, a line's that is drawn below others first."""
  rows = []
  places = len(chart.methods)
  for number, (place, line) in enumerate(chart.drawn()):
    step = -(-len(line.x) // _MOST_POINTS) or 1
    chosen = range((len(line.x) - 1) % step, len(line.x), step)
    marked = {*styles.marked(len(chosen), place, places)}
    for at, i in enumerate(chosen):
      row = {
        'method': formatting.printable(line.method),
        'line': number,
        'x': _value(line.x[i], chart.log_x),
        'y': _value(line.y[i], chart.log_y),
      }
      if line.low is not None and line.high is not None:
        row['low'] = _value(line.low[i], chart.log_y)
        row['high'] = _value(line.high[i], chart.log_y)
      if line.seed is not None:
        row['seed'] = line.seed
      if at in marked:
        row['marked'] = True
      rows.append(row)
  return rows


def _value(number: float, logarithmic: bool) -> Optional[float]:
  """Rounds to visible precision; None, a gap, for what has no place."""
  if not math.isfinite(number) or (logarithmic and number <= 0):
    return None
  return float(f'{number:.6g}')


class _Looks:
  """Scales of the looks of methods.

  Attributes:
    colour: Encodes a method by colour.
    dash: Encodes a method by dash.
    marker: Encodes a method by marker.
    size: Encodes a method by the size of markers.
    width: Encodes a method by the width of lines.
  """

  def __init__(self, lines: Sequence[charts.Line]):
    by_method = {formatting.printable(line.method): line for line in lines}
    found = [(line.style, line.thin) for line in by_method.values()]

    def scaled(values: Iterable[Any]) -> dict[str, Any]:
      scale = alt.Scale(
        type='ordinal', domain=list(by_method), range=list(values)
      )
      return dict(shorthand='method:N', scale=scale, legend=None)

    self.colour = alt.Color(**scaled(s.colour for s, _ in found))
    self.dash = alt.StrokeDash(**scaled(s.dash for s, _ in found))
    self.marker = alt.Shape(**scaled(s.marker for s, _ in found))
    self.size = alt.Size(
      **scaled(s.size**2 * (0.6 if thin else 1) for s, thin in found)
    )
    self.width = alt.StrokeWidth(
      **scaled(1.0 if thin else 1.8 for _, thin in found)
    )


def _axis(label: str, logarithmic: bool = False, **more: Any) -> Any:
  title = textwrap.wrap(formatting.printable(label), _LABEL_WIDTH)
  if logarithmic:
    power = 'log(datum.value) / LN10'
    more['gridOpacity'] = {
      'condition': {
        'test': f'abs({power} - round({power})) < 1e-6',
        'value': 1,
      },
      'value': 0.3,
    }
  return alt.Axis(title=title, **more)


def _up(chart: charts.Chart) -> dict[str, Any]:
  return dict(
    axis=_axis(chart.y_label, chart.log_y),
    scale=_scale(chart.log_y, chart.y_limits),
  )


def _ticks(chart: charts.Chart) -> dict[str, Any]:
  if chart.whole_x:
    return dict(format=',d', tickMinStep=1)
  return dict(format=',~f') if chart.plain_x else {}


def _scale(logarithmic: bool, limits: charts.Limits) -> Any:
  """Builds a scale that fits the data, except where it has a limit."""
  kind = 'log' if logarithmic else 'linear'
  low, high = limits
  options: dict[str, Any]
  if low is high is None:
    options = dict(padding=6)
  elif high is None:
    options = dict(domainMin=low)
  else:
    options = dict(domain=[low, high])
  zero = {} if logarithmic else dict(zero=False)
  return alt.Scale(type=kind, nice=False, **zero, **options)


def _legend(lines: Sequence[charts.Line], panels: int) -> Any:
  """Draws a sample of each method's line, with its name beside it."""
  looks = _Looks(lines)
  names = list(dict.fromkeys(formatting.printable(x.method) for x in lines))
  each = _LETTER * max(map(len, names)) + _SAMPLE + 20
  columns = max(1, min(len(names), panels * (_WIDTH + 60) // each))
  rows = [
    dict(method=name, x=i % columns * each, y=i // columns * _ROW)
    for i, name in enumerate(names)
  ]
  ends = (columns * each, -(-len(names) // columns) * _ROW)
  across, down = (alt.Scale(domain=[0, end], nice=False) for end in ends)
  base = alt.Chart(drawing.table(rows)).encode(
    x=alt.X('x:Q', scale=across, axis=None),
    y=alt.Y('y:Q', scale=down, axis=None, sort='descending'),
  )
  return alt.layer(
    base.mark_rule(x2Offset=_SAMPLE, strokeWidth=1.8).encode(
      x2='x:Q', color=looks.colour, strokeDash=looks.dash
    ),
    base.mark_point(
      xOffset=_SAMPLE / 2, filled=True, opacity=1, size=46
    ).encode(color=looks.colour, shape=looks.marker),
    base.mark_text(xOffset=_SAMPLE + 6, align='left', baseline='middle').encode(
      text='method:N'
    ),
    width=ends[0],
    height=ends[1],
  )


def _heat_map(chart: charts.HeatMap, **properties: Any) -> Any:
  """Draws values in cells; cells without a value show a cross."""
  across, up = (_rates(axis) for axis in (chart.x, chart.y))
  rows = [
    {
      'x': across[j],
      'y': up[i],
      'rates': f'{x:.4g}, {y:.4g}',
      'value': _value(chart.values[i, j], logarithmic=False),
    }
    for i, y in enumerate(chart.y)
    for j, x in enumerate(chart.x)
  ]
  finite = chart.values[np.isfinite(chart.values)]
  middle = float(finite.min() + finite.max()) / 2 if finite.size else 0.0
  base = alt.Chart(drawing.table(rows), description=chart.caption).encode(
    x=alt.X(
      'x:O', sort=across, axis=_axis(_log(chart.x_label, chart.x), labelAngle=0)
    ),
    y=alt.Y('y:O', sort=up[::-1], axis=_axis(_log(chart.y_label, chart.y))),
    tooltip=[
      alt.Tooltip('rates:N', title='Client, server rate'),
      alt.Tooltip('value:Q', title=chart.value_label, format='.4~r'),
    ],
  )
  full = base.transform_filter('isValid(datum.value)')
  return alt.layer(
    full.mark_rect(stroke='white').encode(
      color=alt.Color(
        'value:Q',
        scale=alt.Scale(scheme=drawing.COLOUR_MAP),
        legend=alt.Legend(title=textwrap.wrap(chart.value_label, 16)),
      )
    ),
    full.mark_text().encode(
      text=alt.Text('value:Q', format=chart.form.replace('g', '~g')),
      color=alt.when(alt.datum.value < middle)
      .then(alt.value('white'))
      .otherwise(alt.value('black')),
    ),
    base.transform_filter('!isValid(datum.value)').mark_text(
      text='\N{MULTIPLICATION SIGN}', color='#888888'
    ),
    **properties,
  )


def _rates(rates: Sequence[float]) -> list[str]:
  """Formats rates as exponents of ten if all have one, or as numbers."""
  powers = [charts.power(rate) for rate in rates]
  if None in powers:
    return [f'{rate:.3g}' for rate in rates]
  return [p.replace('-', '\N{MINUS SIGN}') for p in powers if p is not None]


def _log(label: str, rates: Sequence[float]) -> str:
  logarithmic = all(charts.power(rate) is not None for rate in rates)
  return f'log10 of {label[:1].lower()}{label[1:]}' if logarithmic else label
