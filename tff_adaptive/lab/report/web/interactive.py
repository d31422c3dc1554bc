"""Charts for the page, drawn by Plotly in the reader's browser."""

import html
import json
import math
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Optional

from plotly import graph_objects

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import charts

_DASHES = {'-': 'solid', '--': 'dash', '-.': 'dashdot', ':': 'dot'}
_SYMBOLS = {
  'o': 'circle',
  's': 'square',
  '^': 'triangle-up',
  'v': 'triangle-down',
  'D': 'diamond',
  'P': 'cross',
  'X': 'x',
  '<': 'triangle-left',
  '>': 'triangle-right',
  'p': 'pentagon',
  'h': 'hexagon',
  'd': 'diamond-tall',
  '*': 'star',
  '8': 'octagon',
}
# The opacity of bands, the last two digits of #rrggbbaa.
_FAINT = '2E'
# A screen cannot resolve more points of a line than this.
_MOST_POINTS = 600
_HEIGHT = 380
_ROW = 44
_AROUND = 140


def draw(chart: charts.Figure) -> dict[str, Any]:
  """Builds Plotly's JSON description of a chart.

  Colours are those of the light theme; `page.js` replaces them in the dark one.
  """
  if isinstance(chart, charts.HeatMap):
    figure = _draw_heat_map(chart)
  else:
    figure = _draw_lines(chart)
  # Its own template would be the longest part of every figure.
  figure.update_layout(template='none')
  result: dict[str, Any] = json.loads(figure.to_json())
  result['layout'].pop('template', None)
  return result


def key(method: str) -> str:
  """Renders the legend entry of a method as SVG."""
  style = styles.of_method(method)
  dashes = {'-': '', '--': '6 3', '-.': '7 2 2 2', ':': '2 2'}
  return (
    '<svg width="30" height="12" viewBox="0 0 30 12" aria-hidden="true">'
    f'<path d="M0 6H30" stroke-dasharray="{dashes[style["linestyle"]]}"/>'
    f'{_SHAPES[style["marker"]]}</svg>'
  )


def _polygon(corners: int, turn: float = 0.0, inner: float = 1.0) -> str:
  """Renders a polygon, or a star if `inner` is below 1, as SVG."""
  count = corners if inner == 1.0 else 2 * corners
  points = []
  for number in range(count):
    angle = 2 * math.pi * (number + turn) / count - math.pi / 2
    radius = 4.2 * (inner if number % 2 and inner != 1.0 else 1.0)
    x, y = 15 + radius * math.cos(angle), 6 + radius * math.sin(angle)
    points.append(f'{x:.1f},{y:.1f}')
  return f'<polygon points="{" ".join(points)}"/>'


_SHAPES = {
  'o': '<circle cx="15" cy="6" r="3.4"/>',
  's': _polygon(4, 0.5),
  '^': _polygon(3),
  'v': _polygon(3, 1.5),
  'D': _polygon(4),
  'P': _polygon(4, 0.0, 0.45),
  'X': _polygon(4, 1.0, 0.45),
  '<': _polygon(3, 2.25),
  '>': _polygon(3, 0.75),
  'p': _polygon(5),
  'h': _polygon(6),
  'd': '<polygon points="15,1.4 17.6,6 15,10.6 12.4,6"/>',
  '*': _polygon(5, 0.0, 0.45),
  '8': _polygon(8, 0.5),
}


def _text(words: str) -> str:
  """Escapes text for Plotly, which interprets some HTML and templates."""
  return html.escape(formatting.printable(words)).replace('%{', '%&#123;')


def _values(numbers: Iterable[float]) -> list[Optional[float]]:
  """Rounds numbers to visible precision; non-finite ones become gaps."""
  return [float(f'{v:.5g}') if math.isfinite(v) else None for v in numbers]


