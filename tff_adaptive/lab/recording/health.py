"""Checks of whether a run has learned anything, from its metrics.csv."""

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names

# Ratio to the untrained model's loss above which a loss has grown.
_GROWN = 10.0
# The same under the noise of differential privacy.
_GROWN_UNDER_NOISE = 1.1
# A metric has fallen if it lost more than this and more than a third of its
# best value.
_LOST = 0.2
_LOST_SHARE = 1 / 3
# A metric this close to the untrained model's is at chance, unless the loss
# has fallen below this ratio to the untrained model's.
_CHANCE = 0.02
_LOSS_LEFT = 0.95
# A model with a higher initial metric was pretrained.
_UNTRAINED = 0.6
# Number of evaluations before an improvement is expected.
_PATIENCE = 4


@dataclasses.dataclass(frozen=True)
class _Look:
  """An evaluation on validation data.

  Attributes:
    round: Its round.
    loss: The loss; 1 if missing.
    metric: Name and value of the main metric, if any.
  """

  round: int
  loss: float
  metric: Optional[tuple[str, float]]


def _look(row: Mapping[str, Any]) -> Optional[_Look]:
  values = {
    name.partition('/')[2]: value
    for name, value in row.items()
    if name.startswith('validation/') and value not in (None, '')
  }
  if not values:
    return None
  name = metric_names.main_metric(values)
  return _Look(
    int(row['round']),
    float(values.get('loss', 1.0)),
    None if name is None else (name, float(values[name])),
  )


class Progress:
  """What a run's evaluations on validation data tell, row by row."""

  def __init__(self) -> None:
    self._count = 0
    self._first: Optional[_Look] = None
    self._last: Optional[_Look] = None
    # The best value of a metric, and the negated round, as the first counts.
    self._best = (-math.inf, 0)
    self._noised = False

  def add(self, row: Mapping[str, Any]) -> bool:
    """Adds a row of metrics.csv.

    Args:
      row: The row, as text or numbers; empty cells may be missing.

    Returns:
      Whether it has an evaluation.
    """
    if row.get('privacy/epsilon') not in ('', None):
      self._noised = True
    look = _look(row)
    if look is None:
      return False
    self._count += 1
    self._first = self._first or look
    self._last = look
    if look.metric is not None:
      self._best = max(self._best, (look.metric[1], -look.round))
    return True

  def concerns(self) -> dict[str, str]:
    """Describes problems of the model at the last evaluation.

    Returns:
      Sentences by kind. 'loss': the loss has grown tenfold since the untrained
      model or is not finite. 'noise': it has grown under the noise of
      differential privacy. 'fallen': the metric is far below its best.
      'chance': the metric is at chance level. The last two are checked for
      metrics between 0 and 1 only.
    """
    first, last = self._first, self._last
    if self._count < 2 or first is None or last is None:
      return {}
    found = {}
    grown = last.loss > _GROWN * first.loss > 0
    text = (
      f'The validation loss is {formatting.number(last.loss)} after round '
      f'{last.round}, and was {formatting.number(first.loss)} after round '
      f'{first.round}: '
    )
    noise = (
      'the noise of differential privacy outweighs the updates; more clients '
      'per round, a smaller server learning rate or less noise (a larger '
      'epsilon) may help.'
    )
    if grown or not math.isfinite(last.loss + first.loss):
      usual = 'training diverges; smaller learning rates may help.'
      found['loss'] = text + (noise if self._noised else usual)
    elif self._noised and last.loss > _GROWN_UNDER_NOISE * first.loss > 0:
      found['noise'] = text + noise
    if last.metric is None or not metric_names.is_share(last.metric[0]):
      return found
    name, value = last.metric
    words = metric_names.short(name).capitalize()
    best, best_round = self._best
    if best - value > max(_LOST, _LOST_SHARE * best):
      found['fallen'] = (
        f'{words} is {formatting.number(value)} after round {last.round}, far '
        f'below the {formatting.number(best)} of round {-best_round}; smaller '
        'learning rates may help, and the best round can be exported '
        '(--which=best).'
      )
    elif first.round == 0 and first.metric is not None:
      learned = last.loss < _LOSS_LEFT * first.loss
      near = value - _CHANCE <= first.metric[1] <= _UNTRAINED
      if self._count > _PATIENCE and near and not learned:
        found['chance'] = (
          f'{words} is {formatting.number(value)} after round {last.round}, no '
          f'better than the {formatting.number(first.metric[1])} of the '
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
