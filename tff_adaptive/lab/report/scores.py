"""Scores of runs, which select configurations, and their uncertainty.

A rule maps a run to one number. Scores of runs that differ only in their seeds
are averaged, and the configuration with the best average is selected.
"""

import dataclasses
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Optional, TypeVar

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names

_Key = TypeVar('_Key', bound=Hashable)
# Number of seeds from which on a confidence interval is shown.
SEEDS_FOR_AN_INTERVAL = 3


@dataclasses.dataclass(frozen=True)
class SelectionRule:
  """A rule that scores runs.

  Attributes:
    name: The name, as accepted by --select.
    help: A description with its source.
    measure: The measure, one of those of `measures`.
  """

  name: str
  help: str
  measure: str

  def of_task(self, metric: Optional[str]) -> str:
    """Returns the measure; that of the loss in a task without a metric."""
    return self.measure if metric else self.measure.replace('/metric', '/loss')


_AT_THE_END = (
  'over the last 100 rounds, or the last tenth of a run shorter than 1000'
)

RULES: Mapping[str, SelectionRule] = {
  rule.name: rule
  for rule in (
    SelectionRule(
      'train_loss',
      f'lowest mean of the training loss {_AT_THE_END} (Reddi et al.)',
      'train/loss',
    ),
    SelectionRule(
      'train_metric',
      f'best mean of the training metric {_AT_THE_END}, as the code of Reddi '
      'et al. chose',
      'train/metric',
    ),
    SelectionRule(
      'validation_metric',
      f'best mean of the validation metric {_AT_THE_END}, the number that '
      'Reddi et al. report; the loss in a task without a metric',
      'validation/metric',
    ),
    SelectionRule(
      'best_round',
      'best validation metric of any evaluation of the run (Kim et al.)',
      'best/metric',
    ),
    SelectionRule(
      'last_loss',
      "lowest training loss in the last round (Mukherjee et al.'s convex "
      'problems)',
      'last/loss',
    ),
    SelectionRule(
      'last_evaluations',
      'best mean of the validation metric over the last 10 evaluations '
      '(FedAda2)',
      'recent/metric',
    ),
  )
}
# The default rule, and the default if validation uses test data, which must not
# select anything unless asked to.
DEFAULT = 'validation_metric'
WITHOUT_VALIDATION = 'train_loss'
DEFAULTS = (
  f'{DEFAULT}, or {WITHOUT_VALIDATION} where validation looks at test data '
  '(--validation_split=test, as in presets)'
)


def default_rule(settings: Iterable[Mapping[str, Any]]) -> str:
  """Returns the name of the default rule for runs with these settings."""
  looks = any(s.get('validation_split', 'test') == 'test' for s in settings)
  return WITHOUT_VALIDATION if looks else DEFAULT


def window(total_rounds: int) -> int:
  """Returns the number of final rounds to average."""
  return max(1, min(100, math.ceil(total_rounds / 10)))


def mean(values: Sequence[float]) -> float:
  """Returns the mean; NaN without values."""
  return math.fsum(values) / len(values) if values else math.nan


def student_t(counts: Any) -> Any:
  """Returns the factors of standard errors that give 95 % intervals.

  Args:
    counts: Numbers of values, at least 2 where a factor is wanted.
  """
  # Takes a second to import, which tables of single runs should not pay.
  from scipy import stats  # pylint: disable=g-import-not-at-top

  return stats.t.ppf(0.975, counts - 1)


def interval(values: Sequence[float]) -> float:
  """Returns half the width of the mean's 95 % confidence interval.

  It is 0 for a single value.
  """
  if len(values) < 2:
    return 0.0
  error = statistics.stdev(values) / math.sqrt(len(values))
  return float(student_t(len(values)) * error)


