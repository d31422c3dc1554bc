"""Client states between rounds, by client id."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf

from tff_adaptive.lab.recording.client_state import files as client_states


class CohortStates:
  """Client states in the form that a process takes and returns.

  A store (`client_states`) holds the states of clients seen before; all others
  have the initial state.

  Attributes:
    store: The stored states, as arrays by client id.
  """

  def __init__(
    self,
    fresh: Any,
    store: Optional[Callable[[client_states.Record], Any]] = None,
  ):
    """Creates an empty store.

    Args:
      fresh: The initial state of a client: the result of the process's
        `initialize_client_state`.
      store: Builds the store from the shapes and dtypes of one client's state;
        unless given, states are held in memory and cannot be resumed.
    """
    self._fresh = fresh
    # Leaves, so that it does not matter which containers a runtime returns.
    record = client_states.Record.of(
      [np.asarray(leaf) for leaf in tf.nest.flatten(fresh)]
    )
    self.store = (
      client_states.ClientStates(record, in_memory=True)
      if store is None
      else store(record)
    )

  def of(self, clients: Sequence[str]) -> list[Any]:
    """Returns the states of clients, in their order.

    Raises:
      DamagedError: If a state on disk is damaged.
    """
    return [self._of(client) for client in clients]

  def _of(self, client: str) -> Any:
    leaves = self.store.get(client)
    if leaves is None:
      return self._fresh
    return tf.nest.pack_sequence_as(self._fresh, leaves)

  def keep(self, clients: Sequence[str], states: Sequence[Any]) -> None:
    """Stores the states that a round returned for its clients.

    Raises:
      RunError: If they cannot be written.
    """
    for client, state in zip(clients, states, strict=True):
      self.store.put(
        client, [np.asarray(leaf) for leaf in tf.nest.flatten(state)]
      )
