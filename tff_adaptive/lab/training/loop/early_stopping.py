"""The end of a run: early stopping, divergence, its best round, warnings.

Early stopping and the best round use evaluations on validation data. A resumed
run reads the evaluations so far from metrics.csv, so that it stops where an
uninterrupted one does.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import health
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import metric_names

# The groups of columns of evaluations during training.
_GROUPS = ('validation', 'ema')


@dataclasses.dataclass(frozen=True)
class Result:
  """The result of a run.

  Attributes:
    rows: Rows of metrics.csv, as text by column.
    seconds: Seconds by phase, spent in this process; empty if the run was
      finished before.
    resumed_from: Round of the checkpoint that the run resumed from, or `None`.
  """

  rows: Sequence[Mapping[str, str]]
  seconds: Mapping[str, float]
  resumed_from: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Goal:
  """The metric that rounds are compared by.

  Attributes:
    column: Its column in metrics.csv.
    rises: Whether higher is better.
    target: The value at which a run ends; `None` for no target.
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


# Compares no rounds, and has no target.
NO_GOAL = Goal('', rises=False)
_BY_LOSS = Goal('validation/loss', rises=False)
_DIRECTIONS = {'max': True, 'min': False}


def goal_of(
  target_metric: Optional[str],
  columns: Iterable[str],
  directions: Optional[Mapping[str, bool]] = None,
) -> Goal:
  """Returns the goal of --target_metric, or the task's main metric.

  Args:
    target_metric: 'NAME:VALUE', 'NAME:max' or 'NAME:min', where NAME is a
      metric's full or short name or a column such as 'ema/loss'. If `None`, the
      goal is the main validation metric, without a target; or the loss, if
      there is none or its direction is not known.
    columns: Names of the columns of metrics.csv.
    directions: Whether higher is better, by metric, as far as it is known
      beyond `metric_names.higher_is_better`.

  Raises:
    SettingsError: If no column has that name, or the direction of the named
      metric is not known.
  """
  evaluated = [c for c in columns if c.partition('/')[0] in _GROUPS]
  names = {
    c.partition('/')[2]: None for c in evaluated if c.startswith('validation/')
  }
  if target_metric is None:
    column = f'validation/{metric_names.main_metric(names) or "loss"}'
    rises = metric_names.higher_is_better(column, directions)
    return _BY_LOSS if rises is None else Goal(column, rises)
  asked, _, value = target_metric.rpartition(':')
  for column in evaluated:
    group, _, name = column.partition('/')
    short = metric_names.short(name).replace(' ', '_')
    called = [column, f'{group}/{short}']
    if group == 'validation':
      called += [name, short]
    if asked in called:
      if value in _DIRECTIONS:
        return Goal(column, _DIRECTIONS[value])
      rises = metric_names.require_direction(name, directions)
      return Goal(column, rises, float(value))
  raise errors.SettingsError(
    f'--target_metric={target_metric}: evaluations have no {asked}; they have '
    f'{", ".join(names)}.'
  )


def diverged(row: Mapping[str, Any]) -> bool:
  """Returns whether a round's loss is not finite, or all updates were not."""
  loss, rejected = (row.get(c) for c in ('train/loss', 'clients/rejected'))
  if loss not in (None, ''):
    return not math.isfinite(hooks.number(loss))
  return rejected not in (None, '') and hooks.number(rejected) > 0


# Consecutive rounds without a finite loss after which a run ends.
_NON_FINITE = 10


