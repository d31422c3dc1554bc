"""Figures: data with labels, rendered as Vega-Lite by Altair.

A chart has one line per method, from a table with the columns `method`, `x` and
`y`; `low` and `high` add a band, and `run` tells lines of a method apart. The
same specification serves files and the report's page, where a click on the
legend highlights a method.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np

from tff_adaptive import drawing
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lazy import alt
from tff_adaptive.lazy import pandas as pd

# Ends of an axis; `None` to fit the data.
Limits = tuple[Optional[float], Optional[float]]
# Pixels of a panel without its labels, and of a heat map's cell.
_WIDTH, _HEIGHT = 360, 230
# Pixels for the legend on a page, which a telephone shows too.
_NARROW = 270
_CELL = (52, 34)
# Letters per line of labels, about the length of the axes.
_LABEL_WIDTH = 34
# More points of a line cannot be seen; fewer are marked.
_MOST_POINTS, _MARKED = 600, 30
# A range this many times that of all values but a twentieth at each end, or one
# of few, is cut.
_SPIKE = 20
# Pixels of a letter of the legend, and of the line beside a name.
_LETTER, _SAMPLE = 6, 40


@dataclasses.dataclass(frozen=True)
class Chart:
  """One panel with lines.

  Attributes:
    name: Base name of its files.
    title: Its heading, which several charts may share.
    caption: A description of its content, also used as alternative text.
    x_label: Label of the horizontal axis.
    y_label: Label of the vertical axis.
    data: The points, in drawing order; see the module's docstring.
    log_x: Whether the horizontal axis is logarithmic.
    log_y: Whether the vertical axis is logarithmic.
    whole_x: Whether the horizontal axis shows integers only.
    x_limits: Ends of the horizontal axis.
    y_limits: Ends of the vertical axis.
    bars: Whether intervals are drawn as error bars instead of bands.
    share: Whether the vertical axis shows fractions, to be printed in percent.
    colours: Colours by method, as #rrggbb; those of `styles` unless given.
  """

  name: str
  title: str
  caption: str
  x_label: str
  y_label: str
  data: pd.DataFrame
  log_x: bool = False
  log_y: bool = False
  whole_x: bool = False
  x_limits: Limits = (None, None)
  y_limits: Limits = (None, None)
  bars: bool = False
  share: bool = False
  colours: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @property
  def methods(self) -> list[str]:
    """The methods that have lines, in drawing order."""
    return list(dict.fromkeys(self.data['method']))


@dataclasses.dataclass(frozen=True)
class HeatMap:
  """Values over two axes of learning rates.

  Attributes:
    name: Base name of its files.
    title: Its heading.
    caption: A description of its content.
    method: The method.
    x_label: Label of the horizontal axis.
    y_label: Label of the vertical axis.
    value_label: Label of the values.
    data: A table with rates of the columns as columns, rates of the rows as
      index, and NaN where there is no value.
    share: Whether values are fractions, to be printed in percent.
  """

  name: str
  title: str
  caption: str
  method: str
  x_label: str
  y_label: str
  value_label: str
  data: pd.DataFrame
  share: bool = False


Figure = Union[Chart, HeatMap]


def specification(
  figure: Figure, *, width: Any = None, interactive: bool = False
) -> dict[str, Any]:
  """Returns a figure's Vega-Lite specification.

  Args:
    figure: The figure.
    width: Its width in pixels, or 'container' for that of its place.
    interactive: Whether it can be zoomed and its legend be clicked.
  """
  if isinstance(figure, HeatMap):
    return _specify(_heat_map(figure, width))
  room = _NARROW if width == 'container' else _WIDTH
  drawn = _panel(figure, figure.methods, width or _WIDTH, room, interactive)
  return _specify(drawn)


def together(
  charts: Sequence[Chart], *, columns: int = 2, title: str = ''
) -> dict[str, Any]:
  """Returns a specification of charts side by side, with one legend below.

  Args:
    charts: The charts, row by row; their titles are shown.
    columns: Number of charts per row.
    title: The title of the whole.
  """
  methods = list(dict.fromkeys(m for chart in charts for m in chart.methods))
  panels = [
    _panel(c, methods, _WIDTH, columns * _WIDTH).properties(
      title=formatting.printable(c.title)
    )
    for c in charts
  ]
  whole = alt.concat(
    *panels, columns=columns, title=formatting.printable(title)
  ).resolve_scale(color='shared', strokeDash='shared')
  return _specify(whole)


def _specify(drawn: Any) -> dict[str, Any]:
  # Altair has validated the parts.
  found: dict[str, Any] = drawn.to_dict(validate=False)
  # Each picture has its theme, see `drawing`.
  del found['config']
  return found


def _panel(
  chart: Chart,
  methods: Sequence[str],
  width: Any,
  legend_width: int,
  interactive: bool = False,
) -> Any:
  """Draws lines with their intervals.

  Args:
    chart: The chart.
    methods: The methods of the legend.
    width: The width in pixels, or 'container'.
    legend_width: Pixels for the legend.
    interactive: As in `specification`.
  """
  rows, limits = _rows(chart)
  names = {
    m: formatting.printable(name)
    for m, name in formatting.methods(methods).items()
  }
  rows['method'] = rows['method'].map(names)
  room = legend_width // (_LETTER * max(map(len, names.values())) + _SAMPLE)
  legend = alt.Legend(
    orient='bottom',
    title=None,
    columns=max(1, room),
    symbolType='stroke',
    symbolOpacity=1,
    symbolSize=500,
  )
  colours = {m: chart.colours.get(m) or styles.colour(m) for m in methods}
  label = sentence(chart.y_label) + (' (%)' if chart.share else '')
  if limits != chart.y_limits and not chart.log_y:
    label += ', cut'
  base = alt.Chart(
    drawing.table(drawing.records(rows)),
    description=formatting.printable(chart.caption),
  ).encode(
    x=alt.X(
      'x:Q',
      axis=_axis(chart.x_label, log=chart.log_x, whole=chart.whole_x),
      scale=_scale(chart.log_x, chart.x_limits),
    ),
    y=alt.Y(
      'y:Q',
      axis=_axis(label, log=chart.log_y),
      scale=_scale(chart.log_y, limits),
    ),
    detail='run:N',
    color=_looks(names, colours, alt.Color, legend),
  )
  shown: dict[str, Any] = {}
  if interactive:
    chosen = alt.selection_point(fields=['method'], bind='legend')
    # A page has to go on scrolling under the wheel and under a finger.
    zoom = alt.selection_interval(
      bind='scales',
      zoom='wheel![event.ctrlKey]',
      translate='[pointerdown[event.pointerType === "mouse"], window:pointerup]'
      ' > window:pointermove!',
    )
    shown = dict(
      opacity=alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.12))
    )
  layers = []
  if 'low' in rows:
    ends = base.transform_filter('isValid(datum.low)').encode(
      y=alt.Y('low:Q', title=''), y2='high:Q'
    )
    layers.append(
      ends.mark_errorbar(ticks=True, clip=True)
      if chart.bars
      else ends.mark_area(opacity=0.18, clip=True)
    )
  few = rows.groupby(['method', 'run']).size().max() <= _MARKED
  point = alt.OverlayMarkDef(size=22, filled=True) if few else False
  dashes = {m: styles.dash(m) for m in methods}
  layers.append(
    base.mark_line(clip=True, point=point).encode(
      strokeDash=_looks(names, dashes, alt.StrokeDash, legend), **shown
    )
  )
  if interactive:
    layers.append(
      base.mark_circle(opacity=0, size=150, clip=True)
      .encode(
        tooltip=[
          alt.Tooltip('method:N', title='Method'),
          alt.Tooltip('x:Q', title=sentence(chart.x_label), format=',.6~r'),
          *(
            # As it was before its end was cut.
            alt.Tooltip(
              f'{c}_told:Q' if f'{c}_told' in rows else f'{c}:Q',
              title=label if c == 'y' else c,
              format=',.4~r',
            )
            for c in ('y', 'low', 'high')
            if c in rows
          ),
        ]
      )
      .add_params(chosen, zoom)
    )
  return alt.layer(*layers).properties(width=width, height=_HEIGHT)


def _looks(
  names: Mapping[str, str], values: Mapping[str, Any], kind: Any, legend: Any
) -> Any:
  scale = alt.Scale(
    type='ordinal',
    domain=list(names.values()),
    range=[values[method] for method in names],
  )
  return kind('method:N', scale=scale, legend=legend)


def _rows(chart: Chart) -> tuple[pd.DataFrame, Limits]:
  """Returns the visible points, and the ends of the vertical axis."""
  rows = chart.data.copy()
  if 'run' not in rows:
    rows['run'] = rows['method']
  places = rows.groupby(['method', 'run'], sort=False).cumcount(ascending=False)
  sizes = rows.groupby(['method', 'run'], sort=False)['x'].transform('size')
  rows = rows[places % -(-sizes // _MOST_POINTS) == 0]
  heights = [c for c in ('y', 'low', 'high') if c in rows]
  factor = 100.0 if chart.share else 1.0
  rows[heights] = rows[heights].astype(float) * factor
  for column in ['x', *heights]:
    log = chart.log_x if column == 'x' else chart.log_y
    values = rows[column].astype(float)
    rows[column] = values.where(np.isfinite(values) & ~(log & (values <= 0)))
  low, high = (None if v is None else factor * v for v in chart.y_limits)
  limits = (low, high)
  if (low, high) == (None, None) and not chart.log_y:
    limits = low, high = _without_spikes(rows['y'])
    if low is not None and high is not None:
      # Renderers drop lines that end very far away.
      far = high - low
      rows = rows.assign(**{f'{c}_told': rows[c] for c in heights})
      rows[heights] = rows[heights].clip(low - far, high + far)
  return rows, limits


def _without_spikes(values: pd.Series) -> Limits:
  """Returns ends that cut a few values far off; (None, None) if none are."""
  ordered = values.dropna().sort_values().to_numpy()
  outer = max(1, len(ordered) // 20)
  if len(ordered) <= 2 * outer:
    return None, None
  inner = ordered[outer], ordered[-1 - outer]
  width = inner[1] - inner[0]
  if not 0 < _SPIKE * width < values.max() - values.min():
    return None, None
  low, high = (
    max(inner[0] - width, values.min()),
    min(inner[1] + width, values.max()),
  )
  low -= 0.03 * (high - low)
  return float(f'{low:.6g}'), float(f'{high:.6g}')


def _axis(
  label: str, *, log: bool = False, whole: bool = False, **more: Any
) -> Any:
  title = textwrap.wrap(formatting.printable(sentence(label)), _LABEL_WIDTH)
  # Lines of powers of ten are stronger than those between.
  power = 'log(datum.value) / LN10'
  if log:
    more['gridOpacity'] = {
      'condition': {
        'test': f'abs({power} - round({power})) < 1e-6',
        'value': 1,
      },
      'value': 0.3,
    }
  if whole:
    # Vega has ticks at halves where there are few whole numbers.
    whole_only = "datum.value % 1 ? '' : datum.label"
    more |= dict(format=',d', tickMinStep=1, labelExpr=whole_only)
  else:
    # Nor '3.4999999999999996e+27', which is how Vega writes some ticks.
    more.setdefault('format', ',.6~g')
  return alt.Axis(title=title, **more)


def _scale(logarithmic: bool, limits: Limits) -> Any:
  """Builds a scale that fits the data, except where it has a limit."""
  low, high = limits
  options: dict[str, Any] = dict(padding=6)
  if high is not None:
    options = dict(domain=[low, high])
  elif low is not None:
    options |= dict(domainMin=low)
  if logarithmic:
    return alt.Scale(type='log', nice=False, **options)
  return alt.Scale(zero=False, nice=False, **options)


def _heat_map(chart: HeatMap, width: Any) -> Any:
  """Draws values in cells; cells without a value show a cross."""
  factor, unit = (100.0, ' (%)') if chart.share else (1.0, '')
  data = factor * chart.data
  across, up = (_rates(list(axis)) for axis in (data.columns, data.index))
  rows = [
    {
      'x': across[j],
      'y': up[i],
      'rates': f'{x:.4g}, {y:.4g}',
      'value': data.iat[i, j] if math.isfinite(data.iat[i, j]) else None,
    }
    for i, y in enumerate(data.index)
    for j, x in enumerate(data.columns)
  ]
  label = sentence(chart.value_label) + unit
  base = alt.Chart(drawing.table(rows), description=chart.caption).encode(
    x=alt.X(
      'x:O',
      sort=across,
      axis=_axis(_log(chart.x_label, across), labelAngle=0, format=''),
    ),
    y=alt.Y(
      'y:O', sort=up[::-1], axis=_axis(_log(chart.y_label, up), format='')
    ),
    tooltip=[
      alt.Tooltip('rates:N', title='Client, server rate'),
      alt.Tooltip('value:Q', title=label, format='.4~r'),
    ],
  )
  full = base.transform_filter('isValid(datum.value)')
  return alt.layer(
    full.mark_rect(stroke='white').encode(
      color=alt.Color(
        'value:Q',
        scale=alt.Scale(scheme=drawing.COLOUR_MAP),
        legend=alt.Legend(title=textwrap.wrap(label, 16), format='.4~g'),
      )
    ),
    full.mark_text().encode(
      text=alt.Text('value:Q', format='.1f' if chart.share else '.3~g'),
      color=alt.when(
        alt.datum.value < float(np.nanmin(data) + np.nanmax(data)) / 2
      )
      .then(alt.value('white'))
      .otherwise(alt.value('black')),
    ),
    base.transform_filter('!isValid(datum.value)').mark_text(
      text='\N{MULTIPLICATION SIGN}', color='#888888'
    ),
  ).properties(
    width=width or _CELL[0] * len(across),
    height=_CELL[1] * len(up),
    title=formatting.printable(formatting.method(chart.method)),
  )


def _rates(rates: Sequence[float]) -> list[str]:
  """Formats rates as exponents of ten, if some are below 1, or as numbers."""
  halves = [2 * math.log10(rate) for rate in rates]
  if min(halves) > -1e-3 or any(abs(h - round(h)) > 2e-3 for h in halves):
    digits = 3 if len({f'{rate:.3g}' for rate in rates}) == len(rates) else 4
    return [f'{rate:.{digits}g}' for rate in rates]
  minus = '\N{MINUS SIGN}'
  return [f'{round(h) / 2:g}'.replace('-', minus) for h in halves]


def _log(label: str, shown: Sequence[str]) -> str:
  exponents = any('\N{MINUS SIGN}' in text for text in shown)
  return f'log10 of {label}' if exponents else label


def sentence(words: str) -> str:
  """Capitalizes the first letter."""
  return words[:1].upper() + words[1:]
