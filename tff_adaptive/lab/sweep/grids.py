"""The points of a sweep, built from its axes and grid and checked."""

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
  """A parser of a sweep's points; unpickled without its parsed state.

  Attributes:
    given: Flags that all points share, as text.
  """

  def __init__(self, given: Mapping[str, str]):
    self.given = given

  def __reduce__(self) -> tuple[Any, ...]:
    return Parser, (self.given,)

  @functools.cached_property
  def _flags(self) -> flags_lib.Flags:
    return flags_lib.Flags()

  def parse(self, flags: Mapping[str, str]) -> flags_lib.Parsed:
    """Parses a point's own flags together with the shared ones.

    Raises:
      SettingsError: If they are not accepted.
    """
    return self._flags.parse(flags_lib.words({**self.given, **flags}))


@dataclasses.dataclass(frozen=True)
class Point:
  """One run of a sweep.

  Attributes:
    name: Name of its folder, built from its flags alone, so that a sweep with
      extended axes finds its earlier runs.
    flags: The flags that distinguish it from other points, as text.
    identity: The identity of its settings.
    parser: The parser of its flags.
    root: The folder that contains its own.
    left_out: Axes of the sweep that its method does not use.
  """

  name: str
  flags: Mapping[str, str]
  identity: Mapping[str, Any]
  parser: 'Parser' = dataclasses.field(compare=False, repr=False)
  root: str = ''
  left_out: tuple[str, ...] = ()

  @functools.cached_property
  def settings(self) -> settings_lib.Settings:
    """The resolved settings, parsed on first access.

    Raises:
      SettingsError: If values that are accepted one by one contradict each
        other.
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
  """Returns a point's flags without seeds, over which results are averaged."""
  return tuple((k, v) for k, v in flags.items() if k not in runs.SEEDS)


def words_of(flags: Mapping[str, str]) -> Configuration:
  """Returns the flags of a point whose values are words, such as a method.

  Points that differ only in numbers mostly share a traced round.
  """
  return tuple((k, v) for k, v in flags.items() if number(v) is None)


def number(text: str) -> Optional[float]:
  """Parses a flag's value as a number; `None` if it is a word."""
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None


@dataclasses.dataclass(frozen=True)
class Axes:
  """The axes given by the user.

  Attributes:
    shared: Values by flag, for every method that uses the flag.
    own: Values by flag for one method, by the method's name; they replace
      shared ones.
  """

  shared: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
  own: Mapping[str, Mapping[str, Sequence[str]]] = dataclasses.field(
    default_factory=dict
  )

  def flags(self) -> list[str]:
    """Lists the flags that have axes, without repetition."""
    owned = (flag for axes in self.own.values() for flag in axes)
    return list(dict.fromkeys([*self.shared, *owned]))


def parse_axes(texts: Sequence[str]) -> Axes:
  """Parses texts of the form [METHOD:]FLAG=V1,V2,...

  Raises:
    SettingsError: If one is malformed or given twice.
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
  """Returns an axis' values; raises `SettingsError` if one is repeated."""
  repeated = sorted({v for v in values if values.count(v) > 1})
  if repeated:
    raise errors.SettingsError(f'{name} lists the value {repeated[0]} twice.')
  return values


def read_axes(path: pathlib.Path) -> Axes:
  """Reads a file of axes by method: {"METHOD": {"FLAG": [VALUE, ...]}}.

  The method "*" stands for all; a single value needs no list.

  Raises:
    SettingsError: If the file cannot be read or is malformed.
  """
  form = '{"METHOD or *": {"FLAG": [VALUE, ...]}}'
  try:
    # Numbers keep their spelling, because they name folders.
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
    # A method without axes of its own still belongs to the sweep.
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
  """Formats a JSON value as a flag's text; `None` if it cannot be one."""
  if isinstance(value, bool):
    return str(value).lower()
  return value if isinstance(value, str) and value else None


def with_axes(
  blocks: Sequence[Block], axes: Axes, given: Mapping[str, str]
) -> list[Block]:
  """Adds axes to blocks, replacing axes of the same flag.

  Args:
    blocks: A paper's blocks, or one empty block.
    axes: The axes given by the user.
    given: Flags that all points share, as text.

  Raises:
    SettingsError: If a method with axes of its own is not part of the sweep.
  """
  shared = [_with(block, axes.shared) for block in blocks]
  if not axes.own:
    return shared
  # Each method has a block of its own.
  apart: list[tuple[Optional[str], Block]] = []
  for block in shared:
    names = block.axes.get('algorithm')
    fixed = block.fixed.get('algorithm', given.get('algorithm'))
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
        f'methods are {", ".join(there) or "chosen by presets"}; add it to '
        '--axis=algorithm=..., or omit these axes.'
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
  """Builds a folder name from a point's flags."""
  text = ','.join(f'{k}={v}' for k, v in flags.items()) or 'run'
  safe = re.sub(r'[^\w=,.+-]', '_', text).lstrip('.')
  if safe == text and len(text) <= _LONGEST_NAME:
    return text
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  return f'{safe[:_LONGEST_NAME]}-{digest}'


