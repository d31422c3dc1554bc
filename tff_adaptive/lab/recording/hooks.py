"""Hooks: listeners that a run notifies of its progress.

A run notifies hooks of its start, every round, every evaluation and its end. It
uses hooks to write its own files (`records`, `tensorboard`) and to show
progress (`progress`). Others record runs for other programs (`trackers`), and
callers add their own:

  class Loss(hooks.Hook):
    def round(self, event):
      print(event.row.get('train/loss'))

  training.run(settings, hooks=[Loss()])
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from tff_adaptive import errors

Row = Mapping[str, Any]

FINISHED = 'finished'
STOPPED = 'stopped'
FAILED = 'failed'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
  """The start of a run, or of its resumption.

  Attributes:
    folder: The run's folder, named like the run.
    identity: An id of the run, which stays the same when it is resumed.
    settings: All settings that affect its results, by flag.
    total_rounds: The last round.
    resumed_from: The round of the checkpoint from which it resumes, if any.
    rows: Rows of metrics.csv up to that round, as text by column.
    dropped: Number of dropped rows of later rounds, which are run again.
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
    round_number: The round after which the model was evaluated; 0 for the
      untrained model.
    values: Numbers by column, such as 'validation/loss'.
    final: Whether it evaluates the trained model, after the last round's event.
      Values of other evaluations are also in the row of their round, whose
      event follows.
    clients: One row per client, if clients were evaluated individually.
  """

  round_number: int
  values: Row
  final: bool = False
  clients: Sequence[Row] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
  """A completed round; round 0 is the evaluation of the untrained model.

  Attributes:
    row: Its row of metrics.csv, including `row['round']`.
    steps: Step sizes, one row per client, if they are recorded.
  """

  row: Row
  steps: Sequence[Row] = ()

  @property
  def number(self) -> int:
    return int(self.row['round'])


@dataclasses.dataclass(frozen=True, kw_only=True)
class End:
  """The end of a run, or of this process' part of it.

  Attributes:
    status: `FINISHED`, `STOPPED` by a signal or a hook, or `FAILED`.
    round_number: The last completed round.
    reason: The reason as text, if the run ended before its last round.
  """

  status: str
  round_number: int
  reason: Optional[str] = None


class Hook:
  """The base class of listeners to a run; by default all methods do nothing.

  A caller's hook may raise `errors.RunError` to end the run, or
  `training.Stopped` to save and stop it. Any other exception is reported in one
  sentence, and the run continues without the hook.

  Example:

    >>> from tff_adaptive.recording import hooks
    >>> class Losses(hooks.Hook):
    ...   def round(self, event):
    ...     print(f'round {event.number}: loss {event.row["train/loss"]:.3g}')
    >>> losses = Losses()
    >>> losses.round(hooks.Round(row={'round': 1, 'train/loss': 0.25}))
    round 1: loss 0.25
  """

  def start(self, event: Start) -> None:
    """Called at the start of the run, before its first round."""

  def evaluation(self, event: Evaluation) -> None:
    """Called after an evaluation."""

  def round(self, event: Round) -> None:
    """Called after a round, once its row is written."""

  def end(self, event: End) -> None:
    """Called at the end of the run, however it ended."""


class Tracker(Hook):
  """A hook that logs rows of numbers, one by one."""

  def log(self, number: int, values: Mapping[str, float]) -> None:
    """Logs numbers of a round, by column of metrics.csv."""
    raise NotImplementedError

  def log_rows(self, rows: Sequence[Row]) -> None:
    """Logs rows of metrics.csv, without their empty cells."""
    for row in rows:
      self.log(int(row['round']), _numbers(row))

  def round(self, event: Round) -> None:
    self.log_rows([event.row])

  def evaluation(self, event: Evaluation) -> None:
    if event.final:  # Others are in the row of their round.
      self.log(event.round_number, _numbers(event.values))


def _numbers(values: Row) -> dict[str, float]:
  return {
    name: float(value)
    for name, value in values.items()
    if name != 'round' and value not in (None, '')
  }


def _forward(method: str) -> Callable[[Any, Any], None]:
  return lambda self, event: self.notify(method, event)


class HookList:
  """Several hooks, notified one after the other."""

  def __init__(self, hooks: Sequence[Any]):
    self._hooks = hooks

  def notify(self, method: str, event: Any) -> None:
    """Calls a method of every hook."""
    for hook in self._hooks:
      getattr(hook, method)(event)

  start = _forward('start')
  evaluation = _forward('evaluation')
  round = _forward('round')

  def end(self, event: End) -> None:
    """Tells every hook, even if an earlier one fails."""
    with contextlib.ExitStack() as stack:
      for hook in reversed(self._hooks):
        stack.callback(hook.end, event)


class Guarded(HookList):
  """A user's hook, whose unexpected errors do not end the run.

  The wrapped object need not be a `Hook`; missing methods are skipped.
  """

  def __init__(self, hook: Any, say: Callable[[str], None]):
    """Wraps a hook.

    Args:
      hook: The hook.
      say: Called with a message when the hook raises an exception.
    """
    super().__init__([hook])
    self._say = say

  def end(self, event: End) -> None:
    self.notify('end', event)

  def notify(self, method: str, event: Any) -> None:
    """Calls a method of the hook; disables the hook if that fails."""
    try:
      for hook in self._hooks:
        getattr(hook, method, lambda event: None)(event)
    except errors.RunError:
      raise
    # A user's hook may raise anything, which must not end the run.
    except (Exception, SystemExit) as e:  # pylint: disable=broad-exception-caught
      name = getattr(self._hooks[0], 'name', type(self._hooks[0]).__name__)
      self._hooks = []
      self._say(
        f'The recorder {name} is disabled and the run continues without it: '
        f'{type(e).__name__}: {errors.reason(e)}.'
      )


def number(cell: Any) -> float:
  """Parses a value as written to metrics.csv.

  A float32 is written with the fewest digits that identify it, which are those
  of another float64. Comparing parsed values makes resumed runs equal to
  uninterrupted ones.
  """
  return float(str(cell))


def group(row: Row, prefix: str) -> dict[str, Any]:
  """Returns the columns of a group, such as 'train', without the prefix."""
  return {
    name[len(prefix) + 1 :]: value
    for name, value in row.items()
    if name.startswith(prefix + '/')
  }
