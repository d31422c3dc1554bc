"""A hook that ends runs that diverge or are pruned."""

import math
import signal
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training.loop import stopping

# Consecutive rounds far above the initial loss, or without a usable update,
# after which a run has diverged.
_PATIENCE = 3
_SECONDS_BETWEEN_REPORTS = 0.5


class DivergedError(errors.RunError):
  """Raised when a run has diverged."""


class Pruned(stopping.Stopped):
  """Raised when a run is worse than others after equally many rounds."""

  def __init__(self, reason: str):
    super().__init__(signal.SIGTERM)
    self.reason = reason


class Watch(hooks.Hook):
  """A hook that ends a run once it has diverged or is pruned."""

  def __init__(
    self,
    *,
    divergence_factor: float,
    report: Callable[[int], None] = lambda _: None,
    compare: Callable[[Sequence[Mapping[str, float]]], None] = lambda _: None,
  ):
    """Starts without any row.

    Args:
      divergence_factor: See `worker.Job`.
      report: Called periodically with the number of the round.
      compare: Called with the rows so far; may raise `Pruned`.
    """
    self._factor = divergence_factor
    self._report = report
    self._compare = compare
    self._rows: list[Mapping[str, float]] = []
    self._reported = -math.inf
    self._untrained: Optional[float] = None
    # Sets of rounds, so that a round repeated after a resume counts once.
    self._above: set[int] = set()
    self._useless: set[int] = set()

  def look_back(self, rows: Iterable[Mapping[str, Any]]) -> None:
    """Checks the earlier rounds of a resumed run.

    Raises:
      DivergedError, Pruned: If the run should have ended.
    """
    for row in rows:
      self._judge(row)

  def round(self, event: hooks.Round) -> None:
    """Checks a round.

    Raises:
      DivergedError, Pruned: If the run has diverged or is pruned.
    """
    if time.monotonic() - self._reported >= _SECONDS_BETWEEN_REPORTS:
      self._reported = time.monotonic()
      self._report(event.number)
    self._judge(event.row)

  def _judge(self, row: Mapping[str, Any]) -> None:
    number = int(row['round'])
    # A round repeated after a resume replaces its row.
    del self._rows[number:]
    self._rows.append({k: float(v) for k, v in row.items() if v is not None})
    self._judge_loss(number, row)
    self._compare(self._rows)

  def _judge_loss(self, number: int, row: Mapping[str, Any]) -> None:
    if number == 0:
      value = row.get('validation/loss')
      self._untrained = None if value is None else float(value)
      return
    loss = float(row.get('train/loss', 0.0))
    if not math.isfinite(loss):
      raise DivergedError(f'the training loss of round {number} is {loss}')
    limit = self._factor * (self._untrained or 0.0)
    if _too_many(self._above, number, 0 < limit < loss):
      raise DivergedError(
        f'the training loss of round {number} is {loss:.4g}, and exceeded '
        f'{self._factor:g} times that of the untrained model for {_PATIENCE} '
        'rounds'
      )
    count = row.get('clients/count')
    rejected = count is not None and int(count) == int(
      row.get('clients/rejected', 0)
    )
    useless = rejected or bool(row.get('update/non_finite'))
    if _too_many(self._useless, number, useless):
      raise DivergedError(
        f'no update was finite in the {_PATIENCE} rounds up to {number}'
      )


def _too_many(bad: set[int], number: int, is_bad: bool) -> bool:
  """Records whether a round was bad; returns whether the last few all were."""
  (bad.add if is_bad else bad.discard)(number)
  return all(number - i in bad for i in range(_PATIENCE))