def check_finite(
  rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> None:
  """Raises `RunError` if the training loss was not finite for ten rounds."""
  last = rows[-_NON_FINITE:]
  if len(last) < _NON_FINITE or not all(map(diverged, last)):
    return
  rates = [
    f'--{name}={value}'
    for name, value in settings.items()
    if name.endswith('learning_rate') and value is not None
  ]
  raise errors.RunError(
    f'The training loss was not finite in rounds {last[0]["round"]} to '
    f'{last[-1]["round"]}: training diverged. Lower '
    f'{" or ".join(rates) or "the step sizes"}, in another folder.'
  )


class EarlyStopping(hooks.Hook):
  """Early stopping by target and patience.

  Attributes:
    reason: Why the run ends now, a clause; `None` while it continues.
  """

  def __init__(self, goal: Goal, patience: Optional[int] = None):
    """Initializes the rules.

    Args:
      goal: The metric, with its target.
      patience: Number of consecutive evaluations without improvement after
        which the run ends; `None` for no limit.
    """
    self._goal = goal
    self._patience = patience
    self._best: Optional[float] = None
    self._waited = 0
    self.reason: Optional[str] = None

  def look_back(self, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replays the rows of a resumed run."""
    for row in rows:
      self.judge(row)

  def evaluation(self, event: hooks.Evaluation) -> None:
    if not event.final:
      self.judge(event.values)

  def judge(self, values: Mapping[str, Any]) -> None:
    """Updates the rules with a row, if it has an evaluation."""
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
        f'{self._waited} consecutive evaluation{"s" * (self._waited > 1)}'
        if self._best is not None
        else f'{self._goal.column} was no number in {self._waited} '
        f'evaluation{"s" * (self._waited > 1)}'
      )


def first_at_target(
  rows: Iterable[Mapping[str, Any]],
  target_metric: Optional[str],
  directions: Optional[Mapping[str, bool]] = None,
) -> Optional[Mapping[str, Any]]:
  """Finds the row of the first evaluation that reached a target.

  Args:
    rows: Rows of metrics.csv, as numbers by column without empty cells.
    target_metric: As `goal_of` takes it.
    directions: Likewise.

  Returns:
    The row; `None` if none reached the target, or there is no target.
  """
  if target_metric is None:
    return None
  found = list(rows)
  goal = _goal_in(found, target_metric, directions)
  return next(
    (r for r in found if goal.is_reached(r.get(goal.column, math.nan))), None
  )


def _goal_in(
  rows: Sequence[Mapping[str, Any]],
  target_metric: Optional[str],
  directions: Optional[Mapping[str, bool]],
) -> Goal:
  """Returns the goal by the columns of rows; no goal if it has no column."""
  columns = dict.fromkeys(c for row in rows for c in row)
  try:
    return goal_of(target_metric, columns, directions)
  except errors.SettingsError:
    return NO_GOAL  # The metric was not evaluated yet, or the run will raise.


def is_over(
  rows: Sequence[Mapping[str, str]],
  target_metric: Optional[str],
  patience: Optional[int],
  directions: Optional[Mapping[str, bool]] = None,
) -> bool:
  """Returns whether early stopping ends a run after the given rows."""
  if target_metric is None and patience is None:
    return False
  stopping = EarlyStopping(_goal_in(rows, target_metric, directions), patience)
  stopping.look_back(rows)
  return stopping.reason is not None


# Consecutive rounds with all steps at their bound, before a warning.
_ROUNDS = 5
_LAST_BIT = 1e-6


class PlateauWarning(hooks.Hook):
  """A listener that warns if a run makes no progress.

  Warns once per run each if every step of every client is at its upper bound,
  as if the step size were fixed, and of each of `health.concerns`; the last are
  repeated at the end.
  """

  def __init__(
    self, say: Callable[[str], None], bounds: Optional[Mapping[str, Any]] = None
  ):
    """Initializes the listener.

    Args:
      say: Called with each warning, a sentence.
      bounds: Values of the hyperparameters that bound clients' steps, by name.
    """
    self._say = say
    self._bounds = bounds or {}
    self._bounded: list[int] = []
    self._told: set[str] = set()
    self._progress = health.Progress()
    self._concerns: dict[str, str] = {}

  def start(self, event: hooks.Start) -> None:
    """Reads the evaluations of a resumed run."""
    self._look_at_health(event.rows)

  def end(self, event: hooks.End) -> None:
    """Repeats the current concerns about a finished run's model."""
    if event.status == hooks.FINISHED:
      for sentence in self._concerns.values():
        self._say(sentence)

  def round(self, event: hooks.Round) -> None:
    self._look_at_steps(event.row)
    before = self._concerns
    self._look_at_health([event.row])
    for kind, sentence in self._concerns.items():
      # A single bad evaluation of a metric may be due to chance.
      if kind == 'loss' or (kind in before and before is not self._concerns):
        self._tell(kind, sentence)

  def _look_at_health(self, rows: Iterable[Mapping[str, Any]]) -> None:
    if any([self._progress.add(row) for row in rows]):
      self._concerns = self._progress.concerns()

  def _tell(self, kind: str, sentence: str) -> None:
    if kind not in self._told:
      self._told.add(kind)
      self._say(sentence)

  def _look_at_steps(self, row: Mapping[str, Any]) -> None:
    share = row.get('step_size/at_bound')
    if share in (None, '') or float(share) < 1 - _LAST_BIT:
      self._bounded = []
      return
    self._bounded.append(int(row['round']))
    if len(self._bounded) < _ROUNDS:
      return
    low, high = (float(row[f'step_size/{end}']) for end in ('min', 'max'))
    at = formatting.number(high)
    if high - low > _LAST_BIT * high:
      at = f'{formatting.number(low)} to {at}'
    bounds = ', '.join(
      f'--{name}={formatting.number(value)}'
      for name, value in self._bounds.items()
    )
    self._tell(
      'steps',
      f'In rounds {self._bounded[0]} to {self._bounded[-1]} every step of '
      f'every client was at its upper bound ({at}): clients train as with a '
      'fixed learning rate, which may be too large or too small'
      + (f'; another bound than {bounds} may help.' if bounds else '.'),
    )
