"""The model of a run's best round so far, which checkpoints hold."""

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import numpy as np

from tff_adaptive.lab.recording import hooks


class Best:
  """The best round so far, except round 0, with its model.

  Attributes:
    saved: The entries for a checkpoint: `round`, 0 without a best round, and
      the `model` after it.
  """

  def __init__(self, goal: Any, model: Any):
    """Starts without a best round.

    Args:
      goal: An object whose `column` names the measure of rounds and whose
        `is_better` compares its values.
      model: Any weights of the model.
    """
    self._goal = goal
    self._value: Optional[float] = None
    self.saved = _entries(0, model)

  def judge(
    self, number: int, row: Mapping[str, Any], model: Callable[[], Any]
  ) -> None:
    """Keeps the model of a round if it is better than all before.

    Args:
      number: The round.
      row: Its columns of metrics.csv; not compared without an evaluation.
      model: Returns the model after the round.
    """
    cell = row.get(self._goal.column)
    if not number or cell in (None, ''):
      return
    value = hooks.number(cell)
    if self._goal.is_better(value, self._value):
      self._value = value
      self.saved = _entries(number, model())

  def restore(
    self, saved: Mapping[str, Any], rows: Iterable[Mapping[str, str]]
  ) -> None:
    """Restores the entries of a checkpoint.

    Args:
      saved: The entries.
      rows: Rows of metrics.csv up to the checkpoint.
    """
    model = saved['model']
    for row in rows:
      self.judge(int(row['round']), row, lambda: model)
    if self.saved['round'] != saved['round']:
      # Rounds were compared by another measure then.
      self.saved = _entries(0, model)


def _entries(number: int, model: Any) -> Mapping[str, Any]:
  return collections.OrderedDict(round=np.int64(number), model=model)
