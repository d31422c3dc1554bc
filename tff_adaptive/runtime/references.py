"""References to clients' data, which are loaded where clients train."""

import abc
from collections.abc import Hashable, Sequence
from typing import Any


class Reference(abc.ABC):
  """A small, picklable reference to a client's dataset.

  Contexts on other machines accept it in place of a client's dataset or list of
  batches, and load it there. References with equal sources are loaded in one
  call per machine, preferably by the machine that loaded them before.

  Attributes:
    name: The client's name.
    work: Size of the data, in the same unit for all; 0 if unknown.
  """

  name: str
  work: float

  @property
  @abc.abstractmethod
  def source(self) -> Any:
    """Hashable key of the data source."""

  @property
  def key(self) -> Hashable | None:
    """Hashable key of the data, with which they can be loaded in advance.

    `None`, the default, for data that are loaded when they are used.
    """
    return None

  @classmethod
  @abc.abstractmethod
  def load(cls, references: Sequence['Reference']) -> list[Any]:
    """Loads the data of clients of one source.

    Args:
      references: References with equal `source`.

    Returns:
      A dataset or a list of batches for each reference.

    Raises:
      ClientFailure: If a client's data cannot be loaded, with its index in
        `references`.
    """
