"""The figures of a report over several runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import curves as curves_lib
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lazy import pandas as pd

CURVES = 'Curves'
COST = 'Quality against time and traffic'
TUNING = 'Tuning'
SINGLE_CLIENTS = 'Quality on single clients'
# Groups of columns about single clients, with their descriptions.
CLIENT_GROUPS = {'per_client': '', 'per_client_tuned': 'after training there'}
OVER_SEEDS = (
  'A line is the mean over seeds. Its band is the 95 % confidence interval of '
  'the mean, or the range of two seeds.'
)
APART = 'Every line is one run; runs of a method differ in their seeds.'
# Ratios of largest to smallest value above which an axis is logarithmic: of
# traffic, and of curves, where it is large enough only if a method diverged.
_WIDE, _WIDE_CURVE = 10, 1000
_CLIENT, _SERVER = 'client_learning_rate', 'server_learning_rate'
_TAU = 'server_adaptivity'
# Names of columns in words; other columns use their own names.
_WORDS = {
  'clients/count': 'clients that took part',
  'clients/empty': 'clients without examples',
  'clients/rejected': 'clients whose update was rejected',
  'clients/failed': 'clients that failed',
  'clients/steps': 'local steps of all clients',
  'update/norm': 'length of the update',
  'drift/diversity': 'diversity of the updates',
  'drift/disagreement': 'disagreement of the updates',
  'drift/cosine': 'cosine of update and mean update',
  'drift/pairwise_cosine': 'cosine of two updates, mean over pairs',
  'drift/turn': 'cosine of mean update and the last one',
  'drift/norm': "length of a client's update, mean",
  'drift/preconditioner': 'squared distance of preconditioners to their mean',
  'seconds': 'seconds a round',
  'bytes_down': 'bytes sent to a client',
  'bytes_up': 'bytes sent by a client',
  'virtual/seconds': 'virtual seconds since the start',
  'virtual/round_seconds': 'virtual seconds a round',
  'virtual/selected': 'clients that were drawn',
  'virtual/dropped': 'clients that dropped out',
  'virtual/late': 'clients whose answer came too late',
  'staleness/mean': "server's steps since a client began, mean",
  'staleness/max': "server's steps since a client began, most",
}
# Columns with figures elsewhere, or of one round only.
_ELSEWHERE = ('round', 'step_size', 'test', *CLIENT_GROUPS)

# Returns x and y of a run, by what its points are averaged at.
Series = Callable[[results.Run], pd.DataFrame]


def _by_column(column: str, x: str = 'round') -> Series:
  """Returns a column against another, averaged at rounds."""

  def series(run: results.Run) -> pd.DataFrame:
    table = run.table
    if column not in table or x not in table:
      return pd.DataFrame(columns=['at', 'x', 'y'])
    points = table[['round', x, column]].set_axis(['at', 'x', 'y'], axis=1)
    return points.dropna()

  return series


def lines(
  best: sections.Best, series: Series, bounds: Any, *, apart: bool = False
) -> pd.DataFrame:
  """Computes the line of every method over its seeds.

  Args:
    best: The configuration of every method.
    series: Returns the points of a run, with columns `at`, `x` and `y`.
    bounds: The smallest and the largest possible y, where intervals end.
    apart: Whether there is a line for every run instead.

  Returns:
    Points as `charts.Chart.data`, where all seeds have a finite value.
  """
  points = [
    series(run).assign(method=method, run=f'{method} {i}')
    for method, configuration in best.items()
    for i, run in enumerate(configuration.runs)
  ]
  points = [p for p in points if not p.empty]
  if not points:
    return pd.DataFrame(columns=['method', 'run', 'x', 'y'])
  every = pd.concat(points, ignore_index=True)
  every = every[np.isfinite(every['y'].astype(float))]
  if apart or every.empty:
    return every
  of_method = every.groupby('method', sort=False)
  groups = every.groupby(['method', 'at'], sort=False)
  mean = groups[['x', 'y']].mean()
  ends, counts = groups['y'].agg(['min', 'max', 'sem']), groups.size()
  total = of_method['run'].nunique().reindex(mean.index.get_level_values(0))
  mean, ends, counts = (
    t[counts.to_numpy() == total.to_numpy()] for t in (mean, ends, counts)
  )
  if (counts > 1).any():
    few = counts < scores.SEEDS_FOR_AN_INTERVAL
    half = ends['sem'] * scores.student_t(counts)
    low = (mean['y'] - half).clip(lower=np.minimum(bounds[0], ends['min']))
    high = (mean['y'] + half).clip(upper=np.maximum(bounds[1], ends['max']))
    mean['low'] = low.where(~few, ends['min']).where(counts > 1)
    mean['high'] = high.where(~few, ends['max']).where(counts > 1)
  return mean.reset_index()


def _chart(
  data: pd.DataFrame,
  name: str,
  title: str,
  caption: str,
  x_label: str,
  y_label: str,
  **more: Any,
) -> list[charts.Chart]:
  """Builds a chart; none without points."""
  if data.empty:
    return []
  return [charts.Chart(name, title, caption, x_label, y_label, data, **more)]


def by_round(
  best: sections.Best,
  column: str,
  label: str,
  *,
  name: str,
  title: str,
  apart: bool = False,
) -> list[charts.Chart]:
  """Builds a chart of a column of metrics.csv by round."""
  bounds = metric_names.bounds(column)
  data = lines(best, _by_column(column), bounds, apart=apart)
  if column.partition('/')[0] == 'seconds':
    data = data[data['x'] > 1]  # The first round includes tracing.
  wide = len(data) and 0 < _WIDE_CURVE * data['y'].min() < data['y'].max()
  return _chart(
    data,
    name,
    title,
    f'{charts.sentence(label)}, by round.',
    'round',
    label,
    log_y=bool(wide),
    whole_x=True,
    share=metric_names.is_share(column),
  )


def curves(
  best: sections.Best, criterion: sections.Criterion, *, apart: bool = False
) -> list[charts.Chart]:
  """Builds charts of training loss and validation quality by round."""
  panels = {'train/loss': ('training loss', 'training_loss')}
  panels[criterion.column] = criterion.label, 'validation'
  return [
    chart
    for column, (label, name) in panels.items()
    for chart in by_round(
      best, column, label, name=name, title=CURVES, apart=apart
    )
  ]


def against_time(
  best: sections.Best, criterion: sections.Criterion, *, apart: bool = False
) -> list[charts.Chart]:
  """Builds a chart of quality against virtual time, or else the machine's."""
  virtual = metric_names.VIRTUAL_SECONDS
  is_virtual = any(
    virtual in run.table for c in best.values() for run in c.runs
  )

  def series(run: results.Run) -> pd.DataFrame:
    if is_virtual:
      return _by_column(criterion.column, virtual)(run)
    return _against(run, criterion.column, run.seconds)

  data = lines(best, series, criterion.bounds, apart=apart)
  if data.empty:
    return []
  size, unit = formatting.time_unit(data['x'].max())
  clock = 'virtual' if is_virtual else 'real'
  # The first round includes tracing.
  until = '' if is_virtual else ' after the first'
  where = '.' if is_virtual else ', on machines that may have differed.'
  return _chart(
    data.assign(x=data['x'] / size),
    'time',
    COST,
    f'{charts.sentence(criterion.label)} against the {unit} of {clock} time '
    f'that the rounds{until} took until then{where}',
    f'{unit} ({clock} time)',
    criterion.label,
    x_limits=(0.0, None),
    share=criterion.is_share,
  )


