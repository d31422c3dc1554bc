"""The figures of a report, made from many runs: the papers' and more."""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tff_adaptive.recording import metric_names
from tff_adaptive.recording import step_figures
from tff_adaptive.report import charts
from tff_adaptive.report import runs as results
from tff_adaptive.report import scores
from tff_adaptive.report import sections

_CLIENT = 'client_learning_rate'
_SERVER = 'server_learning_rate'
_TAU = 'server_adaptivity'
# Makes rounds, x and y of a run: as many of each.
_Points = tuple[Sequence[float], Sequence[float], Sequence[float]]
_Series = Callable[[results.Run], _Points]
_Best = Mapping[str, sections.Configuration]
_ByMethod = Mapping[str, Sequence[sections.Configuration]]

OVER_SEEDS = (
  f'From {scores.SEEDS_FOR_A_BAND} seeds on a line is their mean and the band '
  'its 95 % confidence interval; fewer seeds are thin lines of their own.'
)
# Headings that several functions here, or the page, know.
CLIENTS = 'Clients'
COST = 'Quality against time and traffic'
TUNING = 'Tuning'
SINGLE_CLIENTS = 'Quality on single clients'
# Groups of columns about single clients, and what they are of.
CLIENT_GROUPS = {
  'per_client': '',
  'per_client_tuned': 'after training there',
}
# Units of time, from how many seconds on they are used.
_UNITS = (
  (1.0, 'seconds', 0.0),
  (60.0, 'minutes', 300.0),
  (3600.0, 'hours', 2e4),
)
# Of more methods than this nothing is said one by one.
_MOST_LISTED = 10
# From how many times as much on values have a logarithmic axis.
_WIDE = 10
_WIDE_STEPS = 50
# A method that diverged leaves no room for the others otherwise.
_WIDE_ROUNDS = 1000


def _over_seeds(
  best: _Best, series: _Series, bounds: tuple[float, float]
) -> list[charts.Line]:
  """Makes the lines of every method over its seeds.

  Args:
    best: The configuration of every method.
    series: Makes x and y of a run.
    bounds: The least and the greatest value that y can have.
  """
  lines = []
  for method, configuration in best.items():
    found = []
    for run in configuration.runs:
      points = series(run)
      if np.isfinite(points[-1]).any():
        found.append((run, points))
    if len(found) >= scores.SEEDS_FOR_A_BAND:
      lines += _mean_line(method, [points for _, points in found], bounds)
    else:
      lines += [
        charts.Line(
          method,
          x,
          y,
          seed=run.settings.get('seed'),
          thin=len(found) > 1,
        )
        for run, (_, x, y) in found
      ]
  return lines


def _mean_line(
  method: str, series: Sequence[_Points], bounds: tuple[float, float]
) -> list[charts.Line]:
  """Averages over seeds in the rounds in which all of them have a value."""
  by_round = [
    {at: (x, y) for at, x, y in zip(*points, strict=True)} for points in series
  ]
  shared = sorted(set.intersection(*map(set, by_round)))
  points = np.array([[of[at] for at in shared] for of in by_round])
  points = points.reshape(len(series), len(shared), 2)
  points = points[:, np.isfinite(points).all(axis=(0, 2))]
  if not points.size:
    return []
  x, y = points.mean(axis=0).T
  ends = [scores.confidence(list(v), bounds) for v in points[..., 1].T]
  low, high = zip(*ends, strict=True)
  return [charts.Line(method, list(x), list(y), low, high)]


def _limits(lines: Sequence[charts.Line]) -> tuple[float, float]:
  """Returns the ends of an axis that has room for lines and their bands."""
  drawn = [ys for line in lines for ys in (line.y, line.low, line.high)]
  values = [v for ys in drawn for v in (ys or ()) if math.isfinite(v)]
  margin = 0.05 * ((max(values) - min(values)) or abs(values[0]) or 1.0)
  return min(values) - margin, max(values) + margin


