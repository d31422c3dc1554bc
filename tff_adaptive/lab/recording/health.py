"""Checks of whether a run has learned anything, from its metrics.csv."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names

# Ratio to the untrained model's loss above which a loss has grown, and the same
# under the noise of differential privacy.
_GROWN, _GROWN_UNDER_NOISE = 10.0, 1.1
# A metric has fallen if it lost more than this and more than a third of its
# best value.
_LOST, _LOST_SHARE = 0.2, 1 / 3
# A metric this close to the untrained model's is at chance, unless the loss
# has fallen below this ratio to the untrained model's.
_CHANCE, _LOSS_LEFT = 0.02, 0.95
# A model with a higher initial metric was pretrained.
_UNTRAINED = 0.6
# Number of evaluations before an improvement is expected.
_PATIENCE = 4


class Progress:
  """What a run's evaluations on validation data tell, row by row."""

  def __init__(self) -> None:
    # Round and values of every evaluation.
    self._looks: list[tuple[int, dict[str, float]]] = []
    self._noised = False

  def add(self, row: Mapping[str, Any]) -> bool:
    """Adds a row of metrics.csv.

    Args:
      row: The row, as text or numbers; empty cells may be missing.

    Returns:
      Whether it has an evaluation.
    """
    self._noised |= row.get('privacy/epsilon') not in ('', None)
    values = {
      name.partition('/')[2]: float(value)
      for name, value in row.items()
      if name.startswith('validation/') and value not in (None, '')
    }
    if values:
      self._looks.append((int(row['round']), values))
    return bool(values)

  def concerns(self) -> dict[str, str]:
    """Describes problems of the model at the last evaluation.

    Returns:
      Sentences by kind. 'loss': the loss has grown tenfold since the untrained
      model or is not finite. 'noise': it has grown under the noise of
      differential privacy. 'fallen': the metric is far below its best.
      'chance': the metric is at chance level. Metrics are checked if they are
      between 0 and 1.
    """
    if len(self._looks) < 2:
      return {}
    (begin, first), (end, last) = self._looks[0], self._looks[-1]
    before, loss = first.get('loss', 1.0), last.get('loss', 1.0)
    found = {}
    diverged = loss > _GROWN * before > 0 or not math.isfinite(loss + before)
    if diverged or (self._noised and loss > _GROWN_UNDER_NOISE * before > 0):
      why = 'training diverges; smaller learning rates may help.'
      if self._noised:
        why = (
          'the noise of differential privacy outweighs the updates; more '
          'clients per round, a smaller server learning rate or less noise (a '
          'larger epsilon) may help.'
        )
      found['loss' if diverged else 'noise'] = (
        f'The validation loss is {formatting.number(loss)} after round {end}, '
        f'and was {formatting.number(before)} after round {begin}: {why}'
      )
    name = metric_names.main_metric(last)
    if name is None or not metric_names.is_share(name):
      return found
    text = (
      f'{metric_names.short(name).capitalize()} is '
      f'{formatting.number(last[name])} after round {end}, '
    )
    values = {number: look.get(name, 0.0) for number, look in self._looks}
    best = max(values, key=values.__getitem__)
    lost = values[best] - last[name]
    if lost > max(_LOST, _LOST_SHARE * values[best]):
      found['fallen'] = (
        f'{text}far below the {formatting.number(values[best])} of round '
        f'{best}; smaller learning rates may help, and the best round can be '
        'exported (--which=best).'
      )
    elif (
      begin == 0
      and len(self._looks) > _PATIENCE
      and last[name] - _CHANCE <= values[0] <= _UNTRAINED
      and loss >= _LOSS_LEFT * before
    ):
      found['chance'] = (
        f'{text}no better than the {formatting.number(values[0])} of the '
        'untrained model: nothing was learned; check the learning rates.'
      )
    return found


def concerns(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
  """Describes problems of a run's last model; see `Progress.concerns`.

  Args:
    rows: Rows of metrics.csv.
  """
  progress = Progress()
  for row in rows:
    progress.add(row)
  return progress.concerns()
