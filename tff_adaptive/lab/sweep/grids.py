"""The points of a sweep, built from its axes and grid and checked.

A grid consists of blocks, each a product of axes. Several blocks let every
method have its own axes (no adaptivity for plain averaging). An axis is a list
of values, or a range LOW..HIGH for a search.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import parsing as flags_lib
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.report import runs

Flags = dict[str, str]
_LONGEST_NAME = 180
# Maximum number of combinations tried to find one that accepts a value.
_MOST_TRIED = 200
# What the files hold is said in README.md beside them.
_PAPERS = pathlib.Path(__file__).with_name('paper_grids')


def range_of(values: Sequence[str]) -> Optional[tuple[str, str]]:
  """Parses an axis of the form LOW..HIGH; `None` for a list of values.

  Raises:
    SettingsError: If the ends are not two numbers in ascending order.
  """
  if len(values) != 1 or '..' not in values[0]:
    return None
  low, _, high = values[0].partition('..')
  ends = [number(end) for end in (low, high)]
  if ends[0] is None or ends[1] is None or ends[0] >= ends[1]:
    raise errors.SettingsError(
      f'A range must be LOW..HIGH, such as 0.001..1, got {values[0]!r}.'
    )
  return low, high


@dataclasses.dataclass(frozen=True)
class Block:
  """A product of axes.

  Attributes:
    fixed: Flags that all points of the block share, as text.
    axes: Values by flag, as text.
    own: Axes specific to the block's method, which must accept them.
  """

  fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)
  axes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
  own: Collection[str] = ()

  def points(self) -> Iterator[Flags]:
    """Yields all combinations; the last axis changes fastest."""
    for values in itertools.product(*self.axes.values()):
      yield {**self.fixed, **dict(zip(self.axes, values, strict=True))}


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

  def is_whole(self, flag: str) -> bool:
    """Returns whether a flag's values are integers."""
    return self._flags.kind(flag) is int

  def parse(self, flags: Mapping[str, str]) -> flags_lib.Parsed:
    """Parses a point's own flags together with the shared ones.

    Raises:
      SettingsError: If they are not accepted.
    """
    return self._flags.resolve({**self.given, **flags})


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
  """

  name: str
  flags: Mapping[str, str]
  identity: Mapping[str, Any]
  parser: 'Parser' = dataclasses.field(compare=False, repr=False)
  root: str = ''

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
  def total_rounds(self) -> int:
    """The number of rounds."""
    return self.identity['total_rounds']


Configuration = tuple[tuple[str, str], ...]


def configuration(flags: Mapping[str, str]) -> Configuration:
  """Returns a point's flags without seeds, over which results are averaged."""
  return tuple((k, v) for k, v in flags.items() if k not in runs.SEEDS)


def number(text: str) -> Optional[float]:
  """Parses a flag's value as a number; `None` if it is a word."""
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None


def of_papers() -> dict[str, list[Block]]:
  """Returns the papers' grids by name, PAPER/TASK or PAPER/TASK/METHOD."""
  grids: dict[str, list[Block]] = {}
  for path in sorted(_PAPERS.glob('*.json')):
    for task, found in json.loads(path.read_text('utf-8')).items():
      name = f'{path.stem}/{task}'
      grids[name] = []
      for method, rows in found['methods'].items():
        blocks = [
          Block({**found['shared'], **row['flags']}, row['axes'])
          for row in rows
        ]
        grids[f'{name}/{method}'] = blocks
        if method not in found.get('alone', ()):
          grids[name] += blocks
  return grids


def of_paper(name: str, algorithm: Optional[str] = None) -> list[Block]:
  """Returns the blocks of a paper's grid.

  Args:
    name: One of `of_papers()`.
    algorithm: The method whose blocks to return; by default all.

  Raises:
    SettingsError: If the grid is unknown or has no block of the method.
  """
  known = of_papers()
  if name not in known:
    papers = ', '.join(n for n in known if n.count('/') == 1)
    raise errors.SettingsError(
      f'--grid must be one of {papers}, or one of these with /METHOD, got '
      f'{name!r}.'
    )
  blocks = known[name]
  if algorithm is not None:
    blocks = [b for b in blocks if b.fixed['algorithm'] == algorithm]
    if not blocks:
      raise errors.SettingsError(
        f'--grid={name} has no points of --algorithm={algorithm}.'
      )
  return blocks


# Values by method and flag; the method `ALL` stands for all.
Axes = Mapping[str, Mapping[str, Sequence[str]]]
ALL = '*'