def against_bytes(
  best: sections.Best, criterion: sections.Criterion, *, apart: bool = False
) -> list[charts.Chart]:
  """Builds a chart of quality against the traffic until then."""

  def series(run: results.Run) -> pd.DataFrame:
    clients = int(run.settings.get('clients_per_round') or 0)
    sent = [scores.bytes_sent(row, clients) / 1e6 for row in run.rows]
    return _against(run, criterion.column, pd.Series(sent))

  data = lines(best, series, criterion.bounds, apart=apart)
  totals = data.groupby('method')['x'].max()
  # A linear scale separates methods with similar traffic better.
  wide = len(data) and totals.max() > _WIDE * totals.min()
  return _chart(
    data,
    'bytes',
    COST,
    f'{charts.sentence(criterion.label)} against the megabytes that the server '
    'and all clients of the cohorts sent each other until then.',
    'megabytes sent, both ways',
    criterion.label,
    log_x=bool(wide),
    x_limits=(None if wide else 0.0, None),
    share=criterion.is_share,
  )


def _against(
  run: results.Run, column: str, amounts: Optional[pd.Series]
) -> pd.DataFrame:
  """Returns a column against the running sum of amounts, one per row."""
  points = _by_column(column)(run)
  if amounts is None or points.empty:
    return points.iloc[:0]
  points['x'] = amounts.fillna(0.0).cumsum()[points.index]
  return points[points['x'] > 0]