@dataclasses.dataclass(frozen=True)
class Mean:
  """A mean over seeds with its interval.

  Attributes:
    mean: The mean.
    low: Lower end of the mean's 95 % confidence interval (Student's t), or the
      smaller of two values; `None` if all seeds have the same value.
    high: Upper end of the interval, or the larger of two values.
    count: Number of seeds that have a value.
    planned: Number of all seeds.
  """

  mean: float
  low: Optional[float]
  high: Optional[float]
  count: int
  planned: int

  def text(self, decimals: int, scale: float = 1.0) -> tuple[str, str]:
    """Formats the mean and its interval.

    Args:
      decimals: Number of decimals.
      scale: A factor, 100 for percent.

    Returns:
      A pair such as ('92.7', '[92.1, 93.3]'), or ('92.7', '(92.1 to 93.3)') for
      two seeds.
    """
    beside = ''
    notes = []
    if self.low is not None and self.high is not None:
      low, high = (
        formatting.fixed(scale * v, decimals) for v in (self.low, self.high)
      )
      if self.count >= SEEDS_FOR_AN_INTERVAL:
        beside = f'[{low}, {high}]'
      else:
        notes.append(f'{low} to {high}')
    if self.count < self.planned:
      notes.append(f'n = {self.count}')
    beside += f' ({", ".join(notes)})' if notes else ''
    return formatting.fixed(scale * self.mean, decimals), beside.strip()


def mean_of(
  values: Sequence[float],
  bounds: tuple[float, float] = (-math.inf, math.inf),
  *,
  planned: int = 0,
) -> Optional[Mean]:
  """Returns the mean of values with its interval; `None` without values.

  Args:
    values: One value per seed; non-finite ones are ignored.
    bounds: The smallest and the largest possible value, at which intervals end.
    planned: Number of all seeds, if larger.
  """
  values = [v for v in values if math.isfinite(v)]
  if not values:
    return None
  low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
  if low == high:
    low = high = None
  elif len(values) >= SEEDS_FOR_AN_INTERVAL:
    low, high = confidence(values, bounds)
  return Mean(mean(values), low, high, len(values), max(planned, len(values)))


def confidence(
  values: Sequence[float], bounds: tuple[float, float]
) -> tuple[float, float]:
  """Returns the ends of the mean's 95 % confidence interval.

  The interval is clipped to the measure's bounds, unless values lie beyond
  them.

  Args:
    values: One value per seed.
    bounds: The smallest and the largest possible value of the measure.
  """
  middle, half = mean(values), interval(values)
  return (
    max(middle - half, min(bounds[0], *values)),
    min(middle + half, max(bounds[1], *values)),
  )


def difference(
  one: Mapping[_Key, float], other: Mapping[_Key, float]
) -> Optional[tuple[float, float]]:
  """Returns the 95 % confidence interval of a difference of means.

  Runs of the same seed have the same clients in the same rounds and are
  compared in pairs. If the seeds differ, Welch's interval is used.

  Args:
    one: A configuration's values by seed.
    other: The values to subtract, by seed.

  Returns:
    The ends of the interval; `None` if there are too few seeds.
  """
  if min(len(one), len(other)) < SEEDS_FOR_AN_INTERVAL:
    return None
  if one.keys() == other.keys():
    gaps = [one[k] - other[k] for k in one]
    return confidence(gaps, (-math.inf, math.inf))
  from scipy import stats  # pylint: disable=g-import-not-at-top

  values = list(one.values()), list(other.values())
  if all(min(v) == max(v) for v in values):
    gap = mean(values[0]) - mean(values[1])
    return gap, gap
  test = stats.ttest_ind(*values, equal_var=False)
  low, high = test.confidence_interval(0.95)
  return float(low), float(high)


