"""Protocols of the rounds and clients that the training loop uses."""

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

# A round's columns of metrics.csv, as reported by `Rounds.run`.
Columns: TypeAlias = Mapping[str, Any]


class Clients(Protocol):
  """Training clients with their data.

  Attributes:
    client_ids: All training clients, in the task's order.
    prepared_ahead: Whether a round's data may be prepared in another thread
      while the previous round trains.
  """

  client_ids: list[str]
  prepared_ahead: bool

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data_lib.CohortData:
    """Returns the cohort's batches, in the cohort's order."""


class Rounds(Protocol):
  """Rounds of training, with their state.

  Attributes:
    traffic: Bytes per client and round; `None` if unknown.
    step_records: Step sizes of the last round's clients, one row per client.
    program_state: The state to save in a checkpoint.
  """

  @property
  def traffic(self) -> Optional[traffic_lib.Traffic]: ...

  @property
  def step_records(self) -> Sequence[Mapping[str, Any]]: ...

  @property
  def program_state(self) -> structures.Structure: ...

  def run(self, cohort: Sequence[str], datasets: Sequence[Any]) -> Columns:
    """Runs a round; returns its columns of metrics.csv."""

  def model_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the model after the last complete round."""

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    """Returns a model's weights with a client's own layers inserted."""

  def snapshot(self) -> Any:
    """Returns the current state, for `roll_back`."""

  def roll_back(self, snapshot: Any) -> None:
    """Restores a snapshot."""

  def restore(self, program_state: Any) -> None:
    """Restores `program_state` from a checkpoint."""

  def restore_model(self, program_state: Any) -> None:
    """Restores the model of `program_state`, without client states."""
