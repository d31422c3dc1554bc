"""Figures of hyperparameter tuning: the configurations of a sweep."""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections

_CLIENT = 'client_learning_rate'
_SERVER = 'server_learning_rate'
_TAU = 'server_adaptivity'
_ByMethod = Mapping[str, Sequence[sections.Configuration]]
TUNING = 'Tuning'


def _numbers(
  configurations: Sequence[sections.Configuration], *flags: str
) -> list[sections.Configuration]:
  """Returns the configurations in which all flags are positive numbers."""
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
  """Builds a heat map over learning rates, with the best of other axes."""
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
    f'{printed_names.method(method)}: {judge.label} by client and server '
    'learning rate, the best of what else was varied, mean over seeds; empty '
    'cells have no finished run.',
    method,
    'client learning rate',
    'server learning rate',
    judge.label,
    across,
    up,
    values,
    share=judge.is_share,
  )


def best_server_rates(
  by_method: _ByMethod, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Builds a chart of the best server rate for every client rate."""
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
    + charts.together(lines),
    'client learning rate',
    'best server learning rate',
    lines,
    log_x=True,
    log_y=True,
  )


def adaptivity(
  by_method: _ByMethod, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Builds a chart of quality by server adaptivity, at the best rates."""
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
        if len(values) >= scores.SEEDS_FOR_AN_INTERVAL:
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
    f'{charts.sentence(judge.label)} by server adaptivity, with the best '
    f'learning rates at each; from {scores.SEEDS_FOR_AN_INTERVAL} seeds on '
    'bars are 95 % confidence intervals of the mean.' + charts.together(lines),
    'server adaptivity',
    judge.label,
    lines,
    log_x=True,
    share=judge.is_share,
    bars=True,
  )


def sorted_sweeps(
  by_method: _ByMethod, judge: sections.Judge
) -> Optional[charts.Chart]:
  """Builds a chart of all configurations of each method, sorted by quality."""
  lines = []
  for method, configurations in by_method.items():
    if len(configurations) < 2:
      continue
    values = [c.mean(judge.measure) for c in configurations if c.complete]
    values = sorted(
      (v for v in values if math.isfinite(v)), reverse=judge.more_is_better
    )
    if values:
      # Relative to all configurations, so that failures shorten the line.
      x = [(i + 1) / len(configurations) for i in range(len(values))]
      lines.append(charts.Line(method, x, values))
  if not lines:
    return None
  return charts.Chart(
    'sorted_sweeps',
    TUNING,
    f'{charts.sentence(judge.label)} of every configuration that was tried, '
    'sorted; a line that ends before 1 is of a method of which some diverged '
    'or failed.',
    'share of configurations',
    judge.label,
    lines,
    x_limits=(0.0, 1.03),
    share=judge.is_share,
  )
