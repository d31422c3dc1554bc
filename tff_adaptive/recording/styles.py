"""Styles of figures, in one place so that a method looks alike in all.

Colours are Okabe and Ito's without yellow, which is hard to see on white, and
two of Tol's: told apart with any colour vision. Line styles and markers tell
the same without colour.
"""

import hashlib
from typing import Any

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
_LINES = ('-', '--', '-.', ':')
_MARKERS = (
  ('o', 's', '^', 'v', 'D', 'P', 'X'),
  ('<', '>', 'p', 'h', 'd', '*', '8'),
)
# The numbers of line styles and of markers have no common factor: 28 methods in
# a row differ without colour too, and the next 28 have markers of their own. So
# names are added at the end; one that is moved changes its looks.
_METHODS = (
  'fedavg',
  'fedavgm',
  'fedadagrad',
  'fedadam',
  'fedyogi',
  'fedams',
  'centralized',
  'delta_sgd',
  'fedsps',
  'feddecsps',
  'fedsps_normalized',
  'fedsps_global',
  'scaffold',
  'fedprox',
  'moon',
  # What is compared with each other most has colours of its own.
  'direct_joint',
  'joint_zero_init',
  'fedada2',
  'fedada2_blended',
  'mime',
  'mimelite',
  'local_adaalter',
  'local_amsgrad',
  'fedexp',
  'fednova',
  'fedcm',
  'feddyn',
  'fedsam',
  'fedlesam',
  'fedmuon',
  'fedadamw',
  'fedcams',
)
# The splits of one run.
TRAIN = dict(color=_COLOURS[0], linestyle='-', linewidth=1.2)
VALIDATION = dict(color=_COLOURS[1], linestyle='--', marker='o', markersize=3)
STEP_SIZE = dict(color=_COLOURS[2], linestyle='-.', linewidth=1.2)
# Of numbers: its lightness rises with the value, so that it prints in grey.
COLOUR_MAP = 'cividis'


def of_method(name: str) -> dict[str, Any]:
  """Returns colour, line style and marker of a method for matplotlib.

  A method with another client than its own, as in 'fedadam + delta_sgd', has
  the method's colour, with a line and a marker that the client decides.
  """
  base, _, other = name.partition(' ')
  if base in _METHODS:
    index = _METHODS.index(base)
  else:
    index = _digest(base)
  shift = _digest(other) if other else 0
  markers = _MARKERS[index // 28 % len(_MARKERS)]
  return dict(
    color=_COLOURS[index % len(_COLOURS)],
    linestyle=_LINES[(index + shift) % len(_LINES)],
    marker=markers[(index + shift) % len(markers)],
    markersize=4,
    linewidth=1.4,
  )


def _digest(text: str) -> int:
  return hashlib.blake2b(text.encode('utf-8'), digest_size=2).digest()[0] + 1
