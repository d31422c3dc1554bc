"""Protocols of the rounds and the clients that the loop drives."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import Protocol
from typing import TypeAlias

import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.lab.training import traffic as traffic_lib
from tff_adaptive.lab.training.data import datasets as data_lib

# The columns of a round's row that the round itself reports.
Columns: TypeAlias = Mapping[str, Any]


class Clients(Protocol):
  """Training clients with their data.

  Attributes:
    client_ids: All of them, in the task's order.
    prepared_ahead: Whether a round's data may be made in another thread while
      the round before trains.
  """

  client_ids: list[str]
  prepared_ahead: bool

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data_lib.CohortData:
    """Returns the cohort's batches, in the cohort's order."""


class Rounds(Protocol):
  """Rounds of training with their state.

  Attributes:
    traffic: Bytes per client and round; `None` if they are not known.
    step_records: What the clients of the last round did, a row each.
    program_state: What a checkpoint holds.
  """

  @property
  def traffic(self) -> Optional[traffic_lib.Traffic]: ...

  @property
  def step_records(self) -> Sequence[Mapping[str, Any]]: ...

  @property
  def program_state(self) -> structures.Structure: ...

  def run(self, cohort: Sequence[str], datasets: Sequence[Any]) -> Columns:
    """Runs a round."""

  def model_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the model after the last complete round."""

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    """Returns a model's weights with the layers that a client keeps."""

  def snapshot(self) -> Any:
    """Returns what `roll_back` takes."""

  def roll_back(self, snapshot: Any) -> None:
    """Undoes rounds since a snapshot."""

  def restore(self, program_state: Any) -> None:
    """Restores a checkpoint's state."""

  def restore_model(self, program_state: Any) -> None:
    """Takes up a checkpoint's model, without what clients keep."""
