"""The tables of optimizers, to which each rule's file adds its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import Protocol
from typing import TYPE_CHECKING
from typing import TypeVar

from tff_adaptive import extensions
from tff_adaptive import parameters

if TYPE_CHECKING:
  import tensorflow_federated as tff

SIDES = ('client', 'server')


class Buildable(Protocol):
  """A description of an optimizer: a `parameters.Described` with `build`."""

  def build(self) -> tff.learning.optimizers.Optimizer:
    """Builds the optimizer."""


@dataclasses.dataclass(frozen=True)
class Entry:
  """A row of a table of optimizers.

  Attributes:
    description: The class whose fields are the hyperparameters.
    printed: The name that papers print; the rule's own unless given.
    adaptive: Whether the rule divides steps by a preconditioner that a client
      can start from, as methods of joint adaptivity require.
    chooses_step_size: Whether the rule has a step size of its own to measure.
    shared: Hyperparameters of a client's rule that belong to statistics which
      the server keeps too; they keep their names.
    gradients: Gradient evaluations of a client's step.
    of_method: Whether only methods use the rule, not users.
    makes_method: Of a server's rule, whether there is a method of its name; one
      without is a building block, and alone it is the server of `fedavg`.
  """

  description: Callable[..., Buildable]
  printed: str = ''
  adaptive: bool = False
  chooses_step_size: bool = False
  shared: frozenset[str] = frozenset()
  gradients: int = 1
  of_method: bool = False
  makes_method: bool = True


TABLES: dict[str, extensions.Table[Entry]] = {
  side: extensions.Table([f'tff_adaptive.optimizers.{side}s']) for side in SIDES
}
_Class = TypeVar('_Class', bound=type)


def client_optimizer(name: str, **row: Any) -> Callable[[_Class], _Class]:
  """Registers the class below as a client optimizer.

  Args:
    name: The name that users choose it by.
    **row: Further attributes of `Entry`.

  Raises:
    ValueError: If the name is taken.
  """
  return _adds('client', name, row)


def server_optimizer(name: str, **row: Any) -> Callable[[_Class], _Class]:
  """Registers the class below as a server optimizer; see `client_optimizer`."""
  return _adds('server', name, row)


def _adds(side: str, name: str, row: Any) -> Callable[[_Class], _Class]:
  def add(description: _Class) -> _Class:
    if not issubclass(description, parameters.Described):
      raise TypeError(
        f'The optimizer {name} must derive from rule.Rule, or from '
        f'parameters.Described with a method build, got {description}.'
      )
    rows: Any = Entry(description, **row)  # type: ignore[arg-type]
    TABLES[side].add(name, rows)
    return description

  return add
