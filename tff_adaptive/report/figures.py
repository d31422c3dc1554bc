"""The figures of the papers, drawn from many runs."""

import dataclasses
import math
import operator
import textwrap
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_adaptive.recording import step_figures as step_plots
from tff_adaptive.recording import styles
from tff_adaptive.report import runs as results
from tff_adaptive.report import scores
from tff_adaptive.report import sections

_CLIENT = 'client_learning_rate'
_SERVER = 'server_learning_rate'
_TAU = 'server_adaptivity'
# Letters beside a vertical axis, which is about as long.
_LABEL_WIDTH = 32
_INCHES_PER_NAME = 1.7
# The lines of single seeds.
_THIN = dict(linewidth=0.7, markersize=2.5)


@dataclasses.dataclass(frozen=True)
class Figure:
  """A figure with the words that belong to it.

  Attributes:
    name: Of its files.
    title: Its heading.
    caption: What it shows, also for those who cannot see it.
    figure: matplotlib's.
  """

  name: str
  title: str
  caption: str
  figure: figure_lib.Figure


def _new(columns: int = 1, rows: int = 1, width: float = 4.6) -> tuple:
  figure = figure_lib.Figure(
    figsize=(width * columns, 3.8 * rows), dpi=120, layout='constrained'
  )
  return figure, figure.subplots(rows, columns, squeeze=False)


def _finish(axes: Any, xlabel: str, ylabel: str) -> None:
  axes.set_xlabel(xlabel)
  axes.set_ylabel(textwrap.fill(ylabel, _LABEL_WIDTH))
  axes.grid(alpha=0.3)


def _add_legend(figure: figure_lib.Figure, panels: Sequence[Any]) -> None:
  """Names the lines below the panels, where the legend hides none of them."""
  handles: dict[str, Any] = {}
  for panel in panels:
    for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  columns = max(1, int(figure.get_figwidth() / _INCHES_PER_NAME))
  figure.legend(
    handles.values(),
    handles.keys(),
    loc='outside lower center',
    fontsize=7,
    handlelength=3,
    ncols=min(columns, len(handles)),
    frameon=False,
  )


def _draw_seeds(
  axes: Any,
  best: Mapping[str, sections.Configuration],
  series: Callable[[results.Run], tuple[Sequence[float], Sequence[float]]],
  bounds: tuple[float, float],
) -> bool:
  """Draws every method over its seeds; returns whether there is any line.

  Args:
    axes: matplotlib's.
    best: The configuration of every method.
    series: Makes x and y of a run.
    bounds: The least and the greatest value that y can have.
  """
  limits: list[float] = []
  for method, configuration in best.items():
    lines = [series(run) for run in configuration.runs]
    lines = [(x, y) for x, y in lines if np.isfinite(y).any()]
    if len(lines) < scores.SEEDS_FOR_A_BAND:
      drawn = _draw_lines(axes, method, lines)
    else:
      drawn = _draw_band(axes, method, lines, bounds)
    limits += drawn
  if limits:
    # A band over few seeds may be far wider than all that was measured.
    margin = 0.05 * (max(limits) - min(limits)) or 0.5
    axes.set_ylim(min(limits) - margin, max(limits) + margin)
  return bool(limits)


