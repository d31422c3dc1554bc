"""Figures of a run's curves and step sizes."""

import functools
import io
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.figures import step_figures as step_plots
from tff_adaptive.lab.recording.figures import styles

_SPLITS = {'train': styles.TRAIN, 'validation': styles.VALIDATION}
_COSINES = {
  'drift/cosine': 'cosine of update and mean update',
  'drift/pairwise_cosine': 'cosine of two updates',
  'drift/turn': 'cosine of mean update and the last',
}


def _series(
  rows: Sequence[dict[str, str]], column: str, by: str = 'round'
) -> tuple[list[float], list[float]]:
  """Returns places and values of a column; missing places are 0."""
  cells = [(row.get(by) or 0, row[column]) for row in rows if row.get(column)]
  return [float(place) for place, _ in cells], [float(v) for _, v in cells]


def draw_curves(
  rows: Sequence[dict[str, str]], path: pathlib.Path, title: str
) -> None:
  """Draws loss and metric by round, and further panels for what was recorded.

  Runs with virtual time have a panel against it; runs with step sizes or drift
  measures have panels of these by round.

  Args:
    rows: Rows of metrics.csv.
    path: The PNG file to write.
    title: The title of the figure.
  """
  # Imported here because it takes a second.
  import matplotlib  # pylint: disable=g-import-not-at-top

  with matplotlib.rc_context(styles.RC):
    _write(_curves_figure(rows, title), path)


def _curves_figure(rows: Sequence[dict[str, str]], title: str) -> Any:
  """Draws the panels of `draw_curves` side by side."""
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  columns = list(dict.fromkeys(c for row in rows for c in row))
  names = [c.partition('/')[2] for c in columns if c.startswith('validation/')]
  names = names or [c.partition('/')[2] for c in columns if c[:6] == 'train/']
  metric = metric_names.main_metric(dict.fromkeys(names))
  panels: list[Callable[[Any], None]] = [
    functools.partial(_draw_rounds, rows, name)
    for name in ('loss', metric)
    if name is not None
  ]
  if any(row.get(metric_names.VIRTUAL_SECONDS) for row in rows):
    panels.append(functools.partial(_draw_time, rows, metric or 'loss'))
  if 'step_size/mean' in columns:
    panels.append(functools.partial(_draw_mean_step_size, rows))
  if any(column in columns for column in _COSINES):
    panels.append(functools.partial(_draw_drift, rows))

  figure = figure_lib.Figure(
    figsize=(4.5 * len(panels), 3.4), dpi=150, layout='constrained'
  )
  # Names may contain dollar signs, which matplotlib would parse as math.
  figure.suptitle(formatting.printable(title), parse_math=False)
  drawn = figure.subplots(1, len(panels), squeeze=False)[0]
  for axes, draw in zip(drawn, panels, strict=True):
    draw(axes)
  styles.add_legend(figure, drawn)
  return figure


def _draw_rounds(rows: Sequence[dict[str, str]], name: str, axes: Any) -> None:
  """Draws a measure by round."""
  _draw_splits(rows, name, axes)
  _count_rounds(axes)


def _draw_time(rows: Sequence[dict[str, str]], name: str, axes: Any) -> None:
  """Draws a measure against virtual time."""
  column = metric_names.VIRTUAL_SECONDS
  longest = max(float(row.get(column) or 0) for row in rows)
  size, unit = formatting.time_unit(longest)
  _draw_splits(rows, name, axes, column, size)
  axes.set_xlabel(f'{unit} of virtual time')


def _draw_splits(
  rows: Sequence[dict[str, str]],
  name: str,
  axes: Any,
  by: str = 'round',
  unit: float = 1.0,
) -> None:
  """Draws a measure on both splits against a column, in the given unit."""
  for split, style in _SPLITS.items():
    places, values = _series(rows, f'{split}/{name}', by)
    if places:
      axes.plot([p / unit for p in places], values, label=split, **style)
  axes.set_ylabel(metric_names.short(name), parse_math=False)


def _draw_mean_step_size(rows: Sequence[dict[str, str]], axes: Any) -> None:
  """Draws the mean, smallest and largest step size by round."""
  axes.plot(
    *_series(rows, 'step_size/mean'),
    label='mean step size',
    **styles.STEP_SIZE,
  )
  low = _series(rows, 'step_size/min')
  high = _series(rows, 'step_size/max')
  if low[0] and low[0] == high[0]:
    axes.fill_between(
      low[0],
      low[1],
      high[1],
      color=styles.STEP_SIZE['color'],
      alpha=0.2,
      label='least to greatest step size',
    )
  axes.set_ylabel('client step size')
  axes.set_yscale('log')
  _count_rounds(axes)


def _draw_drift(rows: Sequence[dict[str, str]], axes: Any) -> None:
  """Draws the cosines that measure client drift, by round."""
  for (column, label), style in zip(_COSINES.items(), styles.DRIFT):
    places, values = _series(rows, column)
    if places:
      axes.plot(places, values, label=label, **style)
  axes.set_ylabel('cosine')
  axes.set_ylim(-1.05, 1.05)
  _count_rounds(axes)


def _count_rounds(axes: Any) -> None:
  axes.set_xlabel('round')
  styles.count(axes.xaxis)


def _write(figure: Any, path: pathlib.Path) -> None:
  buffer = io.BytesIO()
  figure.savefig(buffer, format='png')
  files.write_atomically(path, buffer.getvalue())


def draw_step_sizes(
  rows: Sequence[dict[str, str]], path: pathlib.Path, title: str
) -> None:
  """Draws the spread of step sizes over clients and steps; see `step_plots`.

  Args:
    rows: Rows of metrics.csv; without step sizes nothing is written.
    path: The PNG file to write.
    title: The title of the figure.
  """
  if not any(row.get(step_plots.MEAN) for row in rows):
    return
  figure = step_plots.figure_of(lambda column: _series(rows, column), title)
  _write(figure, path)
