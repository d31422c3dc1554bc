"""The points of a sweep, made of its axes and grid, and checked."""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import parsing as flags_lib
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.sweep.blocks import Block

_LONGEST_NAME = 180


class Parser:
  """Parses points of a sweep; in another process it begins afresh.

  Attributes:
    told: Flags that hold for all points, as text.
  """

  def __init__(self, told: Mapping[str, str]):
    self.told = told

  def __reduce__(self) -> tuple[Any, ...]:
    return Parser, (self.told,)

  @functools.cached_property
  def _flags(self) -> flags_lib.Flags:
    return flags_lib.Flags()

  def parse(self, flags: Mapping[str, str]) -> flags_lib.Parsed:
    """Parses a point's own flags beside those of all.

    Raises:
      SettingsError: If something is wrong with them.
    """
    return self._flags.parse(flags_lib.words({**self.told, **flags}))


@dataclasses.dataclass(frozen=True)
class Point:
  """One experiment of a sweep.

  Attributes:
    name: Of its folder; made from its flags alone, so that a sweep whose axes
      grow finds its earlier runs.
    flags: What tells it from the others, as text.
    identity: That of `settings`.
    parser: Parses them.
    root: The folder that its own is in.
    left_out: Axes of the sweep that it has no use for.
  """

  name: str
  flags: Mapping[str, str]
  identity: Mapping[str, Any]
  parser: 'Parser' = dataclasses.field(compare=False, repr=False)
  root: str = ''
  left_out: tuple[str, ...] = ()

  @functools.cached_property
  def settings(self) -> settings_lib.Settings:
    """The resolved flags, which are parsed when this is first asked for.

    Raises:
      SettingsError: If values that are each accepted do not go together.
    """
    return dataclasses.replace(
      self.parser.parse(self.flags).settings,
      root_output_dir=self.root,
      experiment_name=self.name,
    )

  @property
  def folder(self) -> pathlib.Path:
    """The folder of its results."""
    return pathlib.Path(self.root) / self.name

  @property
  def algorithm(self) -> str:
    """The method's name."""
    return self.identity['algorithm']

  @property
  def total_rounds(self) -> int:
    """The number of rounds."""
    return self.identity['total_rounds']


Configuration = tuple[tuple[str, str], ...]


def configuration(flags: Mapping[str, str]) -> Configuration:
  """Takes a point's seeds, over which results are averaged, from its flags."""
  return tuple((k, v) for k, v in flags.items() if k not in runs.SEEDS)


def words_of(flags: Mapping[str, str]) -> Configuration:
  """Takes from a point's flags those that are words, such as a method's name.

  Points that differ in numbers alone mostly share a traced round.
  """
  return tuple((k, v) for k, v in flags.items() if number(v) is None)


def number(text: str) -> Optional[float]:
  """Reads a flag's value as a number; `None` if it is a word."""
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None


@dataclasses.dataclass(frozen=True)
class Axes:
  """The axes that were asked for.

  Attributes:
    shared: Values by flag, for every method that has a use for the flag.
    own: The same for one method, by its name, in place of shared ones.
  """

  shared: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
  own: Mapping[str, Mapping[str, Sequence[str]]] = dataclasses.field(
    default_factory=dict
  )

  def flags(self) -> list[str]:
    """Lists the flags that have axes, each once."""
    owned = (flag for axes in self.own.values() for flag in axes)
    return list(dict.fromkeys([*self.shared, *owned]))


def parse_axes(texts: Sequence[str]) -> Axes:
  """Reads [METHOD:]FLAG=V1,V2,..., one a text.

  Raises:
    SettingsError: If one is not of that form, or given twice.
  """
  shared: dict[str, Sequence[str]] = {}
  own: dict[str, dict[str, Sequence[str]]] = {}
  for text in texts:
    match = re.fullmatch(r'(?:--)?(?:(\w+):)?(\w+)=(.+)', text)
    values = [v.strip() for v in match.group(3).split(',')] if match else []
    if not match or '' in values:
      raise errors.SettingsError(
        '--axis must be FLAG=VALUE,VALUE,... or METHOD:FLAG=VALUE,VALUE,..., '
        f'got {text!r}.'
      )
    method, flag = match.group(1), match.group(2)
    name = f'{method}:{flag}' if method else flag
    axes = own.setdefault(method, {}) if method else shared
    if flag in axes:
      raise errors.SettingsError(f'--axis={name} is given twice.')
    axes[flag] = _different(f'--axis={name}', values)
  return Axes(shared, own)


def _different(name: str, values: Sequence[str]) -> Sequence[str]:
  """Returns an axis' values, of which none may be there twice."""
  repeated = sorted({v for v in values if values.count(v) > 1})
  if repeated:
    raise errors.SettingsError(f'{name} has the value {repeated[0]} twice.')
  return values


