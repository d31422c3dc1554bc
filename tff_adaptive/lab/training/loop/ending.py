"""When a run ends before its last round, and which of its rounds is best.

Both are decided by evaluations on validation data. What was decided so far is
read from metrics.csv, so that a resumed run decides as an uninterrupted one
does.
"""

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import metric_names

# The groups of columns that evaluations during training write.
_GROUPS = ('validation', 'ema')


@dataclasses.dataclass(frozen=True)
class Goal:
  """The measure that rounds are judged by.

  Attributes:
    column: Its column in metrics.csv.
    rises: Whether more is better.
    target: The value that ends a run, if one does.
  """

  column: str
  rises: bool
  target: Optional[float] = None

  def is_better(self, value: float, than: Optional[float]) -> bool:
    if math.isnan(value):
      return False
    if than is None:
      return True
    return value > than if self.rises else value < than

  def is_reached(self, value: float) -> bool:
    if self.target is None:
      return False
    return value >= self.target if self.rises else value <= self.target


# Of a run that nothing ends early.
NO_GOAL = Goal('', rises=False)


def goal_of(target_metric: Optional[str], columns: Iterable[str]) -> Goal:
  """Makes the goal that --target_metric names, or the task's first measure.

  Args:
    target_metric: 'NAME:VALUE'; a measure of quality if there is one, else the
      loss, without a target, unless given. NAME is that of a metric, in full or
      as it is shown, or of a column such as 'ema/loss'.
    columns: Columns of metrics.csv.

  Raises:
    SettingsError: If no column has that name.
  """
  evaluated = [c for c in columns if c.partition('/')[0] in _GROUPS]
  names = {
    c.partition('/')[2]: None for c in evaluated if c.startswith('validation/')
  }
  if target_metric is None:
    column = f'validation/{metric_names.main_metric(names) or "loss"}'
    return Goal(column, metric_names.higher_is_better(column))
  asked, _, value = target_metric.rpartition(':')
  for column in evaluated:
    group, _, name = column.partition('/')
    short = metric_names.short(name).replace(' ', '_')
    called = [column, f'{group}/{short}']
    if group == 'validation':
      called += [name, short]
    if asked in called:
      rises = metric_names.higher_is_better(name)
      return Goal(column, rises, float(value))
  raise errors.SettingsError(
    f'--target_metric={target_metric}: evaluations have no {asked}; they have '
    f'{", ".join(names)}.'
  )


class Ending(hooks.Hook):
  """The rules that end a run early.

  Attributes:
    reason: Why the run is to end, once it is.
  """

  def __init__(self, goal: Goal, patience: Optional[int] = None):
    """Begins without an evaluation.

    Args:
      goal: What evaluations are judged by.
      patience: Evaluations in a row without a better one, after which the run
        ends; any number unless given.
    """
    self._goal = goal
    self._patience = patience
    self._best: Optional[float] = None
    self._waited = 0
    self.reason: Optional[str] = None

  def look_back(self, rows: Iterable[Mapping[str, Any]]) -> None:
    """Looks at the rows that a resumed run has."""
    for row in rows:
      self.judge(row)

  def evaluation(self, event: hooks.Evaluation) -> None:
    if not event.final:
      self.judge(event.values)

  def judge(self, values: Mapping[str, Any]) -> None:
    """Takes note of an evaluation, if the columns are of one."""
    cell = values.get(self._goal.column)
    if cell is None or cell == '':
      return
    value = hooks.number(cell)
    self.reason = None
    if self._goal.is_better(value, self._best):
      self._best, self._waited = value, 0
    else:
      self._waited += 1
    if self._goal.is_reached(value):
      self.reason = (
        f'{self._goal.column} is {value:.4g}, and --target_metric asked for '
        f'{self._goal.target:g}'
      )
    elif self._patience is not None and self._waited >= self._patience:
      self.reason = (
        f'{self._goal.column} was not better than {self._best:.4g} in '
        f'{self._waited} evaluations in a row'
        if self._best is not None
        else f'{self._goal.column} was no number in {self._waited} evaluations'
      )


def first_at_target(
  rows: Iterable[Mapping[str, Any]], target_metric: Optional[str]
) -> Optional[Mapping[str, Any]]:
  """Finds the row of the first evaluation that reached a target.

  Args:
    rows: Of metrics.csv, as numbers by column; empty cells are left out.
    target_metric: As for `goal_of`.

  Returns:
    `None` if none did, or there is no target.
  """
  if target_metric is None:
    return None
  found = list(rows)
  columns = dict.fromkeys(c for row in found for c in row)
  try:
    goal = goal_of(target_metric, columns)
  except errors.SettingsError:
    return None  # It was not evaluated yet.
  return next(
    (r for r in found if goal.is_reached(r.get(goal.column, math.nan))), None
  )


def is_over(
  rows: Sequence[Mapping[str, str]],
  target_metric: Optional[str],
  patience: Optional[int],
) -> bool:
  """Tells whether the rules end a run after the rows that it has."""
  if target_metric is None and patience is None:
    return False
  columns = dict.fromkeys(c for row in rows for c in row)
  try:
    ending = Ending(goal_of(target_metric, columns), patience)
  except errors.SettingsError:
    return False  # The run says so once it knows all columns.
  ending.look_back(rows)
  return ending.reason is not None
