"""An exponential moving average of a run's model."""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.lab.training import protocols
from tff_adaptive.lab.training import traffic as traffic_lib

# Maps the model's group of columns to that of its average.
_GROUPS = {'validation': 'ema', 'test': 'test_ema'}


def models_of(
  rounds: protocols.Rounds, split: str
) -> dict[str, tff.learning.models.ModelWeights]:
  """Returns the weights to evaluate on a split, by group of columns."""
  models = {split: rounds.model_weights()}
  if isinstance(rounds, AveragedRounds):
    models[_GROUPS[split]] = rounds.averaged_weights()
  return models


class AveragedRounds:
  """Rounds with an exponential moving average of the model.

  After every round, with d the decay, x the model and a the average, which
  starts as the initial model:

    a = d a + (1 - d) x

  Training continues with x; weights that are not floats are copied. Other
  methods are as in `rounds.LearningRounds`.
  """

  def __init__(self, rounds: protocols.Rounds, decay: float):
    """Initializes the average with the model.

    Args:
      rounds: The rounds to average over.
      decay: d, in [0, 1).
    """
    self._rounds = rounds
    self._decay = decay
    self._average = self._model()

  def _model(self) -> tff.learning.models.ModelWeights:
    return tf.nest.map_structure(np.asarray, self._rounds.model_weights())

  @property
  def traffic(self) -> Optional[traffic_lib.Traffic]:
    return self._rounds.traffic

  @property
  def step_records(self) -> Sequence[Mapping[str, Any]]:
    return self._rounds.step_records

  def run(
    self, cohort: Sequence[str], datasets: Sequence[Any]
  ) -> protocols.Columns:
    """Runs a round; see `LearningRounds.run`."""
    reported = self._rounds.run(cohort, datasets)
    self._average = tf.nest.map_structure(
      self._mix, self._average, self._model()
    )
    return reported

  def _mix(self, average: np.ndarray, value: np.ndarray) -> np.ndarray:
    if value.dtype.kind != 'f':
      return value
    mixed = self._decay * average + (1 - self._decay) * value
    return np.asarray(mixed, value.dtype)

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    """See `LearningRounds.weights_of`."""
    return self._rounds.weights_of(client, weights)

  def model_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the model after the last complete round."""
    return self._rounds.model_weights()

  def averaged_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the average's weights, as arrays."""
    return self._average

  def snapshot(self) -> Any:
    return self._rounds.snapshot(), self._average

  def roll_back(self, snapshot: Any) -> None:
    before, self._average = snapshot
    self._rounds.roll_back(before)

  @property
  def program_state(self) -> structures.Structure:
    """The state of the rounds, and the average."""
    return collections.OrderedDict(
      rounds=self._rounds.program_state, average=self._average
    )

  def restore(self, program_state: Any) -> None:
    self._rounds.restore(program_state['rounds'])
    self._average = program_state['average']

  def restore_model(self, program_state: Any) -> None:
    """Restores the model and its average; see `LearningRounds`."""
    self._rounds.restore_model(program_state['rounds'])
    self._average = program_state['average']