def read_axes(path: pathlib.Path) -> Axes:
  """Reads a file of axes by method: {"METHOD": {"FLAG": [VALUE, ...]}}.

  Those of the method "*" are for all; a value may stand without a list.

  Raises:
    SettingsError: If it cannot be read, or is not of that form.
  """
  form = '{"METHOD or *": {"FLAG": [VALUE, ...]}}'
  try:
    # Numbers stay as they are written: they name folders.
    found = json.loads(
      path.read_text(encoding='utf-8'), parse_float=str, parse_int=str
    )
  except (OSError, ValueError, RecursionError) as e:
    raise errors.SettingsError(
      f'--grid={path} cannot be read as JSON, {form}: {errors.reason(e)}.'
    ) from e
  if not isinstance(found, dict) or not found:
    raise errors.SettingsError(f'--grid={path} must hold {form}.')
  axes: dict[str, dict[str, Sequence[str]]] = {}
  for method, flags in found.items():
    if not isinstance(flags, dict):
      raise errors.SettingsError(
        f'--grid={path} must hold {form}; {method!r} has {flags!r:.40}.'
      )
    # A method without axes of its own is one of the sweep all the same.
    axes[method] = {}
    for flag, values in flags.items():
      texts = [_axis_text(v) for v in _as_list(values)]
      if not texts or None in texts:
        raise errors.SettingsError(
          f'--grid={path}: {flag!r} of {method!r} must be a list of numbers, '
          f'words, true and false, got {values!r:.40}.'
        )
      known = [text for text in texts if text is not None]
      axes[method][flag] = _different(
        f'--grid={path}: {flag!r} of {method!r}', known
      )
  shared = axes.pop('*', {})
  return Axes(shared, axes)


def _as_list(values: Any) -> list[Any]:
  return values if isinstance(values, list) else [values]


def _axis_text(value: Any) -> Optional[str]:
  """Writes a value of JSON as a flag has it; `None` if no flag has such."""
  if isinstance(value, bool):
    return str(value).lower()
  return value if isinstance(value, str) and value else None


def with_axes(
  blocks: Sequence[Block], axes: Axes, told: Mapping[str, str]
) -> list[Block]:
  """Adds axes to blocks, or replaces those that a block has.

  Args:
    blocks: Of a paper, or one without anything.
    axes: Those that were asked for.
    told: Flags that hold for all points, as text.

  Raises:
    SettingsError: If a method that has axes of its own is not of the sweep.
  """
  shared = [_with(block, axes.shared) for block in blocks]
  if not axes.own:
    return shared
  # Each method has a block of its own.
  apart: list[tuple[Optional[str], Block]] = []
  for block in shared:
    names = block.axes.get('algorithm')
    fixed = block.fixed.get('algorithm', told.get('algorithm'))
    if names is None and fixed is None and 'preset' not in block.axes:
      names = list(axes.own)
    if names is None:
      apart.append((fixed, block))
      continue
    rest = {k: v for k, v in block.axes.items() if k != 'algorithm'}
    apart += [
      (name, Block({'algorithm': name, **block.fixed}, rest)) for name in names
    ]
  there = dict.fromkeys(name for name, _ in apart if name is not None)
  for method in axes.own:
    if method not in there:
      raise errors.SettingsError(
        f'{method} has axes of its own and is no method of the sweep, whose '
        f'methods are {", ".join(there) or "chosen by presets"}; name it in '
        '--axis=algorithm=..., or leave these axes out.'
      )
  return [_with(b, axes.own.get(name or '', {}), own=True) for name, b in apart]


def _with(
  block: Block, axes: Mapping[str, Sequence[str]], *, own: bool = False
) -> Block:
  return Block(
    {k: v for k, v in block.fixed.items() if k not in axes},
    {**block.axes, **axes},
    own=[*block.own, *axes] if own else block.own,
  )


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
  """The flags of a point once its method is known.

  Attributes:
    flags: Those of the point, without the axes that it has no use for.
    identity: Of the settings that they come to.
    left_out: The axes that it has no use for, and the error about each.
  """

  flags: Mapping[str, str]
  identity: Mapping[str, Any]
  left_out: Mapping[str, errors.SettingsError]


def understand(
  parser: Parser, flags: Mapping[str, str], axes: Collection[str]
) -> tuple[flags_lib.Parsed, Understood]:
  """Parses a point's flags; leaves out axes that its method does not use.

  Args:
    parser: Parses them.
    flags: The point's own, as text.
    axes: Which of these are axes of the sweep.

  Raises:
    SettingsError: If something else is wrong with them.
  """
  left_out: dict[str, errors.SettingsError] = {}
  flags = dict(flags)
  while True:
    try:
      parsed = parser.parse(flags)
      return parsed, Understood(flags, parsed.settings.identity, left_out)
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


# In place of an entry that an identity does not have.
_ABSENT = object()


