"""The grid of a sweep as blocks: fixed flags, and a product of axes.

Several blocks let every method have its own axes (no adaptivity for plain
averaging).
"""

import dataclasses
import itertools
from collections.abc import Mapping
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Block:
  """A product of axes.

  Attributes:
    fixed: Flags that all points of the block share, as text.
    axes: Values of a flag, as text, by flag.
  """

  fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)
  axes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

  def points(self) -> list[dict[str, str]]:
    """Lists all combinations, the last axis changing fastest."""
    return [
      {**self.fixed, **dict(zip(self.axes, values, strict=True))}
      for values in itertools.product(*self.axes.values())
    ]
