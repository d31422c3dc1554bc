"""Styles of figures, in one place so that a method looks alike in all.

Colours are Okabe and Ito's without yellow, which is hard to see on white, and
two of Tol's: told apart with any colour vision. Line styles and markers tell
the same without colour. On a dark page every colour has a lighter twin.
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
# Of the methods that are not told apart, and the same on a dark background.
GREY = '#B4B4B4'
DARK[GREY] = '#5F666E'
_LINES = ('-', '--', '-.', ':')
_SIZES = (5.6, 5.0, 4.4, 3.8)
_MARKERS = (
  ('o', 's', '^', 'v', 'D', 'P', 'X'),
  ('<', '>', 'p', 'h', 'd', '*', '8'),
)
# How many markers a line has at most: more would hide it.
_MOST_MARKERS = 8
# What figures for papers have in common: no text is smaller than the axes'.
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
  # The same data give the same file.
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
# Of numbers: its lightness rises with the value, so that it prints in grey.
COLOUR_MAP = 'cividis'


def of_method(name: str) -> dict[str, Any]:
  """Returns colour, line style and marker of a method for matplotlib.

  A method with another client than its own, as in 'fedadam + delta_sgd', has
  the method's colour, with a line and a marker that the client decides. The
  numbers of line styles and of markers have no common factor: methods whose
  looks are within 28 of each other differ without colour too.
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
    # Of markers at the same points those below show around those above.
    markersize=_SIZES[(index + shift) % len(_LINES)],
    linewidth=1.4,
  )


def colours(methods: Sequence[str]) -> dict[str, str]:
  """Gives every method a colour of its own.

  That of `of_method` where no method before it has that, and otherwise the
  first that is free; grey if there are more methods than colours.
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

  Lines that lie on each other have their markers at different points.

  Args:
    points: How many the line has.
    place: Which of the lines it is, from 0.
    places: How many lines there are.
  """
  step = max(1, -(-points // _MOST_MARKERS))
  return list(range(place * step // max(places, 1) % step, points, step))


def layer(name: str) -> int:
  """Returns on which layer a method's line is: those with gaps are above."""
  return _LINES.index(of_method(name)['linestyle'])


def count(axis: Any) -> None:
  """Lets an axis of matplotlib's count: whole numbers, such as 10, 20, 30."""
  from matplotlib import ticker  # pylint: disable=g-import-not-at-top

  axis.set_major_locator(
    ticker.MaxNLocator('auto', integer=True, steps=[1, 2, 5, 10])
  )


def add_legend(
  figure: Any, panels: Sequence[Any], order: Sequence[str] = ()
) -> None:
  """Adds a legend below a matplotlib figure, which grows by its height.

  There the legend covers no line, and panels keep their height.

  Args:
    figure: matplotlib's.
    panels: Those whose lines are named, each name once.
    order: The names in the order of the legend; as drawn unless given.
  """
  handles: dict[str, Any] = {}
  for panel in panels:
    for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  if not handles:
    return
  handles = {n: handles[n] for n in (*order, *handles) if n in handles}
  # A letter is about half as wide as high, and the line and gaps take three.
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
    # Names may have dollar signs, which stand for mathematics otherwise.
    text.set_parse_math(False)


def _digest(text: str) -> int:
  return hashlib.blake2b(text.encode('utf-8'), digest_size=2).digest()[0] + 1
