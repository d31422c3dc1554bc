"""Styles of figures, which give a method the same look everywhere.

Colours are Okabe and Ito's without yellow, which has low contrast on white, and
two of Tol's; they are distinguishable with any colour vision. Dashes and
markers distinguish methods without colour. On a dark background every colour is
replaced by a lighter one.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple
from typing import Union

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
# Lengths of strokes and gaps, in pixels.
_DASHES = ((1, 0), (7, 3), (8, 3, 2, 3), (2, 2))
_SIZES = (7.5, 6.7, 5.9, 5.1)
# Largest number of markers per line; more would hide the line.
_MOST_MARKERS = 8


def _polygon(corners: int, turn: float = 0.0, inner: float = 1.0) -> str:
  """Renders a polygon as an SVG path within the unit circle.

  Args:
    corners: Number of outer corners.
    turn: Turn to the right, in angles between two corners.
    inner: Radius of the points between corners; a star if below 1.
  """
  count = corners if inner == 1.0 else 2 * corners
  points = []
  for number in range(count):
    angle = 2 * math.pi * (number + turn) / count - math.pi / 2
    radius = inner if number % 2 else 1.0
    points.append(
      f'{radius * math.cos(angle):.2f},{radius * math.sin(angle):.2f}'
    )
  return f'M{"L".join(points)}Z'


# The first seven are distinguishable at a glance.
_MARKERS = (
  (
    'M-.85,0A.85,.85 0 1 1 .85,0A.85,.85 0 1 1 -.85,0Z',
    _polygon(4, 0.5),
    _polygon(3),
    _polygon(3, 1.5),
    _polygon(4),
    _polygon(4, 0.0, 0.35),
    _polygon(4, 1.0, 0.35),
  ),
  (
    _polygon(3, 2.25),
    _polygon(3, 0.75),
    _polygon(5),
    _polygon(6),
    'M0,-1L.6,0L0,1L-.6,0Z',
    _polygon(5, 0.0, 0.4),
    _polygon(8, 0.5),
  ),
)


class Style(NamedTuple):
  """How a line is drawn.

  Attributes:
    colour: Its colour, as #rrggbb.
    dash: Lengths of strokes and gaps in turn, in pixels.
    marker: Its marker as an SVG path within the unit circle.
    size: The marker's diameter in pixels.
  """

  colour: str
  dash: tuple[int, ...]
  marker: str
  size: float


def of_method(name: Union[str, int]) -> Style:
  """Returns the style of a method, or of a line by its number.

  A method with a client optimizer other than its own, as in 'fedadam +
  delta_sgd', has the method's colour, and a dash and a marker determined by the
  client. The numbers of dashes and of markers are coprime: methods whose `look`
  differs by less than 28 are distinguishable without colour.
  """
  shift = 0
  if isinstance(name, int):
    index = name
  else:
    base, _, other = name.partition(' ')
    method = methods.table().get(base)
    index = _digest(base)
    if method is not None and method.look is not None:
      index = method.look
    shift = _digest(other) if other else 0
  markers = _MARKERS[index // 28 % len(_MARKERS)]
  line = (index + shift) % len(_DASHES)
  return Style(
    _COLOURS[index % len(_COLOURS)],
    _DASHES[line],
    markers[(index + shift) % len(markers)],
    # At the same point, larger markers below remain visible.
    _SIZES[line],
  )


def colours(methods: Sequence[str]) -> dict[str, str]:
  """Assigns every method a colour of its own.

  A method gets the colour of `of_method` unless an earlier method has it, then
  the first free one; grey if there are more methods than colours.
  """
  own = {name: of_method(name).colour for name in methods}
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


def layer(name: Union[str, int]) -> int:
  """Returns the drawing layer of a line; lines with gaps on top."""
  return _DASHES.index(of_method(name).dash)


def _digest(text: str) -> int:
  return hashlib.blake2b(text.encode('utf-8'), digest_size=2).digest()[0] + 1