class _Part:
  """Points that differ in numbers only, of which a few are parsed.

  Every value of every axis is parsed once, beside the first values of the other
  axes. As each axis has entries of the identity to itself, these tell the
  identities of all points; the point of all last values is parsed to see that
  it is so. Where it is not, and where it saves nothing, every point is parsed.
  """

  def __init__(
    self,
    make: Callable[[Mapping[str, str]], Understood],
    first: Mapping[str, str],
    axes: Mapping[str, Sequence[str]],
  ):
    """Parses the points that tell the others.

    Args:
      make: Parses a point.
      first: The point of all first values.
      axes: Values of the axes along which points differ, by flag.

    Raises:
      SettingsError: If one of them is no experiment.
    """
    self._make = make
    self._first = make(first)
    self._axes = {k: v for k, v in axes.items() if k in self._first.flags}
    # By axis and value: the entries that follow from it.
    self._entries: dict[str, dict[str, dict[str, Any]]] = {}
    sizes = [len(values) for values in self._axes.values()]
    self._is_told_by_few = math.prod(sizes) > sum(sizes) + 2 and self._look()

  def understand(self, flags: Mapping[str, str]) -> Understood:
    """Understands one of the points.

    Raises:
      SettingsError: If it is parsed and is no experiment.
    """
    return self._compose(flags) if self._is_told_by_few else self._make(flags)

  def _look(self) -> bool:
    """Parses each value once; returns whether they tell all points."""
    taken: set[str] = set()
    for flag, values in self._axes.items():
      found = {v: self._make({**self._first.flags, flag: v}) for v in values}
      changed = {
        name
        for understood in found.values()
        for name in understood.identity.keys() | self._first.identity.keys()
        if understood.identity.get(name, _ABSENT)
        != self._first.identity.get(name, _ABSENT)
      }
      if changed & taken or any(u.left_out for u in found.values()):
        return False
      taken |= changed
      self._entries[flag] = {
        v: {name: u.identity.get(name, _ABSENT) for name in changed}
        for v, u in found.items()
      }
    last = {flag: values[-1] for flag, values in self._axes.items()}
    last = {**self._first.flags, **last}
    parsed, composed = self._make(last), self._compose(last)
    return not parsed.left_out and parsed.identity == composed.identity

  def _compose(self, flags: Mapping[str, str]) -> Understood:
    left_out = self._first.left_out
    identity = dict(self._first.identity)
    for flag, entries in self._entries.items():
      identity |= entries[flags[flag]]
    return Understood(
      {k: v for k, v in flags.items() if k not in left_out},
      {k: v for k, v in identity.items() if v is not _ABSENT},
      left_out,
    )


def _understand_block(parser: Parser, block: Block) -> Iterator[Understood]:
  """Understands the points of a block, in its order.

  Raises:
    SettingsError: If one of those that are parsed is no experiment.
  """

  def make(flags: Mapping[str, str]) -> Understood:
    try:
      shared = [axis for axis in block.axes if axis not in block.own]
      return understand(parser, flags, shared)[1]
    except errors.SettingsError as e:
      if len(flags) < 2:
        raise
      raise errors.SettingsError(f'{e} (In the point {name_of(flags)}.)') from e

  # What an axis of words chooses, such as a method, decides what the others do.
  words = [
    flag
    for flag, values in block.axes.items()
    if any(number(value) is None for value in values)
  ]
  numbers = {k: v for k, v in block.axes.items() if k not in words}
  parts: dict[tuple[str, ...], _Part] = {}
  for flags in block.points():
    # What the user says beside a grid holds for it too.
    flags = {k: v for k, v in flags.items() if k not in parser.told}
    chosen = tuple(flags[word] for word in words)
    if chosen not in parts:
      parts[chosen] = _Part(make, flags, numbers)
    yield parts[chosen].understand(flags)


def points(
  told: Mapping[str, str], blocks: Sequence[Block], root: str
) -> list[Point]:
  """Makes every experiment of a sweep, and checks the values of its axes.

  Args:
    told: Flags that hold for all of them, as text; a block's of the same name
      are left out.
    blocks: The grid.
    root: Where the runs have their folders.

  Raises:
    SettingsError: If a flag is unknown, a value is not accepted or two of the
      experiments are the same.
  """
  parser = Parser(told)
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
    for found in _understand_block(parser, block):
      useless = {**found.left_out, **useless}
      name = name_of(found.flags)
      key = repr(sorted(found.identity.items()))
      if key in seen and seen[key] == name and found.left_out:
        continue  # The values of an axis that it has no use for.
      if key in seen:
        raise errors.SettingsError(
          f'The points {seen[key]} and {name} of the sweep are one and the '
          'same experiment; leave one of them out.'
        )
      seen[key] = name
      result.append(
        Point(
          name, found.flags, found.identity, parser, root, tuple(found.left_out)
        )
      )
  for flag, error in useless.items():
    if not any(flag in point.flags for point in result):
      raise error  # No point has a use for it.
  return result
