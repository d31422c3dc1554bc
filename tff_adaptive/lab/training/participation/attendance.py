"""Availability of clients for sampling, by hour of the day or in blocks."""

import dataclasses
import math
import pathlib
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.training.participation import client_files

_HOURS = ('client', 'from', 'to')
_BLOCKS = ('client', 'block')


@dataclasses.dataclass(frozen=True)
class Attendance:
  """The clients that can be drawn in each round, in a repeating cycle.

  Attributes:
    windows: Indices of the available clients, int64, per window of the cycle.
    rounds_per_window: Number of rounds that a window lasts.
  """

  windows: Sequence[np.ndarray]
  rounds_per_window: int

  def places(self, number: int) -> np.ndarray:
    """Returns the indices of the clients that can be drawn in a round."""
    window = (number - 1) // self.rounds_per_window
    return self.windows[window % len(self.windows)]


def attendance_of(
  settings: settings_lib.Settings, client_ids: Sequence[str]
) -> Optional[Attendance]:
  """Reads --client_availability; `None` if all clients are always available.

  The file is CSV, with the columns client, from and to (hours of a day of
  `rounds_per_day` rounds; across midnight if `to` is less) or client and block
  (numbers from 0; blocks take turns of `rounds_per_block` rounds). A client may
  have several rows; one without rows is always available.

  Args:
    settings: The run's settings.
    client_ids: The training clients of its task.

  Raises:
    SettingsError: If the file cannot be used; names the line at fault.
  """
  if settings.client_availability is None:
    return None
  name = f'--client_availability={settings.client_availability}'
  columns: tuple[str, ...] = ()

  def check(found: Sequence[str]) -> None:
    nonlocal columns
    columns = tuple(found)
    if columns not in (_HOURS, _BLOCKS):
      raise errors.SettingsError(
        f'{name} must have the columns {", ".join(_HOURS)} or '
        f'{", ".join(_BLOCKS)}, got {", ".join(columns) or "none"}.'
      )
    unused = 'rounds_per_day' if columns == _BLOCKS else 'rounds_per_block'
    if getattr(settings, unused) is not None:
      raise errors.SettingsError(
        f'--{unused} would be ignored: {name} has the columns '
        f'{", ".join(columns)}.'
      )

  cells: dict[str, list[tuple[float, ...]]] = {}
  path = pathlib.Path(settings.client_availability)
  for line, row in client_files.read(name, path, client_ids, check):
    numbers = tuple(
      _number(line, column, row[column], whole=columns == _BLOCKS)
      for column in columns[1:]
    )
    if columns == _HOURS and numbers[0] == numbers[1]:
      raise errors.SettingsError(
        f'{line}: from and to are both {numbers[0]:g}; omit clients that are '
        'always available.'
      )
    cells.setdefault(row['client'], []).append(numbers)
  by_block = columns == _BLOCKS
  if not cells:
    raise errors.SettingsError(f'{name} has no rows.')
  if by_block:
    blocks = 1 + int(max(b for own in cells.values() for (b,) in own))
    moments = [float(block) for block in range(blocks)]
  else:
    day = settings.rounds_per_day or 24
    moments = [24 * r / day for r in range(day)]
  windows = [_there(moment, client_ids, cells) for moment in moments]
  if not any(len(window) for window in windows):
    raise errors.SettingsError(
      f'{name} makes no client available in any round.'
    )
  return Attendance(
    windows, (settings.rounds_per_block or 1) if by_block else 1
  )


def _number(line: str, column: str, text: str, whole: bool) -> float:
  """Parses an hour, or the number of a block."""
  most = 9999 if whole else 24
  try:
    value = float(text)
  except ValueError:
    value = math.nan
  if not 0 <= value <= most or (whole and value != int(value)):
    kind = 'a whole number' if whole else 'an hour'
    raise errors.SettingsError(
      f'{line}: {column} must be {kind} from 0 to {most}, got {text!r}.'
    )
  return value


def _there(
  moment: float,
  client_ids: Sequence[str],
  cells: Mapping[str, Collection[tuple[float, ...]]],
) -> np.ndarray:
  """Returns indices of clients available at an hour or in a block, int64."""

  def is_there(client: str) -> bool:
    own = cells.get(client)
    if own is None:
      return True
    for begin, *end in own:
      if not end:
        there = moment == begin
      elif begin < end[0]:
        there = begin <= moment < end[0]
      else:
        there = moment >= begin or moment < end[0]
      if there:
        return True
    return False

  return np.array(
    [place for place, c in enumerate(client_ids) if is_there(c)], np.int64
  )
