"""Summary table at the end of a run."""

import os
from typing import Any

from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lazy import pandas as pd

# Groups of per-client tests, and what is said after them.
_CLIENT_TESTS = {'per_client': '', 'per_client_tuned': ', fine-tuned'}


def summary(rows: Any, folder: files.RunFolder, seconds: Any = None) -> str:
  """Renders the summary of a run as text.

  Args:
    rows: Rows of metrics.csv, as text by column.
    folder: The run's folder.
    seconds: Seconds by phase; empty or `None` if the run was finished before.
  """
  table = pd.DataFrame(list(rows)).apply(pd.to_numeric, errors='coerce')
  splits = {
    split: part
    for split in ('train', 'validation', 'test')
    if not (part := _last(table, split)).empty
  }
  names = [
    name
    for name in dict.fromkeys(n for part in splits.values() for n in part.index)
    if name != 'round'
    and (name == 'num_examples' or not name.startswith('num_'))
  ]
  cells = [['', 'round', *map(metric_names.short, names)]]
  for split, part in splits.items():
    values = [part.get(name) for name in names]
    shown = ['' if v is None else formatting.number(v) for v in values]
    if 'num_examples' in part:
      shown[names.index('num_examples')] = f'{part["num_examples"]:,.0f}'
    cells.append([split, f'{part["round"]:.0f}', *shown])
  lines = formatting.aligned(cells, left=1)
  for group, when in _CLIENT_TESTS.items():
    lines += _clients(_last(table, group), when)
  lines += _virtual(table)
  evaluation = (folder.read_hparams() or {}).get('evaluation')
  if evaluation:
    lines.append(f'splits   {evaluation}')
  privacy = _last(table, 'privacy')
  if not privacy.empty:
    lines.append(
      f'privacy  epsilon = {privacy["epsilon"]:.4g} at delta = '
      f'{privacy["delta"]:g} after round {privacy["round"]:.0f}'
    )
  if seconds:
    parts = ', '.join(
      f'{what} {value:.1f} s' for what, value in seconds.items()
    )
    lines.append(f'{sum(seconds.values()):.1f} s: {parts}')
  lines.append(f'curves   {os.path.relpath(folder.curves)}')
  lines.append(f'metrics  {os.path.relpath(folder.metrics)}')
  return '\n'.join(lines)


def _last(table: Any, group: str) -> Any:
  """Returns the last row of a group's columns, and its round, as a series."""
  part = table.filter(regex=f'^{group}/').dropna(how='all')
  if part.empty:
    return pd.Series(dtype=float)
  last = part.iloc[-1].dropna().rename(lambda n: n.removeprefix(f'{group}/'))
  last['round'] = table['round'][part.index[-1]]
  return last


def _clients(last: Any, when: str) -> list[str]:
  """Renders the per-client tests, a line per group; empty without them."""
  found = [n.removesuffix('/mean') for n in last.index if n.endswith('/mean')]
  name = metric_names.main_metric(dict.fromkeys(found)) or 'loss'
  if name not in found:
    return []
  mean, spread, worst = (
    formatting.number(last[f'{name}/{part}'])
    for part in ('mean', 'std', 'worst_decile')
  )
  return [
    f'clients  {metric_names.short(name)} {mean} (std {spread}, worst tenth '
    f'{worst}) over {last["clients"]:,.0f}{when}'
  ]


def _virtual(table: Any) -> list[str]:
  """Renders virtual time, answers and staleness; empty if not simulated."""
  lines = []
  if metric_names.VIRTUAL_SECONDS in table:
    time = table[metric_names.VIRTUAL_SECONDS].max()
    lines.append(f'time     {formatting.duration(time)} of virtual time')
  if 'virtual/selected' in table:
    drawn, answered, dropped, late = (
      int(table[name].sum())
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
  if 'staleness/mean' in table:
    # Mean of rounds, weighted by the number of answers that counted.
    ages = table.dropna(subset='staleness/mean')
    counts = ages['clients/count']
    mean = (ages['staleness/mean'] * counts).sum() / counts.sum()
    lines.append(
      f'stale    {formatting.number(mean)} server steps on average, '
      f'{table["staleness/max"].max():,.0f} at most'
    )
  return lines
