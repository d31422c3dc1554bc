"""Figures of a run's curves and step sizes."""

import dataclasses
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tff_adaptive import drawing
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import panels
from tff_adaptive.lab.recording.figures import step_figures

# Numbers of looks (see `styles.of_method`).
_SPLITS = {'train': 0, 'validation': 1}
_STEP_SIZE = 2
_COSINES = {
  'drift/cosine': ('cosine of update and mean update', 3),
  'drift/pairwise_cosine': ('cosine of two updates', 4),
  'drift/turn': ('cosine of mean update and the last', 5),
}
Row = Mapping[str, str]


def _series(
  rows: Sequence[Row], column: str, by: str = 'round'
) -> tuple[list[float], list[float]]:
  """Returns places and values of a column; missing places are 0."""
  cells = [(row.get(by) or 0, row[column]) for row in rows if row.get(column)]
  return [float(place) for place, _ in cells], [float(v) for _, v in cells]


def draw_curves(rows: Sequence[Row], path: pathlib.Path, title: str) -> None:
  """Draws loss and metric by round, and further panels for what was recorded.

  Runs with virtual time have a panel against it; runs with step sizes or drift
  measures have panels of these by round.

  Args:
    rows: Rows of metrics.csv.
    path: The PNG file to write.
    title: The title of the figure.
  """
  _write(build_curves(rows), path, title)


def build_curves(rows: Sequence[Row]) -> list[charts.Chart]:
  """Builds the panels of `draw_curves`."""
  columns = list(dict.fromkeys(c for row in rows for c in row))
  names = [c.partition('/')[2] for c in columns if c.startswith('validation/')]
  names = names or [c.partition('/')[2] for c in columns if c[:6] == 'train/']
  metric = metric_names.main_metric(dict.fromkeys(names))
  found = [_splits(rows, name) for name in ('loss', metric) if name is not None]
  if any(row.get(metric_names.VIRTUAL_SECONDS) for row in rows):
    longest = max(
      float(row.get(metric_names.VIRTUAL_SECONDS) or 0) for row in rows
    )
    size, unit = formatting.time_unit(longest)
    chart = _splits(rows, metric or 'loss', metric_names.VIRTUAL_SECONDS, size)
    label = f'{unit} of virtual time'
    found.append(dataclasses.replace(chart, x_label=label, whole_x=False))
  if step_figures.MEAN in columns:
    x, y = _series(rows, step_figures.MEAN)
    ends = [_series(rows, f'step_size/{end}') for end in ('min', 'max')]
    low, high = (v if at == x else None for at, v in ends)
    line = charts.Line('mean step size', x, y, low, high, like=_STEP_SIZE)
    label = 'client step size, from the least to the greatest'
    found.append(_chart(label, [line], log_y=True))
  cosines = [
    charts.Line(words, *_series(rows, column), like=look)
    for column, (words, look) in _COSINES.items()
    if column in columns
  ]
  if cosines:
    found.append(_chart('cosine', cosines, y_limits=(-1.05, 1.05)))
  return found


def _splits(
  rows: Sequence[Row], name: str, by: str = 'round', unit: float = 1.0
) -> charts.Chart:
  """Builds a panel of a measure on both splits, against a column."""
  lines = []
  for split, look in _SPLITS.items():
    places, values = _series(rows, f'{split}/{name}', by)
    if places:
      x = [place / unit for place in places]
      lines.append(charts.Line(split, x, values, like=look))
  return _chart(metric_names.short(name), lines)


def _chart(
  label: str, lines: Sequence[charts.Line], **more: Any
) -> charts.Chart:
  """Builds a panel by round."""
  return charts.Chart(
    'curves', '', '', 'round', label, lines, whole_x=True, **more
  )


def draw_step_sizes(
  rows: Sequence[Row], path: pathlib.Path, title: str
) -> None:
  """Draws the spread of step sizes over clients and steps.

  Args:
    rows: Rows of metrics.csv; without step sizes nothing is written.
    path: The PNG file to write.
    title: The title of the figure.
  """
  if any(row.get(step_figures.MEAN) for row in rows):
    series = {'step sizes': lambda column: _series(rows, column)}
    found = step_figures.build(series, like=_STEP_SIZE)
    # A row of panels is seen without scrolling.
    _write(
      [dataclasses.replace(chart, title='') for chart in found], path, title
    )


def _write(
  found: Sequence[charts.Chart], path: pathlib.Path, title: str
) -> None:
  """Writes charts side by side."""
  picture = panels.together(found, columns=len(found), title=title)
  files.write_atomically(path, drawing.image(picture, 'png'))
