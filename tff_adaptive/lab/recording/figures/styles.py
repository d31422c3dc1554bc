"""Colours and dashes of methods, the same in all figures.

Colours are Okabe and Ito's without yellow, which has low contrast on white, and
two of Tol's; they are distinguishable with any colour vision.
"""

import zlib
from collections.abc import Sequence

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
# Number of methods that have a colour of their own.
MOST = len(_COLOURS)
# The colour of methods in the background.
GREY = '#B4B4B4'
# Lengths of strokes and gaps, in pixels.
_DASHES = ((1, 0), (7, 3), (8, 3, 2, 3), (2, 2))
# Lines of a single run's figures.
OF_A_RUN = (
  'train',
  'validation',
  'step size',
  'cosine of update and mean update',
  'cosine of two updates',
  'cosine of mean update and the last',
)


def _place(method: str) -> int:
  """Returns a method's number, which decides how it looks."""
  if method in OF_A_RUN:
    return OF_A_RUN.index(method)
  base, _, other = method.partition(' ')
  row = methods.table().get(base)
  look = None if row is None else row.look
  number = zlib.crc32(base.encode('utf-8', 'replace')) if look is None else look
  if not other:
    return number
  # A method with other optimizers than its own has its colour, dashed.
  shift = 1 + zlib.crc32(other.encode('utf-8', 'replace')) % (len(_DASHES) - 1)
  return number + len(_COLOURS) * shift


def colour(method: str) -> str:
  """Returns the colour of a method, as #rrggbb."""
  return _COLOURS[_place(method) % len(_COLOURS)]


def dash(method: str) -> tuple[int, ...]:
  """Returns the dash of a method: lengths of strokes and gaps in turn."""
  return _DASHES[_place(method) % len(_DASHES)]


def colours(methods: Sequence[str]) -> dict[str, str]:
  """Assigns every method a colour of its own.

  A method gets its `colour` unless an earlier method has it, then the first
  free one; grey if there are more methods than colours.
  """
  result: dict[str, str] = {}
  for name in methods:
    if colour(name) not in result.values():
      result[name] = colour(name)
  free = [c for c in _COLOURS if c not in result.values()]
  for name in methods:
    if name not in result:
      result[name] = free.pop(0) if free else GREY
  return result
