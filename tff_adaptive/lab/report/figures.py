"""The figures of a report over several runs."""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Mapping
from typing import Optional

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import step_figures
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import seeds

COST = 'Quality against time and traffic'
SINGLE_CLIENTS = 'Quality on single clients'
# Groups of columns about single clients, with their descriptions.
CLIENT_GROUPS = {
  'per_client': '',
  'per_client_tuned': 'after training there',
}
# Ratios of largest to smallest value above which an axis is logarithmic.
_WIDE = 10
# Large, so that the axis is logarithmic only if a method has diverged.
_WIDE_ROUNDS = 1000


def by_round(
  best: seeds.Best,
  column: str,
  label: str,
  *,
  name: str,
  title: str,
  caption: str,
  bounds: tuple[float, float],
  share: bool = False,
) -> Optional[charts.Chart]:
  """Builds a chart of a column of metrics.csv by round.

  Args:
    best: The best configuration of every method.
    column: A column of metrics.csv.
    label: The column's name in words.
    name: Base name of the figure's files.
    title: The figure's heading.
    caption: The figure's caption.
    bounds: The smallest and the largest possible value of the column.
    share: Whether values are fractions.
  """

  def series(run: results.Run) -> seeds.Points:
    rounds, values = run.series(column)
    return rounds, rounds, values

  lines = seeds.lines(best, series, bounds)
  if not lines:
    return None
  values = [v for line in lines for v in line.y if math.isfinite(v)]
  wide = min(values) > 0 and max(values) > _WIDE_ROUNDS * min(values)
  return charts.Chart(
    name,
    title,
    caption + charts.together(lines),
    'round',
    label,
    lines,
    log_y=wide,
    whole_x=True,
    share=share,
  )


def curves(best: seeds.Best, judge: sections.Judge) -> list[charts.Chart]:
  """Builds charts of training loss and validation quality by round."""
  panels = {'train/loss': ('training loss', 'training_loss', 'loss')}
  panels[judge.column] = (
    judge.label,
    'validation',
    judge.metric or 'loss',
  )
  drawn = [
    by_round(
      best,
      column,
      label,
      name=name,
      title='Curves',
      caption=f'{charts.sentence(label)} by round: the best configuration '
      'of every method.',
      bounds=metric_names.bounds(measure),
      share=metric_names.is_share(measure),
    )
    for column, (label, name, measure) in panels.items()
  ]
  return [chart for chart in drawn if chart is not None]


def against_time(
  best: seeds.Best, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Builds a chart of quality against elapsed time.

  Time is virtual if runs have virtual time, otherwise the machine's.
  """
  columns = {c for b in best.values() for run in b.runs for c in run.columns}
  virtual = metric_names.VIRTUAL_SECONDS in columns
  if virtual:
    series = _against(judge.column, metric_names.VIRTUAL_SECONDS)
  else:
    series = _summed(judge.column, lambda run, row: row.get('seconds', 0.0))
  lines = seeds.lines(best, series, judge.bounds)
  if not lines:
    return None
  size, unit = formatting.time_unit(max(x for line in lines for x in line.x))
  lines = [_scaled(line, 1 / size) for line in lines]
  clock = 'virtual' if virtual else 'real'
  return charts.Chart(
    'time',
    COST,
    f'{charts.sentence(judge.label)} against the {unit} of {clock} time that '
    'the rounds took until then'
    + ('.' if virtual else ', on machines that may have differed.'),
    f'{unit} ({clock} time)',
    judge.label,
    lines,
    x_limits=(0.0, None),
    share=judge.is_share,
  )


def against_bytes(
  best: seeds.Best, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Builds a chart of quality against the traffic until then."""

  def sent(run: results.Run, row: Mapping[str, float]) -> float:
    clients = int(run.settings.get('clients_per_round') or 0)
    return scores.bytes_sent(row, clients) / 1e6

  lines = seeds.lines(best, _summed(judge.column, sent), judge.bounds)
  if not lines:
    return None
  totals = [max(line.x) for line in lines]
  # A linear scale separates methods with similar traffic better.
  wide = max(totals) > _WIDE * min(totals)
  return charts.Chart(
    'bytes',
    COST,
    f'{charts.sentence(judge.label)} against the megabytes that the server and '
    'all clients of the cohorts sent each other until then.'
    + charts.together(lines),
    'megabytes sent, both ways',
    judge.label,
    lines,
    log_x=wide,
    plain_x=True,
    x_limits=(None if wide else 0.0, None),
    share=judge.is_share,
  )


def _against(column: str, other: str) -> seeds.Series:
  """Builds a series of one column against another."""

  def series(run: results.Run) -> seeds.Points:
    rows = [row for row in run.rows if column in row and other in row]
    return (
      [row['round'] for row in rows],
      [row[other] for row in rows],
      [row[column] for row in rows],
    )

  return series


def _summed(
  column: str, amount: Callable[[results.Run, Mapping[str, float]], float]
) -> seeds.Series:
  """Builds a series of a column against the running sum of an amount."""

  def series(run: results.Run) -> seeds.Points:
    rounds, x, y, total = [], [], [], 0.0
    for row in run.rows:
      total += amount(run, row)
      if column in row and total:
        rounds.append(row['round'])
        x.append(total)
        y.append(row[column])
    return rounds, x, y

  return series


def _scaled(line: charts.Line, factor: float) -> charts.Line:
  x = [factor * v for v in line.x]
  return dataclasses.replace(line, x=x)


def step_sizes(best: seeds.Best) -> list[charts.Chart]:
  """Builds charts of the step sizes that clients chose."""
  first = {
    method: configuration.runs[0].series
    for method, configuration in best.items()
    if step_figures.MEAN in configuration.runs[0].columns
  }
  return step_figures.build(first) if first else []


def single_clients(
  best: seeds.Best, judge: sections.Judge
) -> list[charts.Chart]:
  """Builds charts of the trained model's quality by client, worst first."""
  metric = judge.metric or 'loss'
  drawn = []
  for group, after in CLIENT_GROUPS.items():
    column = f'{group}/{metric}'

    def series(run: results.Run, column: str = column) -> seeds.Points:
      values = sorted(
        (row[column] for row in run.clients if column in row),
        reverse=not judge.more_is_better,
      )
      x = [(i + 1) / len(values) for i in range(len(values))]
      return x, x, values

    lines = seeds.lines(best, series, metric_names.bounds(metric))
    if not lines:
      continue
    label = f'{judge.quality} {after or "on a client"}'
    drawn.append(
      charts.Chart(
        group,
        SINGLE_CLIENTS,
        f'{charts.sentence(label)}, client by client from the worst to the '
        'best.' + charts.together(lines),
        'share of the clients',
        label,
        lines,
        x_limits=(0.0, 1.03),
        share=metric_names.is_share(metric),
      )
    )
  return drawn