def _draw_lines(axes: Any, method: str, lines: Sequence[tuple]) -> list[float]:
  """Draws a line a seed, thin where there are several; returns all y."""
  style = styles.of_method(method)
  if len(lines) > 1:
    style |= _THIN
  for number, (x, y) in enumerate(lines):
    axes.plot(
      x,
      y,
      label='_' if number else method,
      markevery=max(1, len(x) // 8),
      **style,
    )
  return [v for _, y in lines for v in y if math.isfinite(v)]


def _draw_band(
  axes: Any,
  method: str,
  lines: Sequence[tuple],
  bounds: tuple[float, float],
) -> list[float]:
  """Draws the mean over seeds and its interval; returns the least and most y.

  Only where all seeds have a value.
  """
  shared = sorted(set.intersection(*(set(x) for x, _ in lines)))
  columns = [dict(zip(x, y, strict=True)) for x, y in lines]
  values = np.array([[c[x] for x in shared] for c in columns])
  finite = np.isfinite(values).all(axis=0)
  x, values = np.array(shared)[finite], values[:, finite]
  if not x.size:
    return []
  style = styles.of_method(method)
  mean = values.mean(axis=0)
  axes.plot(x, mean, label=method, markevery=max(1, len(x) // 8), **style)
  half = np.array([scores.interval(column) for column in values.T])
  axes.fill_between(
    x,
    np.clip(mean - half, min(bounds[0], values.min()), None),
    np.clip(mean + half, None, max(bounds[1], values.max())),
    color=style['color'],
    alpha=0.18,
    lw=0,
  )
  return [float(values.min()), float(values.max())]


_OVER_SEEDS = (
  f'From {scores.SEEDS_FOR_A_BAND} seeds on a line is their mean and the band '
  'its 95 % confidence interval; fewer seeds are thin lines of their own.'
)


def curves(
  best: Mapping[str, sections.Configuration], judge: sections.Judge
) -> Optional[Figure]:
  """Draws loss and metric by round, best configuration of every method."""
  panels = (
    ('train/loss', 'training loss', scores.bounds('loss')),
    (judge.column, judge.label, judge.bounds),
  )
  figure, axes = _new(2)
  drawn = False
  for panel, (column, label, bounds) in zip(axes[0], panels, strict=True):
    series = operator.methodcaller('series', column)
    drawn |= _draw_seeds(panel, best, series, bounds)
    panel.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    _finish(panel, 'round', label)
  if not drawn:
    return None
  _add_legend(figure, axes[0])
  return Figure(
    'curves',
    'Curves',
    'Training loss and validation quality by round: the best configuration of '
    f'every method. {_OVER_SEEDS}',
    figure,
  )


def against_bytes(
  best: Mapping[str, sections.Configuration], judge: sections.Judge
) -> Optional[Figure]:
  """Draws quality by what was sent until then."""

  def series(run: results.Run) -> tuple[list[float], list[float]]:
    clients = int(run.settings.get('clients_per_round') or 0)
    x, y, sent = [], [], 0.0
    for row in run.rows:
      sent += row.get('bytes_down', 0.0) + row.get('bytes_up', 0.0)
      if judge.column in row and clients and sent:
        x.append(sent * clients / 1e6)
        y.append(row[judge.column])
    return x, y

  figure, axes = _new()
  panel = axes[0][0]
  if not _draw_seeds(panel, best, series, judge.bounds):
    return None
  totals = [series(c.runs[0])[0][-1:] for c in best.values()]
  sent = [total for last in totals for total in last]
  # Methods that send about as much are told apart on an even scale.
  if max(sent) > 10 * min(sent):
    panel.set_xscale('log')
  else:
    panel.set_xlim(left=0)
  panel.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,g}'))
  _finish(panel, 'megabytes sent, both ways', judge.label)
  _add_legend(figure, [panel])
  return Figure(
    'bytes',
    'Quality against traffic',
    'Validation quality against the megabytes that the server and all clients '
    f'of the cohorts sent each other until then. {_OVER_SEEDS}',
    figure,
  )


def step_sizes(best: Mapping[str, sections.Configuration]) -> Optional[Figure]:
  """Draws the step sizes that clients chose."""
  chosen = {
    method: configuration.runs[0].series
    for method, configuration in best.items()
    if any(step_plots.MEAN in run.columns for run in configuration.runs)
  }
  if not chosen:
    return None
  return Figure(
    'step_sizes',
    'Client step sizes',
    f"{step_plots.CAPTION} First seed of every method's best configuration.",
    step_plots.figure_of(chosen, styles.of_method),
  )


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


def _power(value: float) -> str:
  """Writes a rate as a power of ten, or as it is."""
  exponent = math.log10(value)
  nearest = round(2 * exponent) / 2
  if abs(exponent - nearest) < 1e-3:
    text = f'{nearest:.0f}' if nearest == round(nearest) else f'{nearest:.1f}'
    return f'$10^{{{text}}}$'
  return f'{value:.3g}'


def heat_map(
  method: str,
  configurations: Sequence[sections.Configuration],
  judge: sections.Judge,
) -> Optional[Figure]:
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
  figure, axes = _new(width=1.6 + 0.62 * len(across))
  figure.set_figheight(1.4 + 0.45 * len(up))
  panel = axes[0][0]
  # Cells without a finished run stay hatched.
  panel.patch.set(hatch='////', edgecolor='0.6', facecolor='white')
  image = panel.imshow(
    np.ma.masked_invalid(values),
    origin='lower',
    cmap=styles.COLOUR_MAP,
    aspect='auto',
  )
  finite = values[np.isfinite(values)]
  if finite.size:
    middle = (finite.min() + finite.max()) / 2
    for (i, j), value in np.ndenumerate(values):
      if math.isfinite(value):
        panel.text(
          j,
          i,
          f'{value:.3g}',
          ha='center',
          va='center',
          fontsize=7,
          color='white' if value < middle else 'black',
        )
  panel.set_xticks(range(len(across)), [_power(v) for v in across])
  panel.set_yticks(range(len(up)), [_power(v) for v in up])
  panel.set_xlabel('client learning rate')
  panel.set_ylabel('server learning rate')
  panel.set_title(method, fontsize=9)
  figure.colorbar(image, ax=panel, label=judge.label)
  safe = ''.join(c if c.isalnum() else '_' for c in method)
  return Figure(
    f'heat_map_{safe}',
    'Learning rates',
    f'{method}: {judge.label} by client and server learning rate, the best '
    'of what else was varied, mean over seeds; hatched cells have no finished '
    'run.',
    figure,
  )


def best_server_rates(
  by_method: Mapping[str, Sequence[sections.Configuration]],
  judge: sections.Judge,
) -> Optional[Figure]:
  """Draws the best server rate for every client rate."""
  figure, axes = _new()
  panel = axes[0][0]
  drawn = False
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
      panel.plot(*zip(*pairs), label=method, **styles.of_method(method))
      drawn = True
  if not drawn:
    return None
  panel.set_xscale('log')
  panel.set_yscale('log')
  _finish(panel, 'client learning rate', 'best server learning rate')
  _add_legend(figure, [panel])
  return Figure(
    'best_server_rates',
    'Best server rate for every client rate',
    'The server learning rate that was best at each client learning rate.',
    figure,
  )


def _with_bar(
  values: Sequence[float], bounds: tuple[float, float]
) -> tuple[float, float, float]:
  """Returns a mean, and how far its interval goes below and above it."""
  mean = scores.mean(values)
  if len(values) < scores.SEEDS_FOR_A_BAND:
    return mean, 0.0, 0.0
  half = scores.interval(values)
  low, high = min(bounds[0], *values), max(bounds[1], *values)
  return mean, min(half, mean - low), min(half, high - mean)


def adaptivity(
  by_method: Mapping[str, Sequence[sections.Configuration]],
  judge: sections.Judge,
) -> Optional[Figure]:
  """Draws quality by the server's adaptivity, the best rates at each."""
  figure, axes = _new()
  panel = axes[0][0]
  drawn = False
  for method, configurations in by_method.items():
    usable = _numbers(configurations, _TAU)
    points = []
    for tau in _axis(usable, _TAU):
      best = judge.best([c for c in usable if c.settings[_TAU] == tau])
      values = best.values(judge.measure) if best is not None else []
      if values:
        points.append((tau, *_with_bar(values, judge.bounds)))
    if len(points) < 2:
      continue
    x, y, below, above = zip(*points, strict=True)
    panel.errorbar(
      x,
      y,
      yerr=(below, above),
      capsize=2,
      label=method,
      **styles.of_method(method),
    )
    drawn = True
  if not drawn:
    return None
  panel.set_xscale('log')
  _finish(panel, r'server adaptivity $\tau$', judge.label)
  _add_legend(figure, [panel])
  return Figure(
    'adaptivity',
    'Robustness to the adaptivity',
    f'{judge.label.capitalize()} by server adaptivity, with the best learning '
    f'rates at each; from {scores.SEEDS_FOR_A_BAND} seeds on bars are 95 % '
    'confidence intervals of the mean.',
    figure,
  )


def sorted_sweeps(
  by_method: Mapping[str, Sequence[sections.Configuration]],
  judge: sections.Judge,
) -> Optional[Figure]:
  """Draws all configurations of a method, from the best to the worst."""
  figure, axes = _new()
  panel = axes[0][0]
  drawn = False
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
      style = styles.of_method(method)
      panel.plot(
        x, values, label=method, markevery=max(1, len(x) // 8), **style
      )
      drawn = True
  if not drawn:
    return None
  panel.set_xlim(0, 1.03)
  _finish(panel, 'share of configurations', judge.label)
  _add_legend(figure, [panel])
  return Figure(
    'sorted_sweeps',
    'All configurations, best first',
    f'{judge.label.capitalize()} of every configuration that was tried, '
    'sorted; a line that ends before 1 is of a method of which some diverged '
    'or failed.',
    figure,
  )
