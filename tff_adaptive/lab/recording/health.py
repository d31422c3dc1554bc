"""Checks of whether a run has learned anything, from its metrics.csv."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import hooks
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


def concerns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
  """Describes problems of the model at a run's last evaluation.

  Args:
    rows: Rows of metrics.csv, as text or numbers; empty cells may be missing.

  Returns:
    A sentence if the loss has grown tenfold since the untrained model, is not
    finite, or has grown under the noise of differential privacy; and one if the
    metric, a share, is far below its best or at chance level.
  """
  looks: list[tuple[int, dict[str, float]]] = []
  noised = False
  for row in rows:
    noised |= row.get('privacy/epsilon') not in ('', None)
    values = {
      name: float(value)
      for name, value in hooks.group(row, 'validation').items()
      if value not in (None, '')
    }
    if values:
      looks.append((int(row['round']), values))
  if len(looks) < 2:
    return []
  (begin, first), (end, last) = looks[0], looks[-1]
  before, loss = first.get('loss', 1.0), last.get('loss', 1.0)
  found = []
  diverged = loss > _GROWN * before > 0 or not math.isfinite(loss + before)
  if diverged or (noised and loss > _GROWN_UNDER_NOISE * before > 0):
    why = 'training diverges; smaller learning rates may help.'
    if noised:
      why = (
        'the noise of differential privacy outweighs the updates; more '
        'clients per round, a smaller server learning rate or less noise (a '
        'larger epsilon) may help.'
      )
    found.append(
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
  scores = {number: look.get(name, 0.0) for number, look in looks}
  best = max(scores, key=scores.__getitem__)
  lost = scores[best] - last[name]
  if lost > max(_LOST, _LOST_SHARE * scores[best]):
    found.append(
      f'{text}far below the {formatting.number(scores[best])} of round '
      f'{best}; smaller learning rates may help, and the best round can be '
      'exported (--which=best).'
    )
  elif (
    begin == 0
    and len(looks) > _PATIENCE
    and last[name] - _CHANCE <= scores[0] <= _UNTRAINED
    and loss >= _LOSS_LEFT * before
  ):
    found.append(
      f'{text}no better than the {formatting.number(scores[0])} of the '
      'untrained model: nothing was learned; check the learning rates.'
    )
  return found
