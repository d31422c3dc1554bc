"""Figures of one run: its curves, and the step sizes that clients chose.

Mukherjee et al. (arXiv 2307.06306, Figure 7) show the mean step size of every
round twice: with its spread between clients, and with its spread over a
client's own local steps. Kim et al. (arXiv 2306.11201, Figure 7) show which of
the rule's two terms is the minimum; here it is the share of steps determined by
an upper bound.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive import drawing
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lazy import pandas as pd

MEAN = 'step_size/mean'
STEP_SIZES = 'Client step sizes'
# Columns of the bands' half widths, and names of the panels.
_SPREADS = {
  'step_size/between_clients': 'between clients',
  'step_size/within_clients': 'within a client',
}
_AT_BOUND = 'step_size/at_bound'
_TRAIN, _VALIDATION, _STEP_SIZE, *_COSINE_NAMES = styles.OF_A_RUN
_COSINES = dict(
  zip(
    ('drift/cosine', 'drift/pairwise_cosine', 'drift/turn'),
    _COSINE_NAMES,
    strict=True,
  )
)
# Ratio of the largest to the smallest mean above which an axis is logarithmic.
_WIDE = 50


def draw_curves(
  rows: Sequence[Mapping[str, Any]], path: pathlib.Path, title: str
) -> None:
  """Draws loss and metric by round, and further panels for what was recorded.

  Runs with virtual time have a panel against it; runs with step sizes or drift
  measures have panels of these by round.

  Args:
    rows: Rows of metrics.csv.
    path: The PNG file to write.
    title: The title of the figure.
  """
  _write(build_curves(as_table(rows)), path, title)


def draw_step_sizes(
  rows: Sequence[Mapping[str, Any]], path: pathlib.Path, title: str
) -> None:
  """Draws the spread of step sizes over clients and steps, if recorded.

  Args:
    rows: Rows of metrics.csv; without step sizes nothing is written.
    path: The PNG file to write.
    title: The title of the figure.
  """
  table = as_table(rows)
  if MEAN in table and table[MEAN].notna().any():
    found = step_sizes({_STEP_SIZE: table})
    _write([dataclasses.replace(c, title='') for c in found], path, title)


def as_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
  """Converts rows of metrics.csv to numbers; empty cells become NaN."""
  return pd.DataFrame(list(rows)).apply(pd.to_numeric, errors='coerce')


def build_curves(table: pd.DataFrame) -> list[charts.Chart]:
  """Builds the panels of `draw_curves`."""
  names = [c.partition('/')[2] for c in table if c.startswith('validation/')]
  names = names or [c.partition('/')[2] for c in table if c[:6] == 'train/']
  metric = metric_names.main_metric(dict.fromkeys(names))
  found = [
    _splits(table, name)
    for name in ('loss', metric)
    if name and {f'{_TRAIN}/{name}', f'{_VALIDATION}/{name}'} & set(table)
  ]
  virtual = metric_names.VIRTUAL_SECONDS
  if virtual in table and table[virtual].notna().any():
    size, unit = formatting.time_unit(table[virtual].max())
    at = table[virtual].fillna(0) / size
    label = f'{unit} of virtual time'
    found.append(_splits(table.assign(round=at), metric or 'loss', label))
  if MEAN in table:
    lines = _line(table, MEAN, _STEP_SIZE).assign(
      low=table['step_size/min'], high=table['step_size/max']
    )
    label = 'client step size, from the least to the greatest'
    found.append(_chart(label, [lines], log_y=True))
  cosines = [_line(table, c, w) for c, w in _COSINES.items() if c in table]
  if cosines:
    found.append(_chart('cosine', cosines, y_limits=(-1.05, 1.05)))
  return found


def step_sizes(tables: Mapping[str, pd.DataFrame]) -> list[charts.Chart]:
  """Builds charts of step sizes: both spreads, and the share at the bound.

  Args:
    tables: Tables of metrics.csv, by method.
  """
  drawn = []
  for column, words in _SPREADS.items():
    lines = []
    for method, table in tables.items():
      # A mean plus or minus a deviation may lie beyond all steps.
      mean, half = table[MEAN], table.get(column, float('nan'))
      lines.append(
        _line(table, MEAN, method).assign(
          low=(mean - half).clip(lower=table['step_size/min']),
          high=(mean + half).clip(upper=table['step_size/max']),
        )
      )
    means = pd.concat(lines)['y']
    means = means[means > 0]
    wide = bool(len(means)) and means.max() > _WIDE * means.min()
    drawn.append(
      _chart(
        f'client step size (band: {words})',
        lines,
        name=column.replace('/', '_'),
        title=STEP_SIZES,
        caption="The mean of the cohort's step sizes by round, and as a band "
        f'the standard deviation {words}, no further than the least and the '
        'greatest step. First seed of each method.',
        log_y=wide,
        y_limits=(None if wide else 0.0, None),
      )
    )
  lines = [_line(t, _AT_BOUND, m) for m, t in tables.items() if _AT_BOUND in t]
  if lines:
    drawn.append(
      _chart(
        'share of steps at the bound',
        lines,
        name='step_size_at_bound',
        title=STEP_SIZES,
        caption='The share of steps that an upper bound decided, by round. '
        'First seed of each method.',
        y_limits=(-0.03, 1.03),
      )
    )
  return drawn


def _line(table: pd.DataFrame, column: str, method: str) -> pd.DataFrame:
  """Returns the points of a column that has a value, by round."""
  line = pd.DataFrame(
    {'method': method, 'x': table['round'], 'y': table[column]}
  )
  return line[table[column].notna()]


def _splits(
  table: pd.DataFrame, name: str, x_label: str = 'round'
) -> charts.Chart:
  """Builds a panel of a measure on both splits."""
  lines = [
    _line(table, f'{split}/{name}', split)
    for split in (_TRAIN, _VALIDATION)
    if f'{split}/{name}' in table
  ]
  label = metric_names.short(name)
  return _chart(label, lines, x_label=x_label, whole_x=x_label == 'round')


def _chart(
  label: str,
  lines: Sequence[pd.DataFrame],
  *,
  name: str = 'curves',
  title: str = '',
  caption: str = '',
  x_label: str = 'round',
  whole_x: bool = True,
  **more: Any,
) -> charts.Chart:
  """Builds a panel by round."""
  data = pd.concat(lines, ignore_index=True)
  return charts.Chart(
    name, title, caption, x_label, label, data, whole_x=whole_x, **more
  )


def _write(
  found: Sequence[charts.Chart], path: pathlib.Path, title: str
) -> None:
  """Writes charts side by side."""
  picture = charts.together(found, columns=len(found), title=title)
  files.write_atomically(path, drawing.image(picture, 'png'))
