"""The rounds in which clients can be drawn: by the hour, or in blocks."""

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
  """The rounds in which clients can be drawn; the same in every cycle.

  Attributes:
    windows: Per part of a cycle, the places of the clients that are there.
    rounds_per_window: Rounds that a part lasts.
  """

  windows: Sequence[np.ndarray]
  rounds_per_window: int

  def places(self, number: int) -> np.ndarray:
    """Returns the places of the clients that can be drawn in a round."""
    window = (number - 1) // self.rounds_per_window
    return self.windows[window % len(self.windows)]


def attendance_of(
  settings: settings_lib.Settings, client_ids: Sequence[str]
) -> Optional[Attendance]:
  """Reads the attendance of a run's clients; `None` if all are always there.

  The file is CSV, with the columns client, from and to (hours of a day of
  `rounds_per_day` rounds; over midnight where `to` is less) or client and block
  (numbers from 0; blocks take turns, each for `rounds_per_block` rounds). A
  client may have several rows; one without is always there.

  Args:
    settings: The run.
    client_ids: The training clients of its task.

  Raises:
    SettingsError: If the file cannot be used, with the line that is wrong.
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
        f'{line}: from and to are both {numbers[0]:g}; leave the client out if '
        'it is always there.'
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
    raise errors.SettingsError(f'{name} lets no client take part in any round.')
  return Attendance(
    windows, (settings.rounds_per_block or 1) if by_block else 1
  )


def _number(line: str, column: str, text: str, whole: bool) -> float:
  """Reads an hour, or the number of a block."""
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
  """Lists the places of the clients that are there at an hour or in a block."""

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