def parse_axes(texts: Sequence[str]) -> Axes:
  """Parses texts of the form [METHOD:]FLAG=V1,V2,...

  Raises:
    SettingsError: If one is malformed or given twice.
  """
  axes: dict[str, dict[str, Sequence[str]]] = {}
  for text in texts:
    match = re.fullmatch(r'(?:--)?(?:(\w+):)?(\w+)=(.+)', text)
    values = [v.strip() for v in match.group(3).split(',')] if match else []
    if not match or '' in values:
      raise errors.SettingsError(
        '--axis must be FLAG=VALUE,VALUE,... or METHOD:FLAG=VALUE,VALUE,..., '
        f'got {text!r}.'
      )
    of_method = axes.setdefault(match.group(1) or ALL, {})
    name = text.partition('=')[0]
    if match.group(2) in of_method:
      raise errors.SettingsError(f'--axis={name} is given twice.')
    if len(set(values)) < len(values):
      raise errors.SettingsError(f'--axis={name} lists a value twice.')
    of_method[match.group(2)] = values
  return axes


def read_axes(path: pathlib.Path) -> Axes:
  """Reads a file of axes by method: {"METHOD": {"FLAG": [VALUE, ...]}}.

  A single value needs no list.

  Raises:
    SettingsError: If the file cannot be read or is malformed.
  """
  form = 'JSON, {"METHOD or *": {"FLAG": [VALUE, ...]}}'
  with files.reading(f'--grid={path}', form):
    # Numbers keep their spelling, because they name folders.
    found = json.loads(files.read(path), parse_float=str, parse_int=str)
    return {
      method: {flag: _texts(values) for flag, values in flags.items()}
      for method, flags in found.items()
    }


