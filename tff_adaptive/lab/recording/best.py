"""The model of a run's best round, saved beside its checkpoints."""

import math
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import metric_names


class Best(hooks.Hook):
  """A hook that saves the model of the best round so far, except round 0.

  A better model is written, beside the previous one, when a checkpoint is about
  to include its round, and the previous one is removed after that. A run that
  is killed in between repeats the rounds since its last checkpoint, and has the
  model that it needs until then.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    goal: Any,
    weights: Callable[[], Any],
    run: str = '',
  ):
    """Creates the hook; nothing is written yet.

    Args:
      folder: The folder of checkpoints.
      goal: An object whose `column` names the measure of rounds and whose
        `is_better` compares its values.
      weights: Returns the model that was evaluated.
      run: The identity of the run.
    """
    self._folder = folder
    self._goal = goal
    self._weights = weights
    self._run = run
    self._best: Optional[float] = None
    self._round = 0
    # The best round's model, and the round of the last checkpoint.
    self._unwritten: Any = None
    self._saved = 0

  def start(self, event: hooks.Start) -> None:
    """Restores the best of the earlier rounds of a resumed run."""
    for row in event.rows:
      cell = row.get(self._goal.column)
      if cell:
        self._is_best(int(row['round']), hooks.number(cell))
    self._saved = event.resumed_from or 0
    for number, path in checkpoints.paths(self._folder, 'best').items():
      if number > self._saved:
        path.unlink()
    missing = self._round not in checkpoints.paths(self._folder, 'best')
    if self._round and self._round == event.resumed_from and missing:
      # The run ended between the checkpoint and this file.
      self._unwritten = self._weights()
      self.write()

  def _is_best(self, number: int, value: float) -> bool:
    if number and self._goal.is_better(value, self._best):
      self._best, self._round = value, number
      return True
    return False

  def evaluation(self, event: hooks.Evaluation) -> None:
    """Keeps the model if it is better than all before.

    Raises:
      RunError: If it has to be written, as its round has a checkpoint, and
        cannot be.
    """
    value = event.values.get(self._goal.column)
    if event.final or value is None:
      return
    number = event.round_number
    if self._is_best(number, hooks.number(value)):
      self._unwritten = self._weights()
      if number <= self._saved:
        self.write()

  def write(self) -> None:
    """Writes the model of the best round, unless it is written already.

    Raises:
      RunError: If it cannot be written.
    """
    if self._unwritten is None:
      return
    files.make_folder(self._folder)
    checkpoints.write(
      self._folder / f'best_{self._round}.safetensors',
      checkpoints.named(self._unwritten, 'weights'),
      run=self._run,
      round_number=self._round,
    )
    self._unwritten = None

  def end(self, event: hooks.End) -> None:
    if event.status == hooks.FINISHED:
      self.prune(event.round_number)

  def prune(self, last_round: int) -> None:
    """Removes models that are not needed once a round has its checkpoint."""
    self._saved = last_round
    found = checkpoints.paths(self._folder, 'best')
    # If the best round's model is missing, the run used another measure then.
    # The best model by that measure is kept until this measure has a better.
    if self._round <= last_round and self._round in found:
      for number, path in found.items():
        if number < self._round:
          path.unlink(missing_ok=True)


def round_of(
  folder: pathlib.Path,
  rows: Iterable[Mapping[str, float]],
  column: str,
  last_round: int,
  directions: Optional[Mapping[str, bool]] = None,
) -> int:
  """Returns the best round by a column of metrics.csv, if its model was saved.

  Args:
    folder: The folder of checkpoints.
    rows: Rows of metrics.csv as numbers by column, without empty cells.
    column: The column that rounds are compared by.
    last_round: The round of the last checkpoint. The rows of a killed run may
      include later rounds without a saved model.
    directions: Whether higher is better, by metric.

  Raises:
    RunError: If the best round's model was not saved, because the run compared
      rounds by another column.
  """
  found = checkpoints.paths(folder, 'best')
  rises = metric_names.require_direction(column, directions)
  better = max if rises else min
  values = {
    int(row['round']): row[column]
    for row in rows
    if not math.isnan(row.get(column, math.nan))
    and (0 < row['round'] <= last_round or row['round'] in found)
  }
  if not values:
    raise errors.RunError(f'{folder} has no round with a value of {column}.')
  number = better(values, key=values.__getitem__)
  if found and number not in found:
    kept = ', '.join(map(str, sorted(found)))
    raise errors.RunError(
      f'Round {number} is the best by {column}, but its model was not saved: '
      'at that time the run ranked rounds by another metric '
      f'(--target_metric). The saved best model is of round {kept}; use '
      '--which=last for the last checkpoint.'
    )
  return number


def load(folder: pathlib.Path, run: str, weights: Any, number: int) -> Any:
  """Loads the model of the best round.

  Args:
    folder: The folder of checkpoints.
    run: The identity of the run.
    weights: A model of the same shapes, as arrays.
    number: The best round, as returned by `round_of`.

  Returns:
    The model.

  Raises:
    DamagedError: If the file is damaged, or holds another model.
    RunError: If no model was saved.
  """
  found = checkpoints.paths(folder, 'best')
  if number not in found:
    raise errors.RunError(
      f'{folder} has no saved best model of round {number}: the run was never '
      'evaluated after the first round, or goes on and has a better one.'
    )
  like = checkpoints.named(weights, 'weights')
  arrays = checkpoints.read(
    found[number], run=run, round_number=number, like=like
  )
  return checkpoints.packed(weights, 'weights', arrays)
