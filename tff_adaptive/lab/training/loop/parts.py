"""The parts of a run that the training loop uses."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive.lab.recording import best
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.training import accounting
from tff_adaptive.lab.training import protocols
from tff_adaptive.lab.training.evaluation import (
  client_tests as client_tests_lib,
)
from tff_adaptive.lab.training.evaluation import evaluator as evaluator_lib
from tff_adaptive.lab.training.evaluation import validation
from tff_adaptive.lab.training.loop import averaging
from tff_adaptive.lab.training.loop import ending
from tff_adaptive.lab.training.participation import availability


@dataclasses.dataclass(frozen=True)
class Parts:
  """The parts of a run that the training loop uses.

  Attributes:
    task: The task.
    formula: The method's update rules, as text.
    cohort_fn: Maps a round's number to its clients' ids.
    rounds: The rounds, with their state.
    evaluator: The evaluator of the model.
    clients: The training clients, with their data.
    splits: The validation and test splits.
    participation: The clients that answer in each round; `None` if all do
      without delay.
    ledger: The privacy accountant; `None` for a run without privacy.
    goal: The metric that rounds are compared by.
    directions: Whether higher is better, for metrics where this is known.
    client_tests: The per-client tests of the trained model; `None` without.
  """

  task: tff.simulation.baselines.BaselineTask
  formula: str
  cohort_fn: Callable[[int], Sequence[str]]
  rounds: protocols.Rounds
  evaluator: evaluator_lib.Evaluator
  clients: protocols.Clients
  splits: validation.Splits
  participation: Optional[availability.Participation] = None
  ledger: Optional[accounting.Ledger] = None
  goal: ending.Goal = ending.NO_GOAL
  directions: Mapping[str, bool] = dataclasses.field(default_factory=dict)
  client_tests: Optional[client_tests_lib.ClientTests] = None

  def columns(self, number: int) -> dict[str, Any]:
    """Returns a round's columns on privacy and participation."""
    sources = [s for s in (self.ledger, self.participation) if s is not None]
    return {k: v for s in sources for k, v in s.columns(number).items()}

  def keeper_of_best(self, folder: files.RunFolder) -> Optional[best.Best]:
    """Builds the hook that saves the best round; `None` without a goal."""
    if self.goal is ending.NO_GOAL:
      return None
    weights = self.rounds.model_weights
    if self.goal.column.startswith('ema/'):
      assert isinstance(self.rounds, averaging.AveragedRounds)
      weights = self.rounds.averaged_weights
    return best.Best(
      folder.checkpoints, self.goal, weights, run=folder.identity
    )