def _texts(values: Any) -> list[str]:
  """Formats an axis' values in JSON as text."""
  texts = [
    str(v).lower() if isinstance(v, bool) else v
    for v in (values if isinstance(values, list) else [values])
  ]
  if not all(isinstance(v, str) and v for v in texts) or len(set(texts)) < max(
    len(texts), 1
  ):
    raise ValueError(
      'an axis is a list of different numbers, words, true and false, got '
      f'{values!r:.40}'
    )
  return texts


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
  blocks = [_with(block, axes.get(ALL, {})) for block in blocks]
  own = {method: of for method, of in axes.items() if method != ALL}
  if not own:
    return blocks
  # Each method has a block of its own.
  apart: list[tuple[Optional[str], Block]] = []
  for block in blocks:
    names = block.axes.get('algorithm')
    fixed = block.fixed.get('algorithm', given.get('algorithm'))
    if names is None and fixed is None and 'preset' not in block.axes:
      names = list(own)
    rest = {k: v for k, v in block.axes.items() if k != 'algorithm'}
    apart += [
      (name, Block({'algorithm': name, **block.fixed}, rest))
      for name in names or ()
    ] or [(fixed, block)]
  there = dict.fromkeys(name for name, _ in apart if name is not None)
  for method in own:
    if method not in there:
      raise errors.SettingsError(
        f'{method} has axes of its own and is no method of the sweep, whose '
        f'methods are {", ".join(there) or "chosen by presets"}; add it to '
        '--axis=algorithm=..., or omit these axes.'
      )
  return [_with(b, own.get(name or '', {}), own=True) for name, b in apart]


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
class Space:
  """The blocks of a sweep, from which grids and searches take points.

  Attributes:
    blocks: The blocks.
    parser: The parser of the flags that all points share.
    root: The folder that contains the runs' folders.
    whole: The axes whose values are integers.
  """

  blocks: Sequence[Block]
  parser: Parser
  root: str = ''
  whole: Collection[str] = ()

  def point(
    self, flags: Mapping[str, str], block: Block
  ) -> tuple[Point, dict[str, errors.SettingsError]]:
    """Returns a point of a block, without axes that its method does not use.

    Returns:
      The point, and the error about each axis that was dropped.

    Raises:
      SettingsError: If the flags are not accepted for another reason.
    """
    # The user's flags override those of a grid.
    used = {k: v for k, v in flags.items() if k not in self.parser.given}
    shared = {*block.axes} - {*block.own}
    left_out: dict[str, errors.SettingsError] = {}
    while True:
      try:
        identity = self.parser.parse(used).settings.identity
        point = Point(name_of(used), used, identity, self.parser, self.root)
        return point, left_out
      except errors.SettingsError as e:
        unused = e.__cause__
        if (
          not isinstance(unused, parameters.UnusedError)
          or unused.parameter not in shared & used.keys()
        ):
          if len(used) < 2:
            raise
          raise errors.SettingsError(
            f'{e} (In the point {name_of(used)}.)'
          ) from e
        del used[unused.parameter]
        left_out[unused.parameter] = e

  def draw(self, trial: Any) -> Point:
    """Returns a point that Optuna draws, with the first seeds.

    Args:
      trial: Optuna's trial.
    """
    several = len(self.blocks) > 1
    index = (
      trial.suggest_int('block', 0, len(self.blocks) - 1) if several else 0
    )
    block = self.blocks[index]
    flags = dict(block.fixed)
    for flag, values in block.axes.items():
      # Blocks may have different values of the same flag.
      name = f'{index}:{flag}' if several else flag
      between = range_of(values)
      if flag in runs.SEEDS or (len(values) == 1 and between is None):
        flags[flag] = values[0]
      elif between is None:
        flags[flag] = trial.suggest_categorical(name, list(values))
      elif flag in self.whole:
        flags[flag] = (
          f'{trial.suggest_int(name, *map(int, map(float, between)))}'
        )
      else:
        low, high = map(float, between)
        # Ranges of a decade and more, as of learning rates, by the logarithm.
        value = trial.suggest_float(name, low, high, log=0 < 10 * low <= high)
        # A few digits, the same in folders, tables and runs.
        flags[flag] = f'{value:.4g}'
    return self.point(flags, block)[0]

  def find(self, flags: Mapping[str, str]) -> Point:
    """Returns the point of a drawn configuration."""
    return self.point(flags, self._block_of(flags))[0]

  def repeats(self, flags: Mapping[str, str]) -> list[Point]:
    """Returns the points of a drawn configuration on the other seeds."""
    block = self._block_of(flags)
    seeds = {k: v for k, v in block.axes.items() if k in runs.SEEDS}
    _, *others = Block({}, seeds).points()
    return [self.point({**flags, **other}, block)[0] for other in others]

  def _block_of(self, flags: Mapping[str, str]) -> Block:
    return next(
      block
      for block in self.blocks
      if all(flags.get(k, v) == v for k, v in block.fixed.items())
    )

  def _samples(self) -> Iterator[tuple[Block, Iterable[Flags]]]:
    """Yields combinations with each value and end of each axis, to try in turn.

    The first one has the first values of the other axes, the next ones another
    value of one of them.
    """
    for block in self.blocks:
      ends = {k: range_of(v) or v for k, v in block.axes.items()}
      given = [{k: [value]} for k, values in ends.items() for value in values]
      for one in given or [{}]:
        axes = {**ends, **one}
        first = {**block.fixed, **{k: v[0] for k, v in axes.items()}}
        changed = ({**first, k: v} for k in axes for v in axes[k][1:])
        every = itertools.islice(Block(block.fixed, axes).points(), _MOST_TRIED)
        yield block, itertools.chain([first], changed, every)

  def _first(
    self, combinations: Iterable[Flags], block: Block
  ) -> tuple[Point, dict[str, errors.SettingsError]]:
    """Returns the first point that is accepted, as `point`.

    Raises:
      SettingsError: The error about the first one, if none is.
    """
    error: Optional[errors.SettingsError] = None
    for flags in combinations:
      try:
        return self.point(flags, block)
      except errors.SettingsError as e:
        error = error or e
    assert error is not None
    raise error

  def points(self, *, samples: bool = False) -> list[Point]:
    """Returns every point, checking the values of axes.

    Args:
      samples: Whether to return only points that have between them every value
        and end of every axis, as a search needs.

    Raises:
      SettingsError: If a flag is unknown, a value is not accepted, or two
        points are the same experiment.
    """
    every = ((b, [flags]) for b in self.blocks for flags in b.points())
    result: dict[str, Point] = {}
    useless: dict[str, errors.SettingsError] = {}
    for axis in {axis for block in self.blocks for axis in block.axes}:
      if axis in self.parser.given:
        raise errors.SettingsError(
          f'--{axis} is both an axis of the sweep and a flag; give one of them.'
        )
    for block, combinations in self._samples() if samples else every:
      point, left_out = self._first(combinations, block)
      useless = {**left_out, **useless}
      key = repr(sorted(point.identity.items()))
      same = result.setdefault(key, point)
      # They may differ only in an axis that the method does not use.
      if same is not point and (
        same.name != point.name or not (left_out or samples)
      ):
        raise errors.SettingsError(
          f'The points {same.name} and {point.name} of the sweep are the same '
          'experiment; omit one of them.'
        )
    for flag, error in useless.items():
      if not any(flag in point.flags for point in result.values()):
        raise error  # No point uses it.
    return list(result.values())
