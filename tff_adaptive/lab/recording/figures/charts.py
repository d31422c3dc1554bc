"""The content of figures, independent of how they are drawn."""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional
from typing import Union

import numpy as np

from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.recording.figures import styles

# Ends of an axis; `None` to fit the data.
Limits = tuple[Optional[float], Optional[float]]
# Captions list methods up to this many.
_MOST_LISTED = 10


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of a chart.

  Attributes:
    method: The method; determines the style and the entry in the legend.
    x: Horizontal positions of the points.
    y: Values; non-finite values are gaps.
    low: Lower ends of the intervals, one per point, if any.
    high: Upper ends.
    seed: The seed of the run, if the line is of a single run.
    thin: Whether the line is one of several of its method.
    like: The method, or the number, whose style it has; `method` unless given.
    colour: The colour as #rrggbb; that of the style if empty.
  """

  method: str
  x: Sequence[float]
  y: Sequence[float]
  low: Optional[Sequence[float]] = None
  high: Optional[Sequence[float]] = None
  seed: Optional[int] = None
  thin: bool = False
  like: Union[str, int, None] = None
  colour: str = ''

  @property
  def style(self) -> styles.Style:
    """The colour, dash and marker."""
    style = styles.of_method(self.looks)
    return style._replace(colour=self.colour or style.colour)

  @property
  def looks(self) -> Union[str, int]:
    """The method, or the number, whose style the line has."""
    return self.method if self.like is None else self.like


@dataclasses.dataclass(frozen=True)
class Chart:
  """One panel with lines.

  Attributes:
    name: Base name of its files.
    title: Its heading, which several charts may share.
    caption: A description of its content, also used as alternative text.
    x_label: Label of the horizontal axis.
    y_label: Label of the vertical axis.
    lines: The lines.
    log_x: Whether the horizontal axis is logarithmic.
    log_y: Whether the vertical axis is logarithmic.
    whole_x: Whether the horizontal axis shows integers only.
    plain_x: Whether horizontal ticks are written out, not as powers of ten.
    x_limits: Ends of the horizontal axis; `None` to fit the data.
    y_limits: Ends of the vertical axis; `None` to fit the data.
    bars: Whether intervals are drawn as error bars instead of bands.
    share: Whether the vertical axis shows fractions, to be printed in percent.
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
  x_limits: Limits = (None, None)
  y_limits: Limits = (None, None)
  bars: bool = False
  share: bool = False

  @property
  def methods(self) -> list[str]:
    """Lists the methods that have lines, without repetition."""
    return list(dict.fromkeys(line.method for line in self.lines))

  def drawn(self) -> list[tuple[int, Line]]:
    """Returns the lines in drawing order, each with its method's index."""
    places = {method: place for place, method in enumerate(self.methods)}
    return [
      (places[line.method], line)
      for line in sorted(
        self.lines,
        # Grey lines are drawn below all others.
        key=lambda one: (one.colour != styles.GREY, styles.layer(one.looks)),
      )
    ]


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
    x: Rates of the columns.
    y: Rates of the rows, from the bottom.
    values: Array of shape [len(y), len(x)]; non-finite where there is no value.
    share: Whether values are fractions, to be printed in percent.
    form: Format specification of the values.
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
  """Returns a chart with names, labels and units as printed in papers.

  Args:
    chart: A chart with methods as users type them.
    colours: Colours by method; other methods are grey.
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
    # Grey lines stay in the background, without intervals.
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
  """Returns the exponent of a power of ten with a multiple of 1/2 as exponent.

  `None` for other numbers.
  """
  exponent = math.log10(value)
  nearest = round(2 * exponent) / 2
  if abs(exponent - nearest) >= 1e-3:
    return None
  return f'{nearest:.0f}' if nearest == round(nearest) else f'{nearest:.1f}'


def coinciding(lines: Sequence[Line], share: float = 0.02) -> list[list[str]]:
  """Groups the methods whose lines coincide.

  Args:
    lines: Lines of a chart; of several lines of a method the first is used.
    share: Largest distance of coinciding lines, relative to the range of all
      values.
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


def together(lines: Sequence[Line]) -> str:
  """Renders a sentence about methods whose lines coincide; empty if none do.

  Also empty for many methods, of which several always coincide.
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
  """Capitalizes the first letter."""
  return words[:1].upper() + words[1:]


def _listed(names: Sequence[str]) -> str:
  """Joins two or more names as an enumeration."""
  return f'{", ".join(names[:-1])} and {names[-1]}'
