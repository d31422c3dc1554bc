"""Hooks: listeners that a run notifies.

A run notifies them of its start, of every round, of every evaluation and of its
end. Such hooks write its own files (`records`, `tensorboard`) and what is shown
on a terminal (`progress`); others are recorders for other programs (`trackers`)
and whatever a caller adds:

  class Loss(hooks.Hook):
    def round(self, event):
      print(event.row.get('train/loss'))

  training.run(settings, hooks=[Loss()])
"""

import dataclasses
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors

Row = Mapping[str, Any]

FINISHED = 'finished'
STOPPED = 'stopped'
FAILED = 'failed'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
  """The start of a run, or of the rest of one.

  Attributes:
    folder: The run's; its name is the run's.
    identity: An id that tells the run from any other, and stays when it is
      resumed.
    settings: All that decides its results, by flag.
    total_rounds: The last round.
    resumed_from: The round of the checkpoint that it goes on from, if any.
    rows: Of metrics.csv, of the rounds up to that, as text by column.
    dropped: How many rows of later rounds there were; those are run again.
  """

  folder: pathlib.Path
  total_rounds: int
  identity: str = ''
  settings: Row = dataclasses.field(default_factory=dict)
  resumed_from: Optional[int] = None
  rows: Sequence[Mapping[str, str]] = ()
  dropped: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """An evaluation of the model.

  Attributes:
    round_number: The round after which; 0 for the untrained model.
    values: Numbers by column, such as 'validation/loss'.
    final: Whether it is of the trained model, after the last round was told
      of. The values of other evaluations are in the row of their round too,
      which is told of next.
    clients: A row for every client that was evaluated by itself.
  """

  round_number: int
  values: Row
  final: bool = False
  clients: Sequence[Row] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
  """A round that is complete; round 0 is the look at the untrained model.

  Attributes:
    row: Its row of metrics.csv, `row['round']` included.
    steps: Step sizes of its clients, a row a client, where they are recorded.
  """

  row: Row
  steps: Sequence[Row] = ()

  @property
  def number(self) -> int:
    return int(self.row['round'])


@dataclasses.dataclass(frozen=True, kw_only=True)
class End:
  """The end of a run, or of this part of it.

  Attributes:
    status: `FINISHED`, `STOPPED` by a signal, or `FAILED`.
    round_number: The last round that is complete.
    reason: In words, where it did not come to its last round.
  """

  status: str
  round_number: int
  reason: Optional[str] = None


class Hook:
  """A listener to a run; every method does nothing unless it is overridden.

  A hook that a caller adds may raise `RunError` to give the run up, or
  `training.stopping.Stopped` to save it and leave. Any other exception that it
  raises is reported in a sentence, and the run goes on without it.
  """

  def start(self, event: Start) -> None:
    """Receives the start of the run, before its first round."""

  def evaluation(self, event: Evaluation) -> None:
    """Receives an evaluation."""

  def round(self, event: Round) -> None:
    """Receives a round, once its row is written."""

  def end(self, event: End) -> None:
    """Receives the end of the run, however it ended."""


class HookList(Hook):
  """Hooks that are notified one after the other."""

  def __init__(self, hooks: Sequence[Hook]):
    self._hooks = list(hooks)

  def start(self, event: Start) -> None:
    for hook in self._hooks:
      hook.start(event)

  def evaluation(self, event: Evaluation) -> None:
    for hook in self._hooks:
      hook.evaluation(event)

  def round(self, event: Round) -> None:
    for hook in self._hooks:
      hook.round(event)

  def end(self, event: End) -> None:
    for hook in self._hooks:
      hook.end(event)


class Guarded(Hook):
  """A hook from outside, whose unexpected errors end no run.

  It need not be a `Hook`: an object with some of the methods will do.
  """

  def __init__(self, hook: Any, say: Callable[[str], None]):
    """Wraps a hook.

    Args:
      hook: The hook.
      say: Is told, in a sentence, when it raises an exception.
    """
    self._hook = hook
    self._say = say
    self._failed = False

  def _tell(self, method: str, event: Any) -> None:
    if self._failed or not hasattr(self._hook, method):
      return
    try:
      getattr(self._hook, method)(event)
    except errors.RunError:
      raise
    # It may raise anything, and the run is worth more than its records.
    except (Exception, SystemExit) as e:  # pylint: disable=broad-exception-caught
      self._failed = True
      name = getattr(self._hook, 'name', type(self._hook).__name__)
      self._say(
        f'The recorder {name} is left out from here on, and the run goes on '
        f'without it: {type(e).__name__}: {errors.reason(e)}.'
      )

  def start(self, event: Start) -> None:
    self._tell('start', event)

  def evaluation(self, event: Evaluation) -> None:
    self._tell('evaluation', event)

  def round(self, event: Round) -> None:
    self._tell('round', event)

  def end(self, event: End) -> None:
    self._tell('end', event)


def number(cell: Any) -> float:
  """Reads a value as metrics.csv has it.

  A float32 is written with the fewest digits that give it back, which are those
  of another float64: what compares values must not depend on a resume.
  """
  return float(str(cell))


def group(row: Row, prefix: str) -> dict[str, Any]:
  """Returns the columns of a group, such as 'train', by name without it."""
  return {
    name[len(prefix) + 1 :]: value
    for name, value in row.items()
    if name.startswith(prefix + '/')
  }
