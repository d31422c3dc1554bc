"""The grid of a sweep as blocks of fixed flags and axes.

Each block is a product of axes. Several blocks let every method have its own
axes (no adaptivity for plain averaging).
"""

import dataclasses
import math
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import overload
from typing import Union

Flags = dict[str, str]


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

  def points(self) -> Sequence[Flags]:
    """Returns all combinations, each built on access.

    The last axis changes fastest.
    """
    return _Product(self)


class _Product(Sequence[Flags]):
  """A lazy sequence of the combinations of a block's values."""

  def __init__(self, block: Block):
    self._block = block

  def __len__(self) -> int:
    return math.prod(map(len, self._block.axes.values()))

  @overload
  def __getitem__(self, index: int) -> Flags: ...

  @overload
  def __getitem__(self, index: slice) -> list[Flags]: ...

  def __getitem__(self, index: Union[int, slice]) -> Union[Flags, list[Flags]]:
    places = range(len(self))[index]
    if not isinstance(places, int):
      return [self[place] for place in places]
    chosen = {}
    for flag in reversed([*self._block.axes]):
      values = self._block.axes[flag]
      places, which = divmod(places, len(values))
      chosen[flag] = values[which]
    return {
      **self._block.fixed,
      **{flag: chosen[flag] for flag in self._block.axes},
    }
