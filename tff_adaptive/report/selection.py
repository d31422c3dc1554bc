"""Which of many configurations is best: the papers' rules.

A rule makes one number of a run; runs that differ in their seeds only are
averaged, and the best average wins.
"""

import dataclasses
import math
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import TypeVar

_Key = TypeVar('_Key', bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Rule:
  """How a run is judged.

  Attributes:
    name: As --select takes it.
    help: What it is and whose.
    measure: Which of `measures` it looks at.
    of_loss: Whether that is a loss; else it is the task's metric.
  """

  name: str
  help: str
  measure: str
  of_loss: bool = False


RULES: Mapping[str, Rule] = {
  rule.name: rule
  for rule in (
    Rule(
      'train_loss',
      'lowest training loss, mean of the last 100 rounds, or of the last '
      'tenth of a run shorter than 1000 (Reddi et al.)',
      'train/loss',
      of_loss=True,
    ),
    Rule(
      'train_metric',
      'best training metric over the same rounds, as the code of Reddi et al. '
      'chose',
      'train/metric',
    ),
    Rule(
      'validation_metric',
      'best validation metric over the same rounds, the number that Reddi et '
      'al. report',
      'validation/metric',
    ),
    Rule(
      'best_round',
      'best validation metric of any evaluation of the run (Kim et al.)',
      'best/metric',
    ),
    Rule(
      'last_loss',
      "lowest training loss in the last round (Mukherjee et al.'s convex "
      'problems)',
      'last/loss',
      of_loss=True,
    ),
    Rule(
      'last_evaluations',
      'best mean of the validation metric over the last 10 evaluations '
      '(FedAda2)',
      'recent/metric',
    ),
  )
}
DEFAULT = 'train_loss'

# Measures of quality of which less is better, by a part of their names.
_LESS_IS_BETTER = ('loss', 'error', 'distance', 'perplexity')


def higher_is_better(metric: Optional[str]) -> bool:
  """Whether a metric of this name should go up."""
  return metric is not None and not any(w in metric for w in _LESS_IS_BETTER)


def window(total_rounds: int) -> int:
  """How many rounds at the end are averaged."""
  return max(1, min(100, math.ceil(total_rounds / 10)))


def _mean(values: Sequence[float]) -> float:
  return math.fsum(values) / len(values) if values else math.nan


def measures(
  rows: Sequence[Mapping[str, float]],
  metric: Optional[str],
  clients_per_round: int = 0,
) -> dict[str, float]:
  """A run in a few numbers.

  Args:
    rows: Of metrics.csv, empty cells left out.
    metric: The task's first measure of quality, if it has one.
    clients_per_round: To add up what the whole cohort sends.

  Returns:
    Means over the last rounds (`window`) of train/loss, train/metric,
    validation/loss and validation/metric; last/loss, best/metric,
    recent/metric as the rules say; test/loss and test/metric; megabytes and
    seconds of the whole run. What a run lacks is left out.
  """
  if not rows:
    return {}
  last = int(rows[-1]['round'])
  late = [r for r in rows if r['round'] > last - window(last) and r['round']]
  result: dict[str, float] = {}

  def column(source: Any, name: str) -> Any:
    return [row[name] for row in source if name in row]

  for split in ('train', 'validation'):
    for kind, name in (('loss', 'loss'), ('metric', metric)):
      values = column(late, f'{split}/{name}') if name else []
      # Evaluated too seldom for the window: the last evaluation stands.
      values = values or column(rows, f'{split}/{name}')[-1:]
      if values:
        result[f'{split}/{kind}'] = _mean(values)
  losses = column(rows, 'train/loss')
  if losses:
    result['last/loss'] = losses[-1]
  # The first row is the untrained model.
  values = column(rows[1:], f'validation/{metric}')
  if values:
    result['best/metric'] = (max if higher_is_better(metric) else min)(values)
    result['recent/metric'] = _mean(values[-10:])
  for kind, name in (('loss', 'loss'), ('metric', metric)):
    if f'test/{name}' in rows[-1]:
      result[f'test/{kind}'] = rows[-1][f'test/{name}']
  sent = column(rows, 'bytes_down'), column(rows, 'bytes_up')
  if sent[0] and clients_per_round:
    total = math.fsum(sent[0]) + math.fsum(sent[1])
    result['megabytes'] = total * clients_per_round / 1e6
  if seconds := column(rows, 'seconds'):
    result['seconds'] = math.fsum(seconds)
  return result


def score(
  rule: Rule, values: Mapping[str, float], metric: Optional[str]
) -> float:
  """A run's number under a rule, such that less is better.

  Infinite where the run has no such number or one that is not finite.
  """
  value = values.get(rule.measure, math.nan)
  if not math.isfinite(value):
    return math.inf
  return -value if not rule.of_loss and higher_is_better(metric) else value


def best(scores: Mapping[_Key, Sequence[float]]) -> Optional[_Key]:
  """The configuration with the best mean over its seeds, the first if equal.

  Args:
    scores: Of every configuration's runs, as `score` gives them; a run that
      failed is one with an infinite score.

  Returns:
    `None` if no configuration finished on all its seeds.
  """
  means = {k: _mean(v) if v else math.inf for k, v in scores.items()}
  finite = {k: m for k, m in means.items() if math.isfinite(m)}
  return min(finite, key=finite.__getitem__) if finite else None
