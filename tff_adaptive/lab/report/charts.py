"""The content of figures, apart from how it is drawn.

`static` draws a chart for papers and `interactive` for the page: both show the
same lines, axes and words.
"""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import Union

import numpy as np

from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.recording.figures import styles

# Of more methods than this nothing is said one by one.
_MOST_LISTED = 10


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of a chart.

  Attributes:
    method: Whose it is: decides its looks and its entry in the legend.
    x: Where its points are.
    y: Their values; those that are not finite are gaps.
    low: Lower end of an interval at every point, if there is one.
    high: Upper end.
    seed: The one seed that it is of, if it stands for no others.
    thin: Whether it is one of several of its method.
    like: The method whose looks it has; its own unless given.
    colour: Its colour, as #rrggbb; that of its looks unless given.
  """

  method: str
  x: Sequence[float]
  y: Sequence[float]
  low: Optional[Sequence[float]] = None
  high: Optional[Sequence[float]] = None
  seed: Optional[int] = None
  thin: bool = False
  like: str = ''
  colour: str = ''

  @property
  def style(self) -> dict[str, Any]:
    """Its colour, line style and marker, as matplotlib has them."""
    style = styles.of_method(self.looks)
    return {**style, 'color': self.colour or style['color']}

  @property
  def looks(self) -> str:
    """Names the method that `styles` knows the looks of."""
    return self.like or self.method


@dataclasses.dataclass(frozen=True)
class Chart:
  """One panel with lines.

  Attributes:
    name: Of its files.
    title: Its heading, which several charts may share.
    caption: What it shows, also for those who cannot see it.
    x_label: Below the horizontal axis.
    y_label: Beside the vertical axis.
    lines: What is drawn.
    log_x: Whether the horizontal axis is logarithmic.
    log_y: Whether the vertical axis is.
    whole_x: Whether the horizontal axis counts something.
    plain_x: Whether its numbers are written out, not as powers of ten.
    x_limits: Ends of the horizontal axis; `None` where the data decide.
    y_limits: The same of the vertical axis.
    bars: Whether intervals are bars at the points instead of bands.
    share: Whether the vertical axis is of shares, to be shown in percent.
  """

  name: str
  title: str
  caption: str
  x_label: str
  y_label: str
  lines: Sequence[Line]
  log_x: bool = False
  log_y: bool = False
  whole_x: bool = False
  plain_x: bool = False
  x_limits: tuple[Optional[float], Optional[float]] = (None, None)
  y_limits: tuple[Optional[float], Optional[float]] = (None, None)
  bars: bool = False
  share: bool = False

  @property
  def methods(self) -> list[str]:
    """Lists the methods that have lines, each once."""
    return list(dict.fromkeys(line.method for line in self.lines))

  def drawn(self) -> list[tuple[int, Line]]:
    """Lists places of methods and lines; those with gaps lie on the others."""
    places = {method: place for place, method in enumerate(self.methods)}
    return [
      (places[line.method], line)
      for line in sorted(
        self.lines,
        # What is grey is below all others.
        key=lambda one: (one.colour != styles.GREY, styles.layer(one.looks)),
      )
    ]


@dataclasses.dataclass(frozen=True)
class HeatMap:
  """Numbers over two axes of rates.

  Attributes:
    name: Of its files.
    title: Its heading.
    caption: What it shows.
    method: Whose numbers they are.
    x_label: Below the horizontal axis.
    y_label: Beside the vertical axis.
    value_label: What the numbers are.
    x: Rates of the columns.
    y: Rates of the rows, from below.
    values: A row of numbers for every y; not finite where there is none.
    share: Whether they are shares, to be shown in percent.
    form: How they are written, as `format` takes it.
  """

  name: str
  title: str
  caption: str
  method: str
  x_label: str
  y_label: str
  value_label: str
  x: Sequence[float]
  y: Sequence[float]
  values: np.ndarray
  share: bool = False
  form: str = '.3g'


Figure = Union[Chart, HeatMap]


def printed(chart: Figure, colours: Mapping[str, str]) -> Figure:
  """Returns a chart with names, labels and units as papers print them.

  Args:
    chart: With methods as users type them.
    colours: Of the methods that have one; the others are grey.
  """
  factor = 100.0 if chart.share else 1.0
  unit = ' (%)' if chart.share else ''
  if isinstance(chart, HeatMap):
    return dataclasses.replace(
      chart,
      method=printed_names.method(chart.method),
      x_label=sentence(chart.x_label),
      y_label=sentence(chart.y_label),
      value_label=sentence(chart.value_label) + unit,
      values=factor * chart.values,
      form='.1f' if chart.share else chart.form,
    )
  names = printed_names.methods(chart.methods)

  def scaled(values: Sequence[float]) -> list[float]:
    return [factor * v for v in values]

  lines = []
  for line in chart.lines:
    colour = colours.get(line.method, styles.GREY)
    # What is grey stays in the background.
    plain = colour == styles.GREY
    lines.append(
      dataclasses.replace(
        line,
        method=names[line.method],
        y=scaled(line.y),
        low=None if line.low is None or plain else scaled(line.low),
        high=None if line.high is None or plain else scaled(line.high),
        thin=line.thin or plain,
        like=line.looks,
        colour=colour,
      )
    )
  low, high = (None if v is None else factor * v for v in chart.y_limits)
  return dataclasses.replace(
    chart,
    x_label=sentence(chart.x_label),
    y_label=sentence(chart.y_label) + unit,
    y_limits=(low, high),
    lines=lines,
  )


def power(value: float) -> Optional[str]:
  """Returns the exponent of a rate that is a power of ten, or half of one."""
  exponent = math.log10(value)
  nearest = round(2 * exponent) / 2
  if abs(exponent - nearest) >= 1e-3:
    return None
  return f'{nearest:.0f}' if nearest == round(nearest) else f'{nearest:.1f}'


def coinciding(lines: Sequence[Line], share: float = 0.02) -> list[list[str]]:
  """Groups the methods whose lines lie on each other.

  Args:
    lines: Of a chart; of several lines of a method the first counts.
    share: How far apart lines may be everywhere, as a share of all heights.
  """
  first: dict[str, Line] = {}
  for line in lines:
    first.setdefault(line.method, line)
  heights = [v for line in lines for v in line.y if math.isfinite(v)]
  if not heights:
    return []
  near = share * (max(heights) - min(heights))
  groups: list[list[str]] = []
  for method, line in first.items():
    for group in groups:
      if _near(first[group[0]], line, near):
        group.append(method)
        break
    else:
      groups.append([method])
  return [group for group in groups if len(group) > 1]


def _near(one: Line, other: Line, distance: float) -> bool:
  if not np.array_equal(one.x, other.x):
    return False
  a, b = np.asarray(one.y, float), np.asarray(other.y, float)
  return bool(np.allclose(a, b, rtol=0, atol=distance, equal_nan=True))


def limits(lines: Sequence[Line]) -> tuple[float, float]:
  """Returns the ends of an axis that has room for lines and their bands."""
  drawn = [ys for line in lines for ys in (line.y, line.low, line.high)]
  values = [v for ys in drawn for v in (ys or ()) if math.isfinite(v)]
  margin = 0.05 * ((max(values) - min(values)) or abs(values[0]) or 1.0)
  return min(values) - margin, max(values) + margin


def together(lines: Sequence[Line]) -> str:
  """Says which methods' lines lie on each other, if any do.

  Of many methods several always do, and a list would say little.
  """
  groups = coinciding(lines)
  if not groups or len({line.method for line in lines}) > _MOST_LISTED:
    return ''
  sentences = ' '.join(
    f'{_listed([printed_names.method(m) for m in group])} lie on each other.'
    for group in groups
  )
  return f' {sentences}'


def sentence(words: str) -> str:
  """Writes words as the begin of a sentence."""
  return words[:1].upper() + words[1:]


def _listed(names: Sequence[str]) -> str:
  """Lists two or more names in words."""
  return f'{", ".join(names[:-1])} and {names[-1]}'
