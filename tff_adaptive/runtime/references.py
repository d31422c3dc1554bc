"""Clients' data that are made where the clients train."""

import abc
from collections.abc import Sequence
from typing import Any


class Reference(abc.ABC):
  """A reference to a client's dataset: a few bytes in its place.

  A context on other machines takes it wherever a client's data may be a dataset
  or a list of batches, and loads it there. References to one source that train
  on one machine are loaded in one call, and stay with the machine that loaded
  them before where shares allow it.

  Attributes:
    name: The client's name, for messages.
    work: The size of the data, in any unit that all have; 0 if it is not known.
  """

  name: str
  work: float

  @property
  @abc.abstractmethod
  def source(self) -> Any:
    """What it is loaded from; equal, and hashable, for one source."""

  @classmethod
  @abc.abstractmethod
  def load(cls, references: Sequence['Reference']) -> list[Any]:
    """Loads the data of clients.

    Args:
      references: To one source.

    Returns:
      A dataset or a list of batches for each.

    Raises:
      ClientFailure: If a client's data cannot be loaded; its index is that in
        `references`.
    """
