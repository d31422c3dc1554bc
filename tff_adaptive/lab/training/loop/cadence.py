"""The rounds at which a run evaluates and saves."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cadence:
  """The length of a run, and its intervals of evaluation and checkpoints.

  Attributes:
    total_rounds: Number of rounds; they are numbered from 1.
    rounds_per_eval: Rounds between evaluations; the model is also evaluated
      before the first round and after the last.
    rounds_per_checkpoint: Rounds between checkpoints; one is also written after
      the last round.
  """

  total_rounds: int
  rounds_per_eval: int
  rounds_per_checkpoint: int

  def evaluates(self, round_number: int) -> bool:
    return (
      round_number % self.rounds_per_eval == 0
      or round_number == self.total_rounds
    )

  def checkpoints(self, round_number: int) -> bool:
    return (
      round_number % self.rounds_per_checkpoint == 0
      or round_number == self.total_rounds
    )