def measures(
  rows: Sequence[Mapping[str, float]],
  metric: Optional[str],
  clients_per_round: int = 0,
  rises: Optional[bool] = None,
) -> dict[str, float]:
  """Summarizes a run in a few numbers.

  Args:
    rows: Rows of metrics.csv, without empty cells.
    metric: The task's first metric, if it has one.
    clients_per_round: Cohort size, to compute the traffic of all clients.
    rises: Whether a higher metric is better; by its name if `None`. If that is
      not known, best/metric is left out.

  Returns:
    Means over the last rounds (`window`) of train/loss, train/metric,
    validation/loss and validation/metric; last/loss, best/metric and
    recent/metric as defined by the rules, or best/loss and recent/loss in a
    task without a metric; test/loss and test/metric; megabytes
    and virtual_seconds of the whole run; first_seconds until the end of the
    first round, which is traced, and seconds after it. Missing measures are
    left out.
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
      # Without an evaluation in the window, the last one is used.
      values = values or column(rows, f'{split}/{name}')[-1:]
      if values:
        result[f'{split}/{kind}'] = mean(values)
  losses = column(rows, 'train/loss')
  if losses:
    result['last/loss'] = losses[-1]
  # The first row belongs to the untrained model.
  values = column(rows[1:], f'validation/{metric or "loss"}')
  if values:
    kind = 'metric' if metric else 'loss'
    if rises is None:
      rises = metric_names.higher_is_better(metric)
    # As `recording.best` has it: a metric may be 0 / 0 at first.
    known = [value for value in values if math.isfinite(value)] or values
    if rises is not None:
      result[f'best/{kind}'] = (max if rises else min)(known)
    result[f'recent/{kind}'] = mean(values[-10:])
  for kind, name in (('loss', 'loss'), ('metric', metric)):
    if f'test/{name}' in rows[-1]:
      result[f'test/{kind}'] = rows[-1][f'test/{name}']
  if clients_per_round and column(rows, 'bytes_down'):
    sent = math.fsum(bytes_sent(row, clients_per_round) for row in rows)
    result['megabytes'] = sent / 1e6
  first = [row for row in rows if row['round'] <= 1]
  for name, part in (('first_seconds', first), ('seconds', rows[len(first) :])):
    if seconds := column(part, 'seconds'):
      result[name] = math.fsum(seconds)
  if virtual := column(rows, metric_names.VIRTUAL_SECONDS):
    result['virtual_seconds'] = virtual[-1]
  return result


def bytes_sent(row: Mapping[str, float], clients_per_round: int) -> float:
  """Returns the bytes that the server and all clients sent in a round.

  Clients that dropped out or answered too late have received the model.

  Args:
    row: A row of metrics.csv.
    clients_per_round: The cohort size, if all clients answer.
  """
  down = up = float(clients_per_round)
  if 'virtual/selected' in row:
    down = row['virtual/selected']
    up = row.get('clients/count', 0.0) + row['virtual/late']
  return row.get('bytes_down', 0.0) * down + row.get('bytes_up', 0.0) * up


def score(
  rule: SelectionRule,
  values: Mapping[str, float],
  metric: Optional[str],
  *,
  rises: Optional[bool] = None,
  finished: bool = True,
) -> float:
  """Scores a run under a rule; lower is better.

  The score is infinite if the run is not finished, or if its measure is missing
  or not finite.

  Args:
    rule: The rule.
    values: The run's `measures`.
    metric: The task's first metric, if it has one.
    rises: Whether a higher metric is better; by its name if `None`.
    finished: Whether the run finished.

  Raises:
    SettingsError: If the rule needs the direction of the metric, and it is not
      known.
  """
  measure = rule.of_task(metric)
  of_loss = measure.endswith('/loss')
  if not of_loss and rises is None:
    rises = metric_names.require_direction(metric)
  value = values.get(measure, math.nan)
  if not finished or not math.isfinite(value):
    return math.inf
  return -value if not of_loss and rises else value


def best(scores: Mapping[_Key, Sequence[float]]) -> Optional[_Key]:
  """Returns the configuration with the best mean score, the first if equal.

  Args:
    scores: Scores of the runs of every configuration; see `score`.

  Returns:
    The configuration; `None` if none finished on all its seeds.
  """
  means = {k: mean(v) if v else math.inf for k, v in scores.items()}
  finite = {k: m for k, m in means.items() if math.isfinite(m)}
  return min(finite, key=finite.__getitem__) if finite else None