def _chosen(points: int) -> list[int]:
  """Returns the indices of the points to show, including the last."""
  step = -(-points // _MOST_POINTS)
  return list(range((points - 1) % step, points, step)) if points else []


def _draw_lines(chart: charts.Chart) -> graph_objects.Figure:
  figure = graph_objects.Figure()
  places = len(chart.methods)
  for place, line in chart.drawn():
    for trace in _traces(chart, line, place, places):
      figure.add_trace(trace)
  figure.update_layout(
    height=_HEIGHT,
    margin=dict(l=10, r=14, t=30, b=10),
    showlegend=False,
    hovermode='closest',
  )
  figure.update_xaxes(title_text=_text(chart.x_label), automargin=True)
  figure.update_yaxes(title_text=_text(chart.y_label), automargin=True)
  if chart.whole_x:
    figure.update_xaxes(tickformat=',d')
  for axis, logarithmic, (low, high) in (
    ('xaxis', chart.log_x, chart.x_limits),
    ('yaxis', chart.log_y, chart.y_limits),
  ):
    if logarithmic:
      # Powers of ten, and nothing between them that fills the axis.
      figure.update_layout({axis: dict(type='log', dtick=1)})
    elif low is not None and high is not None:
      figure.update_layout({axis: dict(range=[low, high])})
    elif low is not None:
      figure.update_layout({axis: dict(rangemode='tozero')})
  return figure


def _traces(
  chart: charts.Chart, line: charts.Line, place: int, places: int
) -> list[graph_objects.Scatter]:
  """Builds the traces of a line: its interval, the line and its markers.

  `meta` holds the method, for the page's script.
  """
  style = line.style
  chosen = _chosen(len(line.x))
  x = [float(f'{line.x[i]:.7g}') for i in chosen]
  y = _values(line.y[i] for i in chosen)
  shared = dict(meta=line.method, hoverinfo='skip')
  traces = []
  low, high = (
    None if ends is None else _values(ends[i] for i in chosen)
    for ends in (line.low, line.high)
  )
  if low and high and not chart.bars:
    both = [
      (at, a, b)
      for at, a, b in zip(x, low, high, strict=True)
      if a is not None and b is not None
    ]
    traces.append(
      graph_objects.Scatter(
        x=[at for at, _, _ in both] + [at for at, _, _ in reversed(both)],
        y=[b for _, _, b in both] + [a for _, a, _ in reversed(both)],
        mode='lines',
        line=dict(width=0, color=style['color']),
        fill='toself',
        fillcolor=style['color'] + _FAINT,
        **shared,
      )
    )
  marked = styles.marked(len(x), place, places)
  bars = None
  if chart.bars and line.low is not None and line.high is not None:
    bars = dict(
      type='data',
      symmetric=False,
      array=_values(line.high[i] - line.y[i] for i in chosen),
      arrayminus=_values(line.y[i] - line.low[i] for i in chosen),
    )
  traces.append(
    graph_objects.Scatter(
      x=x,
      y=y,
      mode='lines',
      line=dict(
        color=style['color'],
        dash=_DASHES[style['linestyle']],
        width=1.4 if line.thin else 2,
      ),
      error_y=bars,
      customdata=_intervals(low, high),
      hovertemplate=_hover(chart, line, bool(low and high)),
      meta=line.method,
    )
  )
  traces.append(
    graph_objects.Scatter(
      x=[x[i] for i in marked],
      y=[y[i] for i in marked],
      mode='markers',
      marker=dict(
        color=style['color'],
        symbol=_SYMBOLS[style['marker']],
        size=(1.4 if line.thin else 1.8) * style['markersize'],
      ),
      **shared,
    )
  )
  return traces


def _intervals(
  low: Optional[Sequence[Optional[float]]],
  high: Optional[Sequence[Optional[float]]],
) -> Optional[list[list[Optional[float]]]]:
  if not low or not high:
    return None
  return [[a, b] for a, b in zip(low, high, strict=True)]


def _hover(chart: charts.Chart, line: charts.Line, interval: bool) -> str:
  """Renders the text shown at the point under the mouse."""
  of = '' if line.seed is None else f', seed {line.seed}'
  lines = [
    f'<b>{_text(line.method)}</b>{_text(of)}',
    f'{_text(chart.x_label)}: %{{x:,}}',
    f'{_text(chart.y_label)}: %{{y:.4~g}}',
  ]
  if interval:
    lines.append('%{customdata[0]:.4~g} to %{customdata[1]:.4~g}')
  return '<br>'.join(lines) + '<extra></extra>'


def _draw_heat_map(chart: charts.HeatMap) -> graph_objects.Figure:
  """Draws values in cells; cells without a value show a cross."""
  values = [_values(row) for row in chart.values]
  across, up = ([_rate(v) for v in axis] for axis in (chart.x, chart.y))
  places, rows = list(range(len(across))), list(range(len(up)))
  empty = [
    (j, i)
    for i, row in enumerate(values)
    for j, value in enumerate(row)
    if value is None
  ]
  figure = graph_objects.Figure(
    [
      graph_objects.Heatmap(
        x=places,
        y=rows,
        z=values,
        customdata=[[f'{x:.4g}, {y:.4g}' for x in chart.x] for y in chart.y],
        colorscale=styles.COLOUR_MAP,
        texttemplate=f'%{{z:{chart.form.replace("g", "~g")}}}',
        xgap=1,
        ygap=1,
        colorbar=dict(thickness=12, outlinewidth=0),
        hoverongaps=False,
        hovertemplate='client, server rate: %{customdata}<br>'
        + _text(chart.value_label)
        + ': %{z:.4~g}<extra></extra>',
        meta=chart.method,
      ),
      graph_objects.Scatter(
        x=[j for j, _ in empty],
        y=[i for _, i in empty],
        mode='markers',
        marker=dict(symbol='x-thin-open', size=8, color='#888888'),
        hoverinfo='skip',
        meta=chart.method,
      ),
    ]
  )
  figure.update_layout(
    height=_AROUND + _ROW * len(up),
    margin=dict(l=10, r=10, t=30, b=10),
    showlegend=False,
    title=None,
  )
  for update, label, texts in (
    (figure.update_xaxes, chart.x_label, across),
    (figure.update_yaxes, chart.y_label, up),
  ):
    update(
      title_text=_text(label),
      tickvals=list(range(len(texts))),
      ticktext=texts,
      showgrid=False,
      zeroline=False,
      range=[-0.5, len(texts) - 0.5],
      automargin=True,
    )
  return figure


def _rate(value: float) -> str:
  exponent = charts.power(value)
  if exponent is None:
    return f'{value:.3g}'
  return f'10<sup>{exponent.replace("-", chr(0x2212))}</sup>'