def _together(lines: Sequence[charts.Line]) -> str:
  """Says which methods' lines lie on each other, if any do.

  Of many methods several always do, and a list would say little.
  """
  groups = charts.coinciding(lines)
  if not groups or len({line.method for line in lines}) > _MOST_LISTED:
    return ''
  sentences = ' '.join(
    f'{_listed(group)} lie on each other.' for group in groups
  )
  return f' {sentences}'


def _sentence(words: str) -> str:
  """Writes words as the begin of a sentence."""
  return words[:1].upper() + words[1:]


def _listed(names: Sequence[str]) -> str:
  """Lists two or more names in words."""
  return f'{", ".join(names[:-1])} and {names[-1]}'


def by_round(
  best: _Best,
  column: str,
  label: str,
  *,
  name: str,
  title: str,
  caption: str,
  bounds: tuple[float, float],
) -> Optional[charts.Chart]:
  """Draws a column of metrics.csv by round.

  Args:
    best: The best configuration of every method.
    column: Of metrics.csv.
    label: Its name in words.
    name: Of the figure's files.
    title: Its heading.
    caption: What it shows.
    bounds: The least and the greatest value of the column.
  """

  def series(run: results.Run) -> _Points:
    rounds, values = run.series(column)
    return rounds, rounds, values

  lines = _over_seeds(best, series, bounds)
  if not lines:
    return None
  values = [v for line in lines for v in line.y if math.isfinite(v)]
  wide = min(values) > 0 and max(values) > _WIDE_ROUNDS * min(values)
  return charts.Chart(
    name,
    title,
    caption + _together(lines),
    'round',
    label,
    lines,
    log_y=wide,
    whole_x=True,
    y_limits=(None, None) if wide else _limits(lines),
  )


def curves(best: _Best, judge: sections.Judge) -> list[charts.Chart]:
  """Draws loss and quality by round, best configuration of every method."""
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
      caption=f'{_sentence(label)} by round: the best configuration of every '
      'method.',
      bounds=metric_names.bounds(measure),
    )
    for column, (label, name, measure) in panels.items()
  ]
  return [chart for chart in drawn if chart is not None]


def against_time(best: _Best, judge: sections.Judge) -> Optional[charts.Chart]:
  """Draws quality by the time that rounds took until then.

  That is virtual time where runs have it, and that of the machine elsewhere.
  """
  columns = [c for b in best.values() for run in b.runs for c in run.columns]
  virtual = [c for c in columns if 'virtual' in c and 'seconds' in c]
  column = virtual[0] if virtual else 'seconds'
  series = _summed(judge.column, lambda run, row: row.get(column, 0.0))
  lines = _over_seeds(best, series, judge.bounds)
  if not lines:
    return None
  longest = max(x for line in lines for x in line.x)
  size, unit = [(s, u) for s, u, least in _UNITS if longest >= least][-1]
  lines = [_scaled(line, 1 / size) for line in lines]
  clock = 'virtual' if virtual else 'real'
  return charts.Chart(
    'time',
    COST,
    f'{_sentence(judge.label)} against the {unit} of {clock} time that the '
    'rounds took until then'
    + ('.' if virtual else ', on machines that may have differed.'),
    f'{unit} ({clock} time)',
    judge.label,
    lines,
    x_limits=(0.0, None),
    y_limits=_limits(lines),
  )


def against_bytes(best: _Best, judge: sections.Judge) -> Optional[charts.Chart]:
  """Draws quality by what was sent until then."""

  def sent(run: results.Run, row: Mapping[str, float]) -> float:
    clients = int(run.settings.get('clients_per_round') or 0)
    both = row.get('bytes_down', 0.0) + row.get('bytes_up', 0.0)
    return both * clients / 1e6

  lines = _over_seeds(best, _summed(judge.column, sent), judge.bounds)
  if not lines:
    return None
  totals = [max(line.x) for line in lines]
  # Methods that send about as much are told apart on an even scale.
  wide = max(totals) > _WIDE * min(totals)
  return charts.Chart(
    'bytes',
    COST,
    f'{_sentence(judge.label)} against the megabytes that the server and all '
    'clients of the cohorts sent each other until then.' + _together(lines),
    'megabytes sent, both ways',
    judge.label,
    lines,
    log_x=wide,
    plain_x=True,
    x_limits=(None if wide else 0.0, None),
    y_limits=_limits(lines),
  )


