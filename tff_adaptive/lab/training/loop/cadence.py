"""When a run evaluates, and when it saves."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cadence:
  """The length of a run and the rounds at which it evaluates and saves.

  Attributes:
    total_rounds: Rounds are numbered 1 to this.
    rounds_per_eval: The model is evaluated before the first round, after every
      so many rounds, and after the last.
    rounds_per_checkpoint: A checkpoint is written after every so many rounds
      and after the last.
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
