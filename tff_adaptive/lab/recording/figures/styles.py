"""Styles of figures, which give a method the same look everywhere.

Colours are Okabe and Ito's without yellow, which has low contrast on white, and
two of Tol's; they are distinguishable with any colour vision. Line styles and
markers distinguish methods without colour. On a dark background every colour is
replaced by a lighter one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from tff_adaptive.algorithms import methods

_COLOURS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#E69F00',
  '#56B4E9',
  '#000000',
  '#882255',
  '#999933',
)
# The same colours on a dark background.
DARK = dict(
  zip(
    _COLOURS,
    (
      '#5B9BFF',
      '#F47B43',
      '#2CC295',
      '#E39AC6',
      '#F2B134',
      '#8AD4FF',
      '#F4F4F4',
      '#D8527F',
      '#C6C65E',
    ),
    strict=True,
  )
)
# The colour of methods without one of their own, also on a dark background.
GREY = '#B4B4B4'
DARK[GREY] = '#5F666E'
_LINES = ('-', '--', '-.', ':')
_SIZES = (5.6, 5.0, 4.4, 3.8)
_MARKERS = (
  ('o', 's', '^', 'v', 'D', 'P', 'X'),
  ('<', '>', 'p', 'h', 'd', '*', '8'),
)
# Largest number of markers per line; more would hide the line.
_MOST_MARKERS = 8
# Common settings of figures for papers: all text has the same size.
FONT_SIZE = 9
RC = {
  'font.size': FONT_SIZE,
  **dict.fromkeys(
    (
      'axes.labelsize',
      'axes.titlesize',
      'figure.titlesize',
      'legend.fontsize',
      'xtick.labelsize',
      'ytick.labelsize',
    ),
    FONT_SIZE,
  ),
  'axes.grid': True,
  'grid.alpha': 0.3,
  'legend.frameon': False,
  # Makes files deterministic.
  'svg.hashsalt': 'report',
}
# The splits of one run.
TRAIN = dict(color=_COLOURS[0], linestyle='-', linewidth=1.2)
VALIDATION = dict(color=_COLOURS[1], linestyle='--', marker='o', markersize=3)
STEP_SIZE = dict(color=_COLOURS[2], linestyle='-.', linewidth=1.2)
DRIFT = tuple(
  dict(color=_COLOURS[place], linestyle=line, linewidth=1.2)
  for place, line in ((3, '-'), (4, '--'), (5, '-.'))
)
# Its lightness increases with the value, so that it prints well in grey.
COLOUR_MAP = 'cividis'


def of_method(name: str) -> dict[str, Any]:
  """Returns colour, line style and marker of a method for matplotlib.

  A method with a client optimizer other than its own, as in 'fedadam +
  delta_sgd', has the method's colour and a line style and marker determined by
  the client. The numbers of line styles and of markers are coprime: methods
  whose `look` differs by less than 28 are distinguishable without colour.
  """
  base, _, other = name.partition(' ')
  method = methods.table().get(base)
  index = _digest(base)
  if method is not None and method.look is not None:
    index = method.look
  shift = _digest(other) if other else 0
  markers = _MARKERS[index // 28 % len(_MARKERS)]
  return dict(
    color=_COLOURS[index % len(_COLOURS)],
    linestyle=_LINES[(index + shift) % len(_LINES)],
    marker=markers[(index + shift) % len(markers)],
    # At the same point, larger markers below remain visible.
    markersize=_SIZES[(index + shift) % len(_LINES)],
    linewidth=1.4,
  )


def colours(methods: Sequence[str]) -> dict[str, str]:
  """Assigns every method a colour of its own.

  A method gets the colour of `of_method` unless an earlier method has it, then
  the first free one; grey if there are more methods than colours.
  """
  own = {name: of_method(name)['color'] for name in methods}
  result: dict[str, str] = {}
  for name, colour in own.items():
    if colour not in result.values():
      result[name] = colour
  free = [colour for colour in _COLOURS if colour not in result.values()]
  for name in own:
    if name not in result:
      result[name] = free.pop(0) if free else GREY
  return result


def marked(points: int, place: int, places: int) -> list[int]:
  """Chooses the points of a line that have a marker.

  Coinciding lines have markers at different points.

  Args:
    points: Number of the line's points.
    place: Index of the line, from 0.
    places: Number of lines.
  """
  step = max(1, -(-points // _MOST_MARKERS))
  return list(range(place * step // max(places, 1) % step, points, step))


def layer(name: str) -> int:
  """Returns the drawing layer of a method's line; lines with gaps on top."""
  return _LINES.index(of_method(name)['linestyle'])


def count(axis: Any) -> None:
  """Makes a matplotlib axis show round integers, such as 10, 20, 30."""
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  axis.set_major_locator(
    ticker.MaxNLocator('auto', integer=True, steps=[1, 2, 5, 10])
  )


def add_legend(
  figure: Any, panels: Sequence[Any], order: Sequence[str] = ()
) -> None:
  """Adds a legend below a matplotlib figure, enlarging the figure.

  The legend covers no line, and panels keep their height.

  Args:
    figure: The matplotlib figure.
    panels: The axes whose lines are named, each name once.
    order: Names in the order of the legend; in drawing order unless given.
  """
  handles: dict[str, Any] = {}
  for panel in panels:
    for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  if not handles:
    return
  handles = {n: handles[n] for n in (*order, *handles) if n in handles}
  # A letter is about half as wide as high; line and gaps add a fixed width.
  inches = FONT_SIZE / 72
  width = (0.55 * max(map(len, handles)) + 4.5) * inches
  columns = max(1, min(len(handles), int(figure.get_figwidth() / width)))
  rows = -(-len(handles) // columns)
  figure.set_figheight(figure.get_figheight() + (1.5 * rows + 1) * inches)
  legend = figure.legend(
    handles.values(),
    handles.keys(),
    loc='outside lower center',
    handlelength=3,
    ncols=columns,
  )
  for text in legend.get_texts():
    # Names may contain dollar signs, which matplotlib would parse as math.
    text.set_parse_math(False)


def _digest(text: str) -> int:
  return hashlib.blake2b(text.encode('utf-8'), digest_size=2).digest()[0] + 1
