"""Whether a run has learned anything, by the rows of its metrics.csv."""

import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names

# How many times the loss of the untrained model is called grown.
_GROWN = 10.0
# And under the noise of differential privacy, where it should still fall.
_GROWN_UNDER_NOISE = 1.1
# A share that lost more than this, and more than a third of itself, has fallen.
_LOST = 0.2
_LOST_SHARE = 1 / 3
# A share no further from the untrained model's is at chance, unless the loss
# has left the untrained model's behind.
_CHANCE = 0.02
_LOSS_LEFT = 0.95
# One that starts above it was trained elsewhere.
_UNTRAINED = 0.6
# Evaluations before a model is expected to be better than at first.
_PATIENCE = 4


def evaluated(
  rows: Iterable[Mapping[str, Any]],
) -> list[tuple[int, float, Optional[tuple[str, float]]]]:
  """Returns the evaluations on validation data among the rows of a run.

  Args:
    rows: Of metrics.csv, as text or as numbers; empty cells may be missing.

  Returns:
    Round, loss (1 where it is missing), and the main metric with its name, if
    there is one.
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
  """Finds what is wrong with the model of the last evaluation.

  Args:
    rows: Of metrics.csv.

  Returns:
    Sentences by kind: 'loss' has grown tenfold since the untrained model or is
    not finite, it has grown under the 'noise' of differential privacy, the
    metric has 'fallen' far below its best, or is at 'chance'. Measures that are
    no shares, such as errors, have the first two kinds alone.
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
  told = (
    f'The validation loss is {formatting.number(last_loss)} after round '
    f'{last_round}, and was {formatting.number(first_loss)} after round '
    f'{first_round}: '
  )
  noise = (
    'the noise of differential privacy outweighs what clients send; more '
    'clients a round, a smaller server learning rate or less noise (a larger '
    'epsilon) may help.'
  )
  if grown or not math.isfinite(last_loss + first_loss):
    usual = 'training diverges; smaller learning rates may help.'
    found['loss'] = told + (noise if noised else usual)
  elif noised and last_loss > _GROWN_UNDER_NOISE * first_loss > 0:
    found['noise'] = told + noise
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
        'untrained model: nothing was learned; look at the learning rates.'
      )
  return found
