"""Summary table at the end of a run."""

import os
import re
from typing import Any

from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names


def summary(rows: Any, folder: files.RunFolder, seconds: Any = None) -> str:
  """Renders the summary of a run as text.

  Args:
    rows: Rows of metrics.csv, as text by column.
    folder: The run's folder.
    seconds: Seconds by phase; empty or `None` if the run was finished before.
  """
  splits = [
    (split, row)
    for split, row in (
      ('train', _last(rows, 'train')),
      ('validation', _last(rows, 'validation')),
      ('test', _last(rows, 'test')),
    )
    if row is not None
  ]
  names = []
  for split, row in splits:
    for column, value in row.items():
      group, _, name = column.partition('/')
      counts = name.startswith('num_') and name != 'num_examples'
      if group == split and value and name not in names and not counts:
        names.append(name)
  header = ['', 'round', *(metric_names.short(n) for n in names)]
  table = [header]
  for split, row in splits:
    cells = []
    for name in names:
      value = row.get(f'{split}/{name}', '')
      cells.append(formatting.number(float(value)) if value else '')
      if value and name == 'num_examples':
        cells[-1] = f'{int(float(value)):,}'
    table.append([split, row['round'], *cells])
  lines = formatting.aligned(table, left=1)
  lines += _clients(rows[-1])
  lines += _virtual(rows)
  evaluation = (folder.read_hparams() or {}).get('evaluation')
  if evaluation:
    lines.append(f'splits   {evaluation}')
  last = _last(rows, 'privacy')
  if last is not None:
    lines.append(
      f'privacy  epsilon = {float(last["privacy/epsilon"]):.4g}'
      f' at delta = {float(last["privacy/delta"]):g} after round '
      f'{last["round"]}'
    )
  if seconds:
    total = sum(seconds.values())
    parts = ', '.join(
      f'{what} {value:.1f} s' for what, value in seconds.items()
    )
    lines.append(f'{total:.1f} s: {parts}')
  lines.append(f'curves   {os.path.relpath(folder.curves)}')
  lines.append(f'metrics  {os.path.relpath(folder.metrics)}')
  return '\n'.join(lines)


def _clients(row: Any) -> list[str]:
  """Renders the per-client tests, a line per group; empty without them."""
  lines = []
  for group, when in (('per_client', ''), ('per_client_tuned', ', fine-tuned')):
    count = row.get(f'{group}/clients')
    found = {
      column.split('/')[1]: column.removesuffix('mean')
      for column, value in row.items()
      if value and re.fullmatch(f'{group}/.*/mean', column)
    }
    name = metric_names.main_metric(found) or 'loss'
    if not count or name not in found:
      continue
    mean, spread, worst = (
      formatting.number(float(row[found[name] + part]))
      for part in ('mean', 'std', 'worst_decile')
    )
    lines.append(
      f'clients  {metric_names.short(name)} {mean} (std {spread}, worst tenth '
      f'{worst}) over {int(float(count)):,}{when}'
    )
  return lines


def _virtual(rows: Any) -> list[str]:
  """Renders virtual time, answers and staleness; empty if not simulated."""
  lines = []

  def column(name: str) -> list[float]:
    return [float(row[name]) for row in rows if row.get(name)]

  seconds = column(metric_names.VIRTUAL_SECONDS)
  if seconds:
    time = formatting.duration(seconds[-1])
    lines.append(f'time     {time} of virtual time')
  if column('virtual/selected'):
    drawn, answered, dropped, late = (
      int(sum(column(name)))
      for name in (
        'virtual/selected',
        'clients/count',
        'virtual/dropped',
        'virtual/late',
      )
    )
    line = (
      f'answers  {answered:,} of {drawn:,} clients drawn; {dropped:,} dropped '
      f'out, {late:,} came too late'
    )
    # In asynchronous runs only.
    if under_way := drawn - answered - dropped - late:
      line += f', {under_way:,} still under way'
    lines.append(line)
  if oldest := column('staleness/max'):
    # Means of rounds, weighted by the number of answers that counted.
    ages = [
      (float(row['staleness/mean']), float(row['clients/count']))
      for row in rows
      if row.get('staleness/mean')
    ]
    mean = sum(age * count for age, count in ages) / sum(c for _, c in ages)
    lines.append(
      f'stale    {formatting.number(mean)} server steps on average, '
      f'{int(max(oldest)):,} at most'
    )
  return lines


def _last(rows: Any, group: str) -> Any:
  """Returns the last row with a value of a group of columns, or `None`."""
  for row in reversed(rows):
    if any(v for name, v in row.items() if name.startswith(group + '/')):
      return row
  return None
