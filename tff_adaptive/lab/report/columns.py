"""Figures of those columns of metrics.csv that have no figure of their own."""

from collections.abc import Sequence

from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.report import figures
from tff_adaptive.lab.report import seeds

# The heading of columns about clients, which the page looks up.
CLIENTS = 'Clients'
# Names of columns in words; other columns use their own names.
_WORDS = {
  'clients/count': 'clients that took part',
  'clients/empty': 'clients without examples',
  'clients/rejected': 'clients whose update was rejected',
  'clients/failed': 'clients that failed',
  'clients/steps': 'local steps of all clients',
  'update/norm': 'length of the update',
  'update/non_finite': 'updates that were not finite',
  'drift/diversity': 'diversity of the updates',
  'drift/disagreement': 'disagreement of the updates',
  'drift/cosine': 'cosine of update and mean update',
  'drift/pairwise_cosine': 'cosine of two updates, mean over pairs',
  'drift/turn': 'cosine of mean update and the last one',
  'drift/norm': "length of a client's update, mean",
  'drift/preconditioner': 'squared distance of preconditioners to their mean',
  'seconds': 'seconds a round',
  'seconds/data': 'seconds a round for data',
  'seconds/train': 'seconds a round for training',
  'seconds/aggregate': 'seconds a round for aggregation',
  'seconds/evaluate': 'seconds a round for evaluation',
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
_HEADINGS = {
  'clients': CLIENTS,
  'update': 'Updates of the model',
  'drift': 'How far clients drift apart',
  'seconds': 'Where the time goes',
  'bytes_down': 'Traffic of every round',
  'bytes_up': 'Traffic of every round',
  'virtual': 'Clients in virtual time',
  'staleness': 'Clients in virtual time',
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
# Columns with figures elsewhere, or of one round only.
_ELSEWHERE = ('round', 'step_size', 'test', *figures.CLIENT_GROUPS)


def column_words(column: str) -> str:
  """Returns the name of a column of metrics.csv in words."""
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
  """Returns the smallest and the largest possible value of a column."""
  low, high = metric_names.bounds(column)
  counted = group in (
    'clients',
    'seconds',
    'bytes_down',
    'bytes_up',
    'virtual',
    'staleness',
  )
  return (max(low, 0.0) if counted else low), high


def everything_else(
  best: seeds.Best, drawn: Sequence[str]
) -> tuple[dict[str, list[charts.Chart]], dict[str, float], list[str]]:
  """Builds charts by round of columns that have no figure of their own.

  Args:
    best: The best configuration of every method.
    drawn: Columns that have a figure.

  Returns:
    Charts by heading; columns with the same value in every round of all runs,
    with that value; and columns that only the last round has.
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
    chart = figures.by_round(
      best,
      column,
      label,
      name='column_' + ''.join(c if c.isalnum() else '_' for c in column),
      title=heading,
      caption=f'{charts.sentence(label)}, by round.',
      bounds=_column_bounds(column, group),
      share=group in _SPLITS and metric_names.is_share(column),
    )
    if chart is not None:
      found.setdefault(heading, []).append(chart)
  return found, constant, final