def step_sizes(best: sections.Best) -> list[charts.Chart]:
  """Builds charts of the step sizes that clients chose."""
  first = {
    method: configuration.runs[0].table
    for method, configuration in best.items()
    if curves_lib.MEAN in configuration.runs[0].table
  }
  return curves_lib.step_sizes(first) if first else []


def single_clients(
  best: sections.Best, criterion: sections.Criterion, *, apart: bool = False
) -> list[charts.Chart]:
  """Builds charts of the trained model's quality by client, worst first."""
  metric = criterion.metric or 'loss'
  drawn = []
  for group, after in CLIENT_GROUPS.items():
    column = f'{group}/{metric}'

    def series(run: results.Run, column: str = column) -> pd.DataFrame:
      values = run.clients.get(column, pd.Series(dtype=float)).dropna()
      values = values.sort_values(ascending=criterion.more_is_better)
      x = np.arange(1, len(values) + 1) / len(values)
      return pd.DataFrame({'at': x, 'x': x, 'y': values.to_numpy()})

    label = f'{criterion.quality} {after or "on a client"}'
    drawn += _chart(
      lines(best, series, criterion.bounds, apart=apart),
      group,
      SINGLE_CLIENTS,
      f'{charts.sentence(label)}, client by client from the worst to the best.',
      'share of the clients',
      label,
      x_limits=(0.0, 1.03),
      share=criterion.is_share,
    )
  return drawn


def everything_else(
  best: sections.Best, drawn: Sequence[str], *, apart: bool = False
) -> tuple[dict[str, list[charts.Chart]], dict[str, float]]:
  """Builds charts by round of columns that have no figure of their own.

  Args:
    best: The best configuration of every method.
    drawn: Columns that have a figure.
    apart: Whether to draw every run for itself.

  Returns:
    Charts by group, and columns that have the same value in every round of all
    runs, with that value.
  """
  every = pd.concat([run.table for c in best.values() for run in c.runs])
  found: dict[str, list[charts.Chart]] = {}
  constant: dict[str, float] = {}
  for column in every:
    group = column.partition('/')[0]
    if column in drawn or group in _ELSEWHERE:
      continue
    label = _WORDS.get(column) or ' '.join(
      metric_names.short(part) for part in column.split('/')
    )
    if every[column].nunique() == 1:
      constant[label] = float(every[column].dropna().iloc[0])
      continue
    name = 'column_' + ''.join(c if c.isalnum() else '_' for c in column)
    found.setdefault(metric_names.short(group).capitalize(), []).extend(
      by_round(best, column, label, name=name, title='', apart=apart)
    )
  return {k: v for k, v in found.items() if v}, constant