@dataclasses.dataclass(frozen=True)
class Understood:
  """The flags of a point, resolved for its method.

  Attributes:
    flags: The point's flags, without the axes that its method does not use.
    identity: The identity of the resulting settings.
    left_out: The axes that its method does not use, with the error about each.
  """

  flags: Mapping[str, str]
  identity: Mapping[str, Any]
  left_out: Mapping[str, errors.SettingsError]


def understand(
  parser: Parser, flags: Mapping[str, str], axes: Collection[str]
) -> tuple[flags_lib.Parsed, Understood]:
  """Parses a point's flags, dropping axes that its method does not use.

  Args:
    parser: The parser.
    flags: The point's own flags, as text.
    axes: Names of the flags that are axes of the sweep.

  Raises:
    SettingsError: If the flags are not accepted for another reason.
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


# Marks an entry that an identity lacks.
_ABSENT = object()


class _Part:
  """Points that differ only in numbers, of which a few are parsed.

  Each value of each axis is parsed once, with the first values of the other
  axes. If each axis changes entries of the identity that no other axis changes,
  these determine the identities of all points. The point of all last values is
  parsed to verify this. If it does not hold, or saves nothing, every point is
  parsed.
  """

  def __init__(
    self,
    make: Callable[[Mapping[str, str]], Understood],
    first: Mapping[str, str],
    axes: Mapping[str, Sequence[str]],
  ):
    """Parses the points that determine the others.

    Args:
      make: Parses a point.
      first: The point of all first values.
      axes: Values of the axes along which points differ, by flag.

    Raises:
      SettingsError: If one of the points is not accepted.
    """
    self._make = make
    self._first = make(first)
    self._axes = {k: v for k, v in axes.items() if k in self._first.flags}
    # By axis and value: the entries that follow from it.
    self._entries: dict[str, dict[str, dict[str, Any]]] = {}
    sizes = [len(values) for values in self._axes.values()]
    self._is_separable = math.prod(sizes) > sum(sizes) + 2 and self._look()

  def understand(self, flags: Mapping[str, str]) -> Understood:
    """Resolves one of the points.

    Raises:
      SettingsError: If the point is parsed and not accepted.
    """
    return self._compose(flags) if self._is_separable else self._make(flags)

  def _look(self) -> bool:
    """Parses each value once; returns whether these determine all points."""
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
  """Resolves the points of a block, in order.

  Raises:
    SettingsError: If a parsed point is not accepted.
  """

  def make(flags: Mapping[str, str]) -> Understood:
    try:
      shared = [axis for axis in block.axes if axis not in block.own]
      return understand(parser, flags, shared)[1]
    except errors.SettingsError as e:
      if len(flags) < 2:
        raise
      raise errors.SettingsError(f'{e} (In the point {name_of(flags)}.)') from e

  # The value of a word axis, such as a method, determines the other axes' use.
  words = [
    flag
    for flag, values in block.axes.items()
    if any(number(value) is None for value in values)
  ]
  numbers = {k: v for k, v in block.axes.items() if k not in words}
  parts: dict[tuple[str, ...], _Part] = {}
  for flags in block.points():
    # The user's flags override those of a grid.
    flags = {k: v for k, v in flags.items() if k not in parser.given}
    chosen = tuple(flags[word] for word in words)
    if chosen not in parts:
      parts[chosen] = _Part(make, flags, numbers)
    yield parts[chosen].understand(flags)


def points(
  given: Mapping[str, str], blocks: Sequence[Block], root: str
) -> list[Point]:
  """Builds every run of a sweep and checks the values of its axes.

  Args:
    given: Flags that all points share, as text; they override a block's.
    blocks: The grid.
    root: The folder that contains the runs' folders.

  Raises:
    SettingsError: If a flag is unknown, a value is not accepted, or two points
      are the same experiment.
  """
  parser = Parser(given)
  result: list[Point] = []
  seen: dict[str, str] = {}
  useless: dict[str, errors.SettingsError] = {}
  for block in blocks:
    for axis in block.axes:
      if axis in given:
        raise errors.SettingsError(
          f'--{axis} is both an axis of the sweep and a flag; give one of them.'
        )
    for found in _understand_block(parser, block):
      useless = {**found.left_out, **useless}
      name = name_of(found.flags)
      key = repr(sorted(found.identity.items()))
      if key in seen and seen[key] == name and found.left_out:
        continue  # They differ only in an axis that the method does not use.
      if key in seen:
        raise errors.SettingsError(
          f'The points {seen[key]} and {name} of the sweep are the same '
          'experiment; omit one of them.'
        )
      seen[key] = name
      result.append(
        Point(
          name, found.flags, found.identity, parser, root, tuple(found.left_out)
        )
      )
  for flag, error in useless.items():
    if not any(flag in point.flags for point in result):
      raise error  # No point uses it.
  return result
