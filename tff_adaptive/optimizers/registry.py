"""Registries of client and server optimizers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, TYPE_CHECKING, TypeVar

from tff_adaptive import extensions
from tff_adaptive import parameters

if TYPE_CHECKING:
  import tensorflow_federated as tff

SIDES = ('client', 'server')


class Buildable(Protocol):
  """A `parameters.Described` with a method `build`."""

  def build(self) -> tff.learning.optimizers.Optimizer:
    """Builds the optimizer."""


@dataclasses.dataclass(frozen=True)
class Entry:
  """A registered optimizer.

  Attributes:
    description: The class whose fields are the hyperparameters.
    printed: The name as papers print it; the registered name if empty.
    adaptive: Whether the rule divides steps by a preconditioner that a client
      can be initialized with, as methods of joint adaptivity require.
    chooses_step_size: Whether the rule adapts a step size that can be recorded.
    shared: Hyperparameters of a client optimizer that also belong to statistics
      of the server; they have no `client_` prefix.
    gradients: Gradient evaluations per client step.
    of_method: Whether the optimizer is reserved for methods, not for users.
    makes_method: Whether a server optimizer defines a method of its name. One
      that does not is a building block, used as the server of `fedavg`.
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
  """Registers the decorated class as a client optimizer.

  Args:
    name: The name that users choose it by.
    **row: Further attributes of `Entry`.

  Raises:
    ValueError: If the name is already registered.
  """
  return _adds('client', name, row)


def server_optimizer(name: str, **row: Any) -> Callable[[_Class], _Class]:
  """Registers a class as a server optimizer; see `client_optimizer`."""
  return _adds('server', name, row)


def _adds(side: str, name: str, row: Any) -> Callable[[_Class], _Class]:
  def add(description: _Class) -> _Class:
    if not (
      isinstance(description, type)
      and issubclass(description, parameters.Described)
      and hasattr(description, 'build')
    ):
      raise TypeError(
        f'The optimizer {name} must derive from rule.Rule, or from '
        f'parameters.Described with a method build, got {description}.'
      )
    rows: Any = Entry(description, **row)  # type: ignore[arg-type]
    TABLES[side].add(name, rows)
    return description

  return add
