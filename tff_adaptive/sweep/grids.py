"""The points of a sweep, made of its axes and grid, and checked."""

import dataclasses
import hashlib
import math
import re
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import parsing as flags_lib
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.report import runs
from tff_adaptive.sweep.blocks import Block

_LONGEST_NAME = 180


@dataclasses.dataclass(frozen=True)
class Point:
  """One experiment of a sweep.

  Attributes:
    name: Of its folder; made from its flags alone, so that a sweep whose axes
      grow finds its earlier runs.
    flags: What tells it from the others, as text.
    settings: All of it; its results go below the sweep's folder.
    left_out: Axes of the sweep that it has no use for.
  """

  name: str
  flags: Mapping[str, str]
  settings: settings_lib.Settings
  left_out: tuple[str, ...] = ()


Configuration = tuple[tuple[str, str], ...]


def configuration(flags: Mapping[str, str]) -> Configuration:
  """Takes a point's seeds, over which results are averaged, from its flags."""
  return tuple((k, v) for k, v in flags.items() if k not in runs.SEEDS)


def number(text: str) -> Optional[float]:
  """Reads a flag's value as a number; `None` if it is a word."""
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None


def parse_axis(text: str) -> tuple[str, list[str]]:
  """Reads FLAG=V1,V2,...

  Raises:
    SettingsError: If it is not of that form.
  """
  match = re.fullmatch(r'(?:--)?(\w+)=(.+)', text)
  values = [v.strip() for v in match.group(2).split(',')] if match else []
  if not match or '' in values:
    raise errors.SettingsError(
      f'--axis must be FLAG=VALUE,VALUE,..., got {text!r}.'
    )
  repeated = sorted({v for v in values if values.count(v) > 1})
  if repeated:
    raise errors.SettingsError(
      f'--axis={match.group(1)} has the value {repeated[0]} twice.'
    )
  return match.group(1), values


def with_axes(
  blocks: Sequence[Block], axes: Mapping[str, Sequence[str]]
) -> list[Block]:
  """Adds axes to blocks, or replaces those that a block has."""
  return [
    Block(
      {k: v for k, v in block.fixed.items() if k not in axes},
      {**block.axes, **axes},
    )
    for block in blocks
  ]


def name_of(flags: Mapping[str, str]) -> str:
  """Makes a folder's name that tells a point's flags."""
  text = ','.join(f'{k}={v}' for k, v in flags.items()) or 'run'
  safe = re.sub(r'[^\w=,.+-]', '_', text).lstrip('.')
  if safe == text and len(text) <= _LONGEST_NAME:
    return text
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  return f'{safe[:_LONGEST_NAME]}-{digest}'


@dataclasses.dataclass(frozen=True)
class Understood:
  """The parsed flags of a point.

  Attributes:
    parsed: What they come to.
    flags: Those of the point, without the axes that it has no use for.
    left_out: Those, and what was said of each.
  """

  parsed: flags_lib.Parsed
  flags: Mapping[str, str]
  left_out: Mapping[str, errors.SettingsError]


def understand(
  parser: flags_lib.Flags,
  told: Mapping[str, str],
  flags: Mapping[str, str],
  axes: Collection[str],
) -> Understood:
  """Reads a point's flags; leaves out axes that its method does not use.

  Args:
    parser: Reads them.
    told: Flags that hold for all points, as text.
    flags: The point's own.
    axes: Which of these are axes of the sweep.

  Raises:
    SettingsError: If something else is wrong with them.
  """
  left_out: dict[str, errors.SettingsError] = {}
  flags = dict(flags)
  while True:
    try:
      parsed = parser.parse(flags_lib.words({**told, **flags}))
      return Understood(parsed, flags, left_out)
    except errors.SettingsError as e:
      unused = e.__cause__
      if (
        not isinstance(unused, parameters.UnusedError)
        or unused.parameter not in flags
        or unused.parameter not in axes
      ):
        raise
      del flags[unused.parameter]
      left_out[unused.parameter] = e


def points(
  told: Mapping[str, str], blocks: Sequence[Block], folder: str
) -> list[Point]:
  """Makes every experiment of a sweep, and checks it.

  Args:
    told: Flags that hold for all of them, as text; a block's of the same name
      are left out.
    blocks: The grid.
    folder: Where the runs have their folders.

  Raises:
    SettingsError: If a flag is unknown or one of the experiments is none.
  """
  parser = flags_lib.Flags()
  result: list[Point] = []
  seen: dict[str, str] = {}
  useless: dict[str, errors.SettingsError] = {}
  for block in blocks:
    for axis in block.axes:
      if axis in told:
        raise errors.SettingsError(
          f'--{axis} is an axis of the sweep and a flag beside it; give one '
          'of them.'
        )
    for flags in block.points():
      # What the user says beside a grid holds for it too.
      flags = {k: v for k, v in flags.items() if k not in told}
      try:
        found = understand(parser, told, flags, block.axes)
      except errors.SettingsError as e:
        if len(flags) < 2:
          raise
        raise errors.SettingsError(
          f'{e} (In the point {name_of(flags)}.)'
        ) from e
      useless = {**found.left_out, **useless}
      name = name_of(found.flags)
      settings = dataclasses.replace(
        found.parsed.settings, root_output_dir=folder, experiment_name=name
      )
      key = repr(sorted(settings.identity.items()))
      if key in seen and seen[key] == name and found.left_out:
        continue  # The values of an axis that it has no use for.
      if key in seen:
        raise errors.SettingsError(
          f'The points {seen[key]} and {name} of the sweep are one and the '
          'same experiment; leave one of them out.'
        )
      seen[key] = name
      result.append(Point(name, found.flags, settings, tuple(found.left_out)))
  for flag, error in useless.items():
    if not any(flag in point.flags for point in result):
      raise error  # No point has a use for it.
  return result