def tuning(
  by_method: Mapping[str, Sequence[sections.Configuration]],
  criterion: sections.Criterion,
) -> list[charts.Figure]:
  """Builds the figures of all configurations, as in Reddi et al.

  Heat maps over learning rates (Figures 2 and 5 to 11 there), the best server
  rate of every client rate (Figure 12), quality by server adaptivity (Figures 3
  and 13), and all configurations sorted.
  """
  table = pd.DataFrame(
    [
      {
        'method': method,
        **{f: _rate(c.settings.get(f)) for f in (_CLIENT, _SERVER, _TAU)},
        'score': scores.mean(criterion.score(c)),
        'mean': scores.mean_of(c.values(criterion.measure), criterion.bounds),
      }
      for method, configurations in by_method.items()
      for c in configurations
    ]
  )
  table['y'] = [math.nan if m is None else m.mean for m in table['mean']]
  finite = table[np.isfinite(table['score'])]

  def chosen(*axes: str) -> pd.DataFrame:
    """The best configurations of methods that have several rates."""
    there = finite.dropna(subset=list(axes))
    kept = there.groupby('method')[list(axes)].transform('nunique').gt(1)
    there = there[kept.all(axis=1)].sort_values('score', kind='stable')
    return there.drop_duplicates(['method', *axes])

  drawn: list[charts.Figure] = []
  for method, cells in chosen(_CLIENT, _SERVER).groupby('method', sort=False):
    tried = table[table['method'] == method]
    values = cells.pivot(index=_SERVER, columns=_CLIENT, values='y').reindex(
      index=sorted(tried[_SERVER].dropna().unique()),
      columns=sorted(tried[_CLIENT].dropna().unique()),
    )
    safe = method.replace(' / ', '_over_')
    safe = ''.join(c if c.isalnum() else '_' for c in safe)
    drawn.append(
      charts.HeatMap(
        f'heat_map_{safe}',
        TUNING,
        f'{formatting.method(method)}: {criterion.label} by client and '
        'server learning rate, the best of what else was varied, mean over '
        'seeds; empty cells have no finished run.',
        method,
        'client learning rate',
        'server learning rate',
        criterion.label,
        values,
        criterion.is_share,
      )
    )
  best = chosen(_CLIENT, _SERVER).drop_duplicates(['method', _CLIENT])
  drawn += _chart(
    best.rename(columns={'y': 'quality', _CLIENT: 'x', _SERVER: 'y'})[
      ['method', 'x', 'y']
    ].sort_values('x'),
    'best_server_rates',
    TUNING,
    'The server learning rate that was best at each client learning rate.',
    'client learning rate',
    'best server learning rate',
    log_x=True,
    log_y=True,
  )
  by_tau = chosen(_TAU).sort_values(_TAU)
  intervals = [m if m and m.count > 2 else None for m in by_tau['mean']]
  drawn += _chart(
    by_tau.assign(
      x=by_tau[_TAU],
      low=[m.low if m else None for m in intervals],
      high=[m.high if m else None for m in intervals],
    )[['method', 'x', 'y', 'low', 'high']].astype(
      {'low': float, 'high': float}
    ),
    'adaptivity',
    TUNING,
    f'{charts.sentence(criterion.label)} by server adaptivity, with the best '
    'learning rates at each; bars are 95 % confidence intervals of the mean.',
    'server adaptivity',
    criterion.label,
    log_x=True,
    share=criterion.is_share,
    bars=True,
  )
  counts = table.groupby('method')['y'].transform('size')
  ordered = finite[counts[finite.index] > 1].dropna(subset=['y'])
  ordered = ordered.sort_values('y', ascending=not criterion.more_is_better)
  # Relative to all configurations, so that failures shorten the line.
  place = (ordered.groupby('method').cumcount() + 1) / counts[ordered.index]
  drawn += _chart(
    ordered.assign(x=place)[['method', 'x', 'y']],
    'sorted_sweeps',
    TUNING,
    f'{charts.sentence(criterion.label)} of every configuration that was '
    'tried, sorted; a line that ends before 1 is of a method of which some '
    'have no result.',
    'share of configurations',
    criterion.label,
    x_limits=(0.0, 1.03),
    share=criterion.is_share,
  )
  return drawn


def _rate(value: Any) -> float:
  """Returns a setting that is a positive number; NaN for anything else."""
  is_number = isinstance(value, (int, float)) and value > 0
  return float(value) if is_number else math.nan