def _summed(
  column: str, amount: Callable[[results.Run, Mapping[str, float]], float]
) -> _Series:
  """Makes a series of a column by the sum of an amount until then."""

  def series(run: results.Run) -> _Points:
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


def step_sizes(best: _Best) -> list[charts.Chart]:
  """Draws the step sizes that clients chose: a chart for every spread."""
  first = {
    method: configuration.runs[0]
    for method, configuration in best.items()
    if step_figures.MEAN in configuration.runs[0].columns
  }
  if not first:
    return []
  drawn = []
  for column, label in step_figures.SPREADS:
    lines = [
      charts.Line(method, *step_figures.spread(run.series, column))
      for method, run in first.items()
    ]
    means = [v for line in lines for v in line.y if math.isfinite(v) and v > 0]
    wide = bool(means) and max(means) > _WIDE_STEPS * min(means)
    drawn.append(
      charts.Chart(
        column.replace('/', '_'),
        'Client step sizes',
        "The mean of the cohort's step sizes by round, and as a band the "
        f'standard deviation {label}, no further than the least and the '
        "greatest step. First seed of every method's best configuration.",
        'round',
        f'client step size (band: {label})',
        lines,
        log_y=wide,
        whole_x=True,
        y_limits=(None if wide else 0.0, None),
      )
    )
  lines = [
    charts.Line(method, *run.series(step_figures.AT_BOUND))
    for method, run in first.items()
    if step_figures.AT_BOUND in run.columns
  ]
  if lines:
    drawn.append(
      charts.Chart(
        'step_size_at_bound',
        'Client step sizes',
        'The share of steps that an upper bound decided, by round. First seed '
        "of every method's best configuration." + _together(lines),
        'round',
        'share of steps at the bound',
        lines,
        whole_x=True,
        y_limits=(-0.03, 1.03),
      )
    )
  return drawn


def single_clients(best: _Best, judge: sections.Judge) -> list[charts.Chart]:
  """Draws what the trained model is worth to each client, worst first."""
  metric = judge.metric or 'loss'
  drawn = []
  for group, after in CLIENT_GROUPS.items():
    column = f'{group}/{metric}'

    def series(run: results.Run, column: str = column) -> _Points:
      values = sorted(
        (row[column] for row in run.clients if column in row),
        reverse=not judge.more_is_better,
      )
      x = [(i + 1) / len(values) for i in range(len(values))]
      return x, x, values

    lines = _over_seeds(best, series, metric_names.bounds(metric))
    if not lines:
      continue
    label = f'{judge.quality} {after or "on a client"}'
    drawn.append(
      charts.Chart(
        group,
        SINGLE_CLIENTS,
        f'{_sentence(label)}, client by client from the worst to the best.'
        + _together(lines),
        'share of the clients',
        label,
        lines,
        x_limits=(0.0, 1.03),
        y_limits=_limits(lines),
      )
    )
  return drawn


def _numbers(
  configurations: Sequence[sections.Configuration], *flags: str
) -> list[sections.Configuration]:
  """Picks those in which all of the flags are positive numbers."""
  return [
    c
    for c in configurations
    if all(
      isinstance(c.settings.get(f), (int, float)) and c.settings[f] > 0
      for f in flags
    )
  ]


def _axis(
  configurations: Sequence[sections.Configuration], flag: str
) -> list[float]:
  return sorted({float(c.settings[flag]) for c in configurations})


