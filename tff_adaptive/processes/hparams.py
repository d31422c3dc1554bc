"""Hyperparameters held in a process' state rather than in its graph.

Processes that differ only in these numbers share one traced, compiled graph.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

_Self = TypeVar('_Self', bound='HasHparams')


class HasHparams:
  """A part of a process some of whose numbers are in the process' state.

  Attributes:
    hparam_names: Names of the attributes that hold these numbers. Inside the
      graph they are float32 tensors, usable in arithmetic but not in a Python
      `if`.
  """

  hparam_names: ClassVar[tuple[str, ...]] = ()

  def hparams(self) -> collections.OrderedDict[str, float]:
    """Returns the numbers by name."""
    return collections.OrderedDict(
      (name.lstrip('_'), float(getattr(self, name)))
      for name in self.hparam_names
    )

  def with_hparams(self: _Self, values: Mapping[str, Any]) -> _Self:
    """Returns a copy with other numbers.

    Args:
      values: By name, as `hparams` returns them; tensors or Python numbers.
    """
    if not self.hparam_names:
      return self
    other = copy.copy(self)
    for name in self.hparam_names:
      setattr(other, name, values[name.lstrip('_')])
    return other


def prefixed(
  prefix: str, values: Mapping[str, Any]
) -> collections.OrderedDict[str, Any]:
  """Adds a prefix to the values' names."""
  return collections.OrderedDict(
    (f'{prefix}_{k}', v) for k, v in values.items()
  )


def below(
  prefix: str, values: Mapping[str, Any]
) -> collections.OrderedDict[str, Any]:
  """Selects the values of a prefix, and removes it from their names."""
  return collections.OrderedDict(
    (name.removeprefix(f'{prefix}_'), value)
    for name, value in values.items()
    if name.startswith(f'{prefix}_')
  )
