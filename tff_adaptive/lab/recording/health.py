"""Checks of whether a run has learned anything, from its metrics.csv."""

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


def evaluated(
  rows: Iterable[Mapping[str, Any]],
) -> list[tuple[int, float, Optional[tuple[str, float]]]]:
  """Returns a run's evaluations on validation data.

  Args:
    rows: Rows of metrics.csv, as text or numbers; empty cells may be missing.

  Returns:
    Round, loss (1 if missing), and name and value of the main metric, if any.
  """
  found = []
  for row in rows:
    values = {
      name.partition('/')[2]: value
      for name, value in row.items()
      if name.startswith('validation/') and value not in (None, '')
    }
    if values:
      name = metric_names.main_metric(values)
      metric = None if name is None else (name, float(values[name]))
      loss = float(values.get('loss', 1.0))
      found.append((int(row['round']), loss, metric))
  return found


def concerns(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
  """Describes problems of the model at the last evaluation.

  Args:
    rows: Rows of metrics.csv.

  Returns:
    Sentences by kind. 'loss': the loss has grown tenfold since the untrained
    model or is not finite. 'noise': it has grown under the noise of
      differential
    privacy. 'fallen': the metric is far below its best. 'chance': the metric is
    at chance level. The last two are checked for metrics between 0 and 1 only.
  """
  rows = list(rows)
  looks = evaluated(rows)
  if len(looks) < 2:
    return {}
  found = {}
  (first_round, first_loss, first_metric), *_ = looks
  last_round, last_loss, last_metric = looks[-1]
  grown = last_loss > _GROWN * first_loss > 0
  noised = any(row.get('privacy/epsilon') not in ('', None) for row in rows)
  text = (
    f'The validation loss is {formatting.number(last_loss)} after round '
    f'{last_round}, and was {formatting.number(first_loss)} after round '
    f'{first_round}: '
  )
  noise = (
    'the noise of differential privacy outweighs the updates; more clients '
    'per round, a smaller server learning rate or less noise (a larger '
    'epsilon) may help.'
  )
  if grown or not math.isfinite(last_loss + first_loss):
    usual = 'training diverges; smaller learning rates may help.'
    found['loss'] = text + (noise if noised else usual)
  elif noised and last_loss > _GROWN_UNDER_NOISE * first_loss > 0:
    found['noise'] = text + noise
  if last_metric is None or not metric_names.is_share(last_metric[0]):
    return found
  name, value = last_metric
  words = metric_names.short(name).capitalize()
  best, best_round = max(
    (metric[1], -number) for number, _, metric in looks if metric is not None
  )
  if best - value > max(_LOST, _LOST_SHARE * best):
    found['fallen'] = (
      f'{words} is {formatting.number(value)} after round {last_round}, far '
      f'below the {formatting.number(best)} of round {-best_round}; smaller '
      'learning rates may help, and the best round can be exported '
      '(--which=best).'
    )
  elif first_round == 0 and first_metric is not None:
    learned = last_loss < _LOSS_LEFT * first_loss
    near = value - _CHANCE <= first_metric[1] <= _UNTRAINED
    if len(looks) > _PATIENCE and near and not learned:
      found['chance'] = (
        f'{words} is {formatting.number(value)} after round {last_round}, no '
        f'better than the {formatting.number(first_metric[1])} of the '
        'untrained model: nothing was learned; check the learning rates.'
      )
  return found
