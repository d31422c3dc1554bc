"""The model of a run's best round, beside the last checkpoints."""

import math
import pathlib
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import Optional

import numpy as np
import tree

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.checkpoints import files as checkpoint_files

_NAME = 'best_{}.safetensors'
_PATTERN = re.compile(r'best_([1-9][0-9]{0,15})\.safetensors')


def _paths(folder: pathlib.Path) -> dict[int, pathlib.Path]:
  """Finds the models that are kept, by round."""
  if not folder.is_dir():
    return {}
  found = ((_PATTERN.fullmatch(p.name), p) for p in folder.iterdir())
  return {int(m.group(1)): p for m, p in found if m}


class Best(hooks.Hook):
  """A keeper of the model of the best round so far; round 0 does not count.

  A better model is written beside the one before, which is removed once a
  checkpoint has the newer round: so a run that is killed in between still has
  it.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    goal: Any,
    weights: Callable[[], Any],
    run: str = '',
  ):
    """Writes nothing yet.

    Args:
      folder: Where checkpoints are.
      goal: Its `column` says by which values rounds are judged, its `is_better`
        how.
      weights: Returns the model that was evaluated.
      run: The identity of the run.
    """
    self._folder = folder
    self._goal = goal
    self._weights = weights
    self._run = run
    self._best: Optional[float] = None
    self._round = 0

  def start(self, event: hooks.Start) -> None:
    """Finds the best of the rounds that a resumed run has."""
    for row in event.rows:
      cell = row.get(self._goal.column)
      if cell:
        self._is_best(int(row['round']), hooks.number(cell))
    last = event.resumed_from or 0
    for number, path in _paths(self._folder).items():
      if number > last:
        path.unlink()

  def _is_best(self, number: int, value: float) -> bool:
    if number and self._goal.is_better(value, self._best):
      self._best, self._round = value, number
      return True
    return False

  def evaluation(self, event: hooks.Evaluation) -> None:
    """Writes the model if it is better than all before.

    Raises:
      RunError: If it cannot be written.
    """
    value = event.values.get(self._goal.column)
    if event.final or value is None:
      return
    number = event.round_number
    if self._is_best(number, hooks.number(value)):
      files.make_folder(self._folder)
      checkpoint_files.write(
        self._folder / _NAME.format(number),
        named(self._weights()),
        run=self._run,
        round_number=number,
      )

  def end(self, event: hooks.End) -> None:
    if event.status == hooks.FINISHED:
      self.prune(event.round_number)

  def prune(self, last_round: int) -> None:
    """Removes what is not needed once a round has its checkpoint."""
    found = _paths(self._folder)
    # Without the best round's, the run judged by another measure then, whose
    # best is kept until there is a better one by this measure.
    if self._round <= last_round and self._round in found:
      for number, path in found.items():
        if number < self._round:
          path.unlink(missing_ok=True)


def named(weights: Any) -> dict[str, Any]:
  """Returns the arrays of a model by their paths."""
  return {
    '/'.join(['weights', *map(str, path)]): leaf
    for path, leaf in tree.flatten_with_path(weights)
  }


def round_of(
  folder: pathlib.Path,
  rows: Iterable[Mapping[str, float]],
  column: str,
  last_round: int,
) -> int:
  """Finds the best round by a column of metrics.csv, whose model is kept.

  Args:
    folder: Where checkpoints are.
    rows: Of metrics.csv, as numbers by column; empty cells are left out.
    column: What rounds are judged by.
    last_round: The round of the last checkpoint. A run that was killed may have
      a row of a later round without a model of it.

  Raises:
    RunError: If the best round's model was not kept, because the run judged
      its rounds by another column then.
  """
  found = _paths(folder)
  better = max if metric_names.higher_is_better(column) else min
  values = {
    int(row['round']): row[column]
    for row in rows
    if not math.isnan(row.get(column, math.nan)) and row['round'] > 0
  }
  values = {n: v for n, v in values.items() if n <= last_round or n in found}
  if not values:
    raise errors.RunError(f'{folder} has no round with a value of {column}.')
  number = better(values, key=values.__getitem__)
  if found and number not in found:
    kept = ', '.join(map(str, sorted(found)))
    raise errors.RunError(
      f'Round {number} is the best by {column}, but its model was not kept: '
      'the run judged rounds by another measure (--target_metric) then. Kept '
      f'is the model of round {kept}, which the run judged best; take the '
      "last checkpoint's with --which=last."
    )
  return number


def load(
  folder: pathlib.Path, run: str, weights: Any, number: Optional[int] = None
) -> tuple[int, Any]:
  """Loads the model of the best round.

  Args:
    folder: Where checkpoints are.
    run: The identity of the run.
    weights: A model of the same shapes, as arrays.
    number: The best round, as `round_of` finds it; the latest that is kept
      unless given.

  Returns:
    The round, and the model.

  Raises:
    DamagedError: If it is damaged, or of another model.
    RunError: If there is none.
  """
  found = _paths(folder)
  if not found:
    raise errors.RunError(
      f'{folder} keeps no model of a best round: the run was evaluated at no '
      'round after the first, or is of an earlier version.'
    )
  if number is None:
    number = max(found)
  specs = {
    name: checkpoint_files.Spec.of(np.asarray(leaf))
    for name, leaf in named(weights).items()
  }
  arrays = checkpoint_files.read(
    found[number], run=run, round_number=number, specs=specs
  )
  return number, tree.unflatten_as(weights, [arrays[name] for name in specs])