def heat_map(
  method: str,
  configurations: Sequence[sections.Configuration],
  judge: sections.Judge,
) -> Optional[charts.HeatMap]:
  """Draws client by server rate, the best of whatever else was varied."""
  usable = _numbers(configurations, _CLIENT, _SERVER)
  across, up = (_axis(usable, f) for f in (_CLIENT, _SERVER))
  if len(across) < 2 or len(up) < 2:
    return None
  values = np.full([len(up), len(across)], np.nan)
  for i, server in enumerate(up):
    for j, client in enumerate(across):
      here = [
        c
        for c in usable
        if c.settings[_CLIENT] == client and c.settings[_SERVER] == server
      ]
      best = judge.best(here)
      if best is not None:
        values[i, j] = best.mean(judge.measure)
  safe = ''.join(c if c.isalnum() else '_' for c in method)
  return charts.HeatMap(
    f'heat_map_{safe}',
    TUNING,
    f'{method}: {judge.label} by client and server learning rate, the best '
    'of what else was varied, mean over seeds; empty cells have no finished '
    'run.',
    method,
    'client learning rate',
    'server learning rate',
    judge.label,
    across,
    up,
    values,
  )


def best_server_rates(
  by_method: _ByMethod, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Draws the best server rate for every client rate."""
  lines = []
  for method, configurations in by_method.items():
    usable = _numbers(configurations, _CLIENT, _SERVER)
    rates = _axis(usable, _CLIENT)
    if len(rates) < 2 or len(_axis(usable, _SERVER)) < 2:
      continue
    pairs = []
    for rate in rates:
      best = judge.best([c for c in usable if c.settings[_CLIENT] == rate])
      if best is not None:
        pairs.append((rate, float(best.settings[_SERVER])))
    if pairs:
      x, y = zip(*pairs, strict=True)
      lines.append(charts.Line(method, x, y))
  if not lines:
    return None
  return charts.Chart(
    'best_server_rates',
    TUNING,
    'The server learning rate that was best at each client learning rate.'
    + _together(lines),
    'client learning rate',
    'best server learning rate',
    lines,
    log_x=True,
    log_y=True,
  )


def adaptivity(
  by_method: _ByMethod, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Draws quality by the server's adaptivity, the best rates at each."""
  lines = []
  for method, configurations in by_method.items():
    usable = _numbers(configurations, _TAU)
    points = []
    for tau in _axis(usable, _TAU):
      best = judge.best([c for c in usable if c.settings[_TAU] == tau])
      values = best.values(judge.measure) if best is not None else []
      if values:
        mean = scores.mean(values)
        ends = (mean, mean)
        if len(values) >= scores.SEEDS_FOR_A_BAND:
          ends = scores.confidence(values, judge.bounds)
        points.append((tau, mean, *ends))
    if len(points) > 1:
      x, y, low, high = zip(*points, strict=True)
      lines.append(charts.Line(method, x, y, low, high))
  if not lines:
    return None
  return charts.Chart(
    'adaptivity',
    TUNING,
    f'{_sentence(judge.label)} by server adaptivity, with the best learning '
    f'rates at each; from {scores.SEEDS_FOR_A_BAND} seeds on bars are 95 % '
    'confidence intervals of the mean.' + _together(lines),
    'server adaptivity',
    judge.label,
    lines,
    log_x=True,
    y_limits=_limits(lines),
    bars=True,
  )


def sorted_sweeps(
  by_method: _ByMethod, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Draws all configurations of a method, from the best to the worst."""
  lines = []
  for method, configurations in by_method.items():
    if len(configurations) < 2:
      continue
    values = [c.mean(judge.measure) for c in configurations if c.complete]
    values = sorted(
      (v for v in values if math.isfinite(v)), reverse=judge.more_is_better
    )
    if values:
      # As a share of all that were tried: failures make a line end early.
      x = [(i + 1) / len(configurations) for i in range(len(values))]
      lines.append(charts.Line(method, x, values))
  if not lines:
    return None
  return charts.Chart(
    'sorted_sweeps',
    TUNING,
    f'{_sentence(judge.label)} of every configuration that was tried, '
    'sorted; a line that ends before 1 is of a method of which some diverged '
    'or failed.',
    'share of configurations',
    judge.label,
    lines,
    x_limits=(0.0, 1.03),
    y_limits=_limits(lines),
  )


# Names of columns in words; others are their own names with spaces.
_WORDS = {
  'clients/count': 'clients that took part',
  'clients/empty': 'clients without examples',
  'clients/rejected': 'clients whose update was rejected',
  'clients/failed': 'clients that failed',
  'clients/steps': 'local steps of all clients',
  'update/norm': 'length of the update',
  'update/non_finite': 'updates that were not finite',
  'seconds': 'seconds a round',
  'seconds/data': 'seconds a round for data',
  'seconds/train': 'seconds a round for training',
  'seconds/aggregate': 'seconds a round for aggregation',
  'seconds/evaluate': 'seconds a round for evaluation',
  'bytes_down': 'bytes sent to a client',
  'bytes_up': 'bytes sent by a client',
}
_HEADINGS = {
  'clients': CLIENTS,
  'update': 'Updates of the model',
  'seconds': 'Where the time goes',
  'bytes_down': 'Traffic of every round',
  'bytes_up': 'Traffic of every round',
  'train': 'More of training',
  'validation': 'More of validation',
  'ema': 'The averaged model',
  'privacy': 'Privacy',
}
_SPLITS = {
  'train': 'training',
  'validation': 'validation',
  'ema': 'validation, averaged model:',
  'test_ema': 'test, averaged model:',
}
# Their figures have other places, or they are of one round only.
_ELSEWHERE = ('round', 'step_size', 'test', *CLIENT_GROUPS)


def column_words(column: str) -> str:
  """Writes the name of a column of metrics.csv in words."""
  if column in _WORDS:
    return _WORDS[column]
  group, _, rest = column.partition('/')
  parts = [metric_names.short(part) for part in (rest or group).split('/')]
  words = ', '.join(parts)
  if group in _SPLITS:
    return f'{_SPLITS[group]} {words}'
  if group == 'seconds' and rest:
    return f'seconds a round, {words}'
  return words


def _column_bounds(column: str, group: str) -> tuple[float, float]:
  """Returns the least and the greatest value of a column."""
  low, high = metric_names.bounds(column)
  counted = group in ('clients', 'seconds', 'bytes_down', 'bytes_up')
  return (max(low, 0.0) if counted else low), high


def everything_else(
  best: _Best, drawn: Sequence[str]
) -> tuple[dict[str, list[charts.Chart]], dict[str, float], list[str]]:
  """Draws every column of metrics.csv by round that has no figure of its own.

  Args:
    best: The best configuration of every method.
    drawn: Columns that have one.

  Returns:
    Charts by heading; the columns that are the same in every round of all runs,
    with their value; and those that only the last round has.
  """
  runs = [run for c in best.values() for run in c.runs]
  columns = dict.fromkeys(c for run in runs for c in run.columns)
  found: dict[str, list[charts.Chart]] = {}
  constant: dict[str, float] = {}
  final = []
  for column in columns:
    group = column.partition('/')[0]
    if column in drawn or group in _ELSEWHERE:
      continue
    values = {row[column] for run in runs for row in run.rows if column in row}
    label = column_words(column)
    if not any(column in row for run in runs for row in run.rows[:-1]):
      final.append(column)
      continue
    if len(values) == 1:
      constant[label] = values.pop()
      continue
    heading = _HEADINGS.get(group, metric_names.short(group).capitalize())
    chart = by_round(
      best,
      column,
      label,
      name='column_' + ''.join(c if c.isalnum() else '_' for c in column),
      title=heading,
      caption=f'{_sentence(label)}, by round.',
      bounds=_column_bounds(column, group),
    )
    if chart is not None:
      found.setdefault(heading, []).append(chart)
  return found, constant, final
